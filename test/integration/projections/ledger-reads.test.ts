import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { movedByToken, movedWithin, movements } from '../../../projections/account-ledger/queries.ts';
import { blocksAt, newestBlock, runStart } from '../../../projections/indexed-blocks/queries.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { createRandom } from '../../support/random.ts';
import {
  createWorldTables,
  randomBlock,
  randomWorld,
  worldTables,
  writeBlocks,
} from '../../support/transfer-world.ts';
import type { WorldBlock } from '../../support/transfer-world.ts';

/** Sums over spans of heights out of a real ClickHouse, through ranges and reorgs, against plain additions in memory. */

const random = createRandom(1024);
const chain = new Map<number, WorldBlock>();
let own: Isolated;
let writer: ClickHouse;
let clickhouse: ClickHouse;
let seq = 1;

async function write(
  blocks: readonly WorldBlock[],
  type: 'block.accepted' | 'block.reverted',
): Promise<void> {
  seq += 1;
  for (let i = 0; i < blocks.length; i += 300) {
    await writeBlocks(writer, blocks.slice(i, i + 300), { seq, offset: seq * 10_000 + i, type });
  }
  for (const block of blocks) {
    if (type === 'block.accepted') chain.set(block.height, block);
    else chain.delete(block.height);
  }
}
const heights = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, i) => first + i);
const made = (of: readonly number[]): WorldBlock[] =>
  of.map((height) => randomBlock(random, height, height % 9 === 0 ? 6 : 0));

/** Whole from 0 to 2100, a gap, and whole again over two borders of ranges. */
beforeAll(async () => {
  own = await isolated();
  writer = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
  clickhouse = createClickHouse(own.env.API_CLICKHOUSE_URL, { application: 'test-api' });
  await createWorldTables(writer);
  const blocks = made([...heights(0, 2100), ...heights(3000, 5200)]);
  await write(blocks, 'block.accepted');
  const lost = blocks.filter(({ height }) => height >= 5100 || (height >= 1020 && height <= 1030));
  await write(lost.toReversed(), 'block.reverted');
  await write(made([...heights(1020, 1030), ...heights(5100, 5150)]), 'block.accepted');
}, 240_000);
afterAll(async () => {
  await clickhouse.close();
  await writer.close();
  await own.drop();
});

interface Leg {
  readonly height: number;
  readonly position: number;
  readonly item: number;
  readonly account: Felt;
  readonly token: Felt;
  readonly delta: bigint;
}
const legs = (): Leg[] =>
  [...chain.values()].flatMap(({ height, transfers }) =>
    transfers.flatMap(({ kind, from, to, token, amount, position, item }) => {
      if (kind === 'unknown') return [];
      const leg = { height, position, item, token };
      return [
        { ...leg, account: from, delta: -amount },
        { ...leg, account: to, delta: amount },
      ];
    }),
  );
const total = (of: readonly Leg[]) => ({
  delta: BigInt.asIntN(
    256,
    of.reduce((sum, { delta }) => sum + delta, 0n),
  ),
  legs: of.length,
});
const someHeight = (): number =>
  random.pick([
    -1,
    0,
    1023,
    1024,
    1025,
    2047,
    2048,
    4095,
    4096,
    5150,
    5999,
    random.below(5200),
    random.below(5200),
  ]);

test('what pairs moved within spans', async () => {
  const all = legs();
  for (let round = 0; round < 12; round += 1) {
    const asked = Array.from({ length: 1 + random.below(20) }, () => {
      const { account, token } = random.pick(all);
      return { account, token, after: someHeight(), upTo: someHeight() };
    });
    const expected = asked.map(({ account, token, after, upTo }) =>
      total(
        all.filter(
          (leg) => leg.account === account && leg.token === token && leg.height > after && leg.height <= upTo,
        ),
      ),
    );
    const found = await movedWithin(clickhouse, worldTables, asked);
    expect(found.map(({ delta, legs: count }) => ({ delta, legs: count }))).toEqual(expected);
  }
});

test('what an account moved of each token, from the first block on and after heights of their own', async () => {
  const all = legs();
  for (const account of randomWorld.accounts.slice(0, 6)) {
    const upTo = Math.max(0, someHeight());
    const mine = Map.groupBy(
      all.filter((leg) => leg.account === account && leg.height <= upTo),
      ({ token }) => token,
    );
    const expected = new Map([...mine].map(([token, of]) => [token, total(of)]));
    const byToken = async (after?: ReadonlyMap<Felt, number>) =>
      await movedByToken(clickhouse, worldTables, {
        account,
        upTo,
        ...(after === undefined ? {} : { after }),
      });
    expect(await byToken()).toEqual(expected);
    const after = new Map([...mine.keys()].slice(0, 5).map((token) => [token, someHeight()]));
    const since = [...after].flatMap(([token, height]) => {
      const of = (mine.get(token) ?? []).filter((leg) => leg.height > height);
      return of.length === 0 ? [] : [[token, total(of)] as const];
    });
    expect(await byToken(after)).toEqual(new Map(since));
  }
});

test('the transfers of a pair, newest first, each once', async () => {
  const all = legs();
  for (let round = 0; round < 6; round += 1) {
    const { account, token } = random.pick(all);
    const [lo, hi] = [Math.max(0, someHeight()), Math.max(0, someHeight())].toSorted((a, b) => a - b);
    const mine = all.filter(
      (leg) =>
        leg.account === account && leg.token === token && leg.height >= (lo ?? 0) && leg.height <= (hi ?? 0),
    );
    const byPlace = Map.groupBy(mine, ({ height, position, item }) => [height, position, item].join());
    const expected = [...byPlace.values()]
      .map((of) => ({ at: of[0], delta: total(of).delta }))
      .toSorted(
        (a, b) =>
          (b.at?.height ?? 0) - (a.at?.height ?? 0) ||
          (b.at?.position ?? 0) - (a.at?.position ?? 0) ||
          (b.at?.item ?? 0) - (a.at?.item ?? 0),
      )
      .map(({ at, delta }) => [at?.height, at?.position, at?.item, delta]);
    const asked = { account, token, lo: lo ?? 0, hi: hi ?? 0 };
    const found = await movements(clickhouse, worldTables, asked, 100_000);
    expect(found.map((row) => [row.block, row.position, row.item, row.delta])).toEqual(expected);
    expect(await movements(clickhouse, worldTables, asked, 2)).toEqual(found.slice(0, 2));
  }
});

test('from where on every block is indexed', async () => {
  const starts = [0, 700, 1023, 1024, 1030, 2100, 2101, 2999, 3000, 3071, 3072, 4095, 4100, 5150, 5151];
  const found = await Promise.all(starts.map((height) => runStart(clickhouse, worldTables, height)));
  expect(found).toEqual([0, 0, 0, 0, 0, 0, null, null, 3000, 3000, 3000, 3000, 3000, 3000, null]);
  expect(await newestBlock(clickhouse, worldTables)).toMatchObject({ height: 5150 });
  expect(
    [...(await blocksAt(clickhouse, worldTables, [5150, 5151, 0, 2500])).keys()].toSorted((a, b) => a - b),
  ).toEqual([0, 5150]);
});
