import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import {
  accountSlices,
  movedByToken,
  movedInSteps,
  movedWithin,
  movements,
  tokenSums,
} from '../../../projections/account-ledger/queries.ts';
import {
  blocksAt,
  newestBlock,
  newestHeightsAt,
  runStart,
  wholeUpTo,
} from '../../../projections/indexed-blocks/queries.ts';
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
});
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
  readonly kind: string;
}
const legs = (): Leg[] =>
  [...chain.values()].flatMap(({ height, transfers }) =>
    transfers.flatMap(({ kind, from, to, token, amount, position, item }) => {
      if (kind === 'unknown') return [];
      const leg = { height, position, item, token, kind };
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

test('sums the legs of pairs within spans', async () => {
  const all = legs();
  for (let round = 0; round < 12; round += 1) {
    // Of one span all, every other time.
    const same = round % 2 === 0 ? null : { after: someHeight(), upTo: someHeight() };
    // Also more than the parameters of one statement suffice for.
    const asked = Array.from({ length: round < 10 ? 1 + random.below(20) : 600 }, () => {
      const { account, token } = random.pick(all);
      return { account, token, ...(same ?? { after: someHeight(), upTo: someHeight() }) };
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

test('sums an account’s legs of each token up to a height and in steps', async () => {
  const all = legs();
  for (const account of randomWorld.accounts.slice(0, 6)) {
    const mine = all.filter((leg) => leg.account === account);
    const upTo = Math.max(0, someHeight());
    const byToken = Map.groupBy(
      mine.filter(({ height }) => height <= upTo),
      ({ token }) => token,
    );
    expect(await movedByToken(clickhouse, worldTables, { account, upTo })).toEqual(
      new Map([...byToken].map(([token, of]) => [token, total(of)])),
    );

    const ends = Array.from({ length: 1 + random.below(40) }, () => Math.max(0, someHeight()));
    const expected = new Map<Felt, Map<number, bigint>>();
    for (const [token, of] of Map.groupBy(mine, (leg) => leg.token)) {
      const steps = Map.groupBy(of, ({ height }) => Math.min(...ends.filter((end) => end >= height)));
      steps.delete(Infinity);
      const moved = [...steps].flatMap(([end, within]): [number, bigint][] => {
        const { delta } = total(within);
        return delta === 0n ? [] : [[end, delta]];
      });
      if (moved.length > 0) expected.set(token, new Map(moved));
    }
    expect(await movedInSteps(clickhouse, worldTables, { account, heights: ends })).toEqual(expected);
  }
  const account = random.pick(randomWorld.accounts);
  expect(await movedInSteps(clickhouse, worldTables, { account, heights: [] })).toEqual(new Map());
});

test('sums the legs of each ERC-20 token of a slice of accounts', async () => {
  const { signal } = new AbortController();
  expect(await accountSlices(clickhouse, worldTables)).toBe(1);
  const upTo = 3500;
  const fungible = legs().filter(({ kind, height }) => kind === 'erc20' && height <= upTo);
  for (const slices of [1, 2, 64]) {
    const width = 0x800 / slices;
    for (let slice = 0; slice < slices; slice += 1) {
      const within = fungible.filter(
        ({ account }) => Math.min(slices - 1, Math.floor(Number(account.slice(0, 6)) / width)) === slice,
      );
      const expected = [...Map.groupBy(within, ({ token }) => token)];
      const found = await tokenSums(clickhouse, worldTables, { slice, slices, to: upTo, signal });
      expect(new Map(found.map(({ token, sum }) => [token, sum]))).toEqual(
        new Map(expected.map(([token, of]) => [token, total(of).delta])),
      );
    }
  }
});

test('lists the transfers of a pair once, newest first', async () => {
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

test('finds the lowest height from which all blocks are indexed', async () => {
  const starts = [0, 700, 1023, 1024, 1030, 2100, 2101, 2999, 3000, 3071, 3072, 4095, 4100, 5150, 5151];
  const found = await Promise.all(starts.map((height) => runStart(clickhouse, worldTables, height)));
  expect(found).toEqual([0, 0, 0, 0, 0, 0, null, null, 3000, 3000, 3000, 3000, 3000, 3000, null]);
  expect(await newestBlock(clickhouse, worldTables)).toMatchObject({ height: 5150 });
  expect(
    [...(await blocksAt(clickhouse, worldTables, [5150, 5151, 0, 2500])).keys()].toSorted((a, b) => a - b),
  ).toEqual([0, 5150]);
});

test('finds the newest block at each of many times', async () => {
  const blocks = [...chain.values()];
  const timesOf = blocks.map(({ timestamp }) => timestamp);
  const [oldest, newest] = [Math.min(...timesOf), Math.max(...timesOf)];
  for (const count of [1, 2, 60, 5000]) {
    const times = Array.from(
      { length: count },
      () => random.pick(timesOf) + random.below(3) - 1 + (random.below(20) === 0 ? newest - oldest : 0),
    );
    times.push(random.pick([-1, 0, oldest - 1, oldest]), newest + random.below(2));
    const ascending = times.toSorted((a, b) => a - b);
    const expected = ascending.map((time) => {
      const known = blocks.filter(({ timestamp }) => timestamp <= time).map(({ height }) => height);
      return known.length === 0 ? null : Math.max(...known);
    });
    expect(await newestHeightsAt(clickhouse, worldTables, ascending)).toEqual(expected);
  }
  expect(await newestHeightsAt(clickhouse, worldTables, [])).toEqual([]);
});

test('finds the height up to which all blocks from the first are indexed', async () => {
  expect(await wholeUpTo(clickhouse, worldTables)).toBe(2100);
  const taken = async (of: readonly number[]): Promise<void> =>
    await write(
      of.flatMap((height) => chain.get(height) ?? []),
      'block.reverted',
    );
  await taken([2048]);
  expect(await wholeUpTo(clickhouse, worldTables)).toBe(2047);
  await taken([1500]);
  expect(await wholeUpTo(clickhouse, worldTables)).toBe(1499);
  await taken([0]);
  expect(await wholeUpTo(clickhouse, worldTables)).toBe(null);
});
