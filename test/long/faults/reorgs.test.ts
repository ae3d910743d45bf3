import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import type { SimulatedNode } from '../../support/starknet/node.ts';
import type { Inspector } from '../../support/faults/inspect.ts';
import { eventually } from '../../support/service.ts';
import type { RunningService } from '../../support/service.ts';
import { simulatedService } from '../../support/simulated-service.ts';
import type { SimulatedService } from '../../support/simulated-service.ts';

/** Reorgs through the whole service on real stores: after each, every table is what the fork in force meant. */

const HEAD = 1700;
const L1 = 150;
const STRK = '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d';
let world: SimulatedService;
let node: SimulatedNode;
let service: RunningService;
let inspected: Inspector;

beforeAll(async () => {
  world = await simulatedService(
    { seed: 'reorgs', initialHead: HEAD, transfersPerBlock: 5, l1Height: L1 },
    {
      settings: { BACKFILL_CHUNK_BLOCKS: '40', BACKFILL_CONCURRENCY: '1' },
      prepare(simulated) {
        // History is slow, so that it is still being read when the first reorg comes: 150 blocks take ten minutes.
        const slow = { kind: 'latency', ms: 4000, heights: { from: 0, to: L1 - 1 } } as const;
        simulated.control({ command: 'fault', fault: slow });
      },
    },
  );
  ({ node, service, inspected } = world);
});
afterAll(async () => {
  await world?.close();
});

const settled = async (): Promise<void> => {
  await eventually(async () => expect(await inspected.isSettled()).toBe(true), 200_000);
};
const liveCursor = async (): Promise<number> => {
  const { rows } = await inspected.pool.query<{ cursor: number }>(
    "SELECT cursor FROM tds.chunks WHERE name = 'live'",
  );
  return rows[0]?.cursor ?? 0;
};
const openChunks = async (): Promise<number> =>
  (await inspected.pool.query("SELECT 1 FROM tds.chunks WHERE name <> 'live' AND status <> 'finished'")).rows
    .length;

test('reorg while backfill is running', async () => {
  await eventually(async () => expect(await liveCursor()).toBe(HEAD + 1));
  expect(await openChunks()).toBeGreaterThan(0);
  node.control({ command: 'reorg', depth: 30, length: 31, events: 'more' });
  await eventually(async () => expect(await liveCursor()).toBe(HEAD + 2));
  node.control({ command: 'clearFaults' });
  await settled();
  expect(await inspected.tableDifferences()).toEqual([]);
});

test.each([
  { depth: 1, length: 1, events: 'fewer', share: 0 },
  { depth: 1, length: 2, events: 'more', share: 0.6 },
  { depth: 40, length: 40, events: 'same', share: 0.6 },
  { depth: 40, length: 25, events: 'fewer', share: 0.2 },
  { depth: 40, length: 56, events: 'more', share: 0.9 },
] as const)('$depth deep, $length blocks instead, with $events events', async (fork) => {
  await settled();
  node.control({ command: 'reorg', ...fork });
  await settled();
  expect(await inspected.tableDifferences()).toEqual([]);
});

test('reorg from fork A to B and back to A', async () => {
  const a = z.object({ fork: z.number() }).parse(node.control({ command: 'clearFaults' })).fork;
  node.control({ command: 'reorg', depth: 25, length: 30, share: 0.3 });
  await settled();
  node.control({ command: 'switch', fork: a });
  await settled();
  expect(await inspected.tableDifferences()).toEqual([]);
});

test('reorg of 1,500 blocks to a fork with fewer events, and back', async () => {
  const a = z.object({ fork: z.number() }).parse(node.control({ command: 'clearFaults' })).fork;
  node.control({ command: 'reorg', depth: 1500, length: 1490, share: 0.4, events: 'fewer' });
  await settled();
  expect(await inspected.tableDifferences()).toEqual([]);
  node.control({ command: 'switch', fork: a });
  await settled();
  expect(await inspected.tableDifferences()).toEqual([]);
});

const page = z.object({
  links: z.object({ next_cursor: z.string().nullable() }),
  results: z.array(z.object({ block: z.number(), event_index: z.number(), txhash: z.string() })),
});

test.each(['desc', 'asc'])(
  'cursor paging (%s) during a reorg repeats no row and skips no row that stays',
  async (order) => {
    const before = Array.from({ length: node.ledger.head() + 1 }, (_, height) => ({
      hash: node.ledger.at(height)?.hash,
      keys: node
        .transfersAt(height)
        .filter(({ token }) => token === BigInt(STRK))
        .map((row) => `${height}:${row.item * 1_048_576 + row.position}`),
    }));
    const seen: string[] = [];
    let cursor: string | null = '';
    const head = node.ledger.head();
    const from = head - 300;
    // Forks meet the client behind where it is, at it, and before it.
    const forks = [5, 150, 290, 40, 220];
    for (let pages = 0; cursor !== null; pages += 1) {
      const suffix: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
      const query = `token=${STRK}&from_block=${from}&order=${order}&limit=40${suffix}`;
      const { status, json } = await service.get(`/api/transfers/?${query}`);
      expect(status, JSON.stringify(json)).toBe(200);
      const { results, links } = page.parse(json);
      seen.push(...results.map((row) => `${row.block}:${row.event_index}`));
      cursor = links.next_cursor;
      const depth = pages % 2 === 0 ? forks.shift() : undefined;
      if (depth === undefined) continue;
      node.control({ command: 'reorg', depth, length: depth + 1, share: 0.5 });
      // Some pages are read while the fork is being taken back, others after.
      if (pages % 4 === 0) await settled();
    }
    expect(forks).toEqual([]);
    expect(seen).toHaveLength(new Set(seen).size);
    const stayed = before.flatMap(({ hash, keys }, height) =>
      height >= from && node.ledger.at(height)?.hash === hash ? keys : [],
    );
    expect(stayed.length).toBeGreaterThan(10);
    const known = new Set(seen);
    expect(stayed.filter((key) => !known.has(key))).toEqual([]);
    await settled();
    expect(await inspected.differences()).toEqual([]);
  },
);
