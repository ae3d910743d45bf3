import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { newestBlock, newestRun, runStart } from '../../../projections/indexed-blocks/queries.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { createRandom } from '../../support/random.ts';
import { createWorldTables, worldTables } from '../../support/transfer-world.ts';

/** The newest run of indexed blocks out of a real ClickHouse, against a set of heights in memory. */

const random = createRandom(4711);
let own: Isolated;
let clickhouse: ClickHouse;
const indexed = new Set<number>();
let seq = 0;

beforeAll(async () => {
  own = await isolated();
  clickhouse = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
  await createWorldTables(clickhouse);
});
afterAll(async () => {
  await clickhouse?.close();
  await own?.drop();
});

/** Blocks appear or go, from one height to another, and the ranges that they are in are counted anew. */
async function change(first: number, last: number, isThere: boolean): Promise<void> {
  seq += 1;
  for (let height = first; height <= last; height += 1) {
    if (isThere) indexed.add(height);
    else indexed.delete(height);
  }
  await clickhouse.command(
    `INSERT INTO indexed_blocks (block_desc, block_hash, timestamp, chunk, seq, is_deleted)
     SELECT 4294967295 - number, unhex(leftPad(hex(toUInt32(number)), 64, '0')), toUInt32(1000 + number), 'live', ${seq}, ${isThere ? 0 : 1}
     FROM numbers(${first}, ${last - first + 1})`,
  );
  const ranges = [...Map.groupBy(indexed, (height) => Math.floor(height / 1024))];
  const touched = new Set(ranges.map(([range]) => range));
  for (let range = Math.floor(first / 1024); range <= Math.floor(last / 1024); range += 1)
    if (!touched.has(range)) ranges.push([range, []]);
  // A range may be shared by two chunks.
  const values = ranges.flatMap(([range, heights]) => {
    const older = heights.filter((height) => height % 1024 < 300).length;
    return [
      `('older', ${range}, ${older}, ${seq}, ${older === 0 ? 1 : 0})`,
      `('live', ${range}, ${heights.length - older}, ${seq}, ${heights.length === older ? 1 : 0})`,
    ];
  });
  if (values.length > 0)
    await clickhouse.command(
      `INSERT INTO indexed_block_ranges (chunk, range, blocks, seq, is_deleted) VALUES ${values.join(', ')}`,
    );
}

async function compare(): Promise<void> {
  const head = indexed.size === 0 ? null : Math.max(...indexed);
  let start = head ?? 0;
  while (indexed.has(start - 1)) start -= 1;
  const found = await newestRun(clickhouse, worldTables);
  expect(found === null ? null : { head: found.head.height, start: found.start }).toEqual(
    head === null ? null : { head, start },
  );
  expect(await newestBlock(clickhouse, worldTables)).toEqual(found === null ? null : found.head);
  if (head === null) return;
  expect(found?.head).toEqual({
    height: head,
    hash: `0x${head.toString(16).padStart(64, '0')}`,
    timestamp: 1000 + head,
  });
  expect(await runStart(clickhouse, worldTables, head)).toBe(start);
}

test('finds the newest run in no block, one block, a growing chain, gaps and reorgs of any depth', async () => {
  const steps: [number, number, boolean][] = [
    [5, 5, true], // one block
    [5, 5, false], // none left
    [0, 1023, true], // one range, to its end
    [1024, 1024, true],
    [1025, 3071, true], // three ranges, to their end
    [3072, 5000, true],
    [4990, 5000, false], // a reorg inside a range
    [4000, 4989, false], // more than a range deep, below what was the newest
    [3500, 3500, false], // a gap in the newest range
    [3072, 3999, true],
    [2047, 2047, false], // a gap at the end of a range, below whole ones
    [2047, 2047, true],
    [4000, 6143, true],
    [5120, 6143, false], // exactly one range is gone
    [4200, 5119, false], // and more than was looked at
    [9000, 9100, true], // far ahead of the rest
    [9216, 10_300, true], // a run that begins with its range
    [9101, 9215, true], // joined below
    [10_240, 10_300, false], // the newest block ends a range
  ];
  await compare();
  for (const [first, last, isThere] of steps) {
    await change(first, last, isThere);
    await compare();
  }
});

test('finds the newest run after any sequence of inclusions and removals', async () => {
  for (let round = 0; round < 30; round += 1) {
    const top = Math.max(0, ...indexed);
    const last = random.below(4) === 0 ? random.below(top + 1) : top + random.below(1500);
    const first = Math.max(0, last - random.below(random.pick([3, 700, 2500])));
    await change(first, last, random.below(3) > 0);
    await compare();
  }
});
