import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { chainProjections } from '../../../projections/index.ts';
import { checkedHeights } from '../../../projections/indexed-blocks/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import { eventCheck } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockBody, ChainBlocksMessage } from '../../../schemas/messages/chain-blocks.ts';
import { accepted, busyBlock, reverted } from '../../support/chain-messages.ts';
import { firstTable, projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** A history with reorgs, projected by the real stores, and compared with the blocks that are left. */

let world: ProjectionWorld;
let seq = 0;
/** The blocks that hold their height now, with the chunk that published them. */
const chain = new Map<number, { message: ChainBlocksMessage; chunk: string }>();

const nextSeq = (): number => (seq += 1);
/** Every outcome occurs, and that of a block differs from that of its fork. */
const withCheck = (block: BlockBody): BlockBody => {
  const outcome = eventCheck.options[(block.height + block.transactions.length) % 5];
  return outcome === undefined ? block : { ...block, event_check: outcome };
};
const accept = (block: BlockBody, chunk: string): ChainBlocksMessage => {
  const message = accepted(withCheck(block), nextSeq(), chunk);
  chain.set(block.height, { message, chunk });
  return message;
};
const revert = (height: number): ChainBlocksMessage => {
  const held = chain.get(height);
  if (held === undefined) throw new Error(`nothing at ${height}`);
  chain.delete(height);
  return reverted(held.message.block, nextSeq(), held.chunk);
};
const heights = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);

/** 1000 to 1059 crosses a border of ranges, and so of partitions; 3000 to 3019 lies elsewhere. */
function history(): ChainBlocksMessage[] {
  const backfill = heights(1000, 1059).map((height) => accept(busyBlock(height, 12), 'backfill-1'));
  const live = heights(3000, 3019).map((height) => accept(busyBlock(height, 12), 'live'));
  const fork = [
    ...heights(3012, 3019).toReversed().map(revert),
    ...heights(3012, 3021).map((height) => accept(busyBlock(height, 9, 1), 'live')),
  ];
  return [...backfill, ...live, ...fork];
}

beforeAll(async () => {
  world = await projectionWorld();
  await world.publish(history());
  await world.catchUp();
});
afterAll(async () => await world.close());

const transfersNow = (): { transfer: Transfer; block: BlockBody; chunk: string }[] =>
  [...chain.values()].flatMap(({ message: { block, contracts }, chunk }) =>
    decodeBlock(block, contracts).transfers.map((transfer) => ({ transfer, block, chunk })),
  );

async function expectCheckedHeights(): Promise<void> {
  const outcomes = [...chain.values()].map(({ message }) => message.block.event_check ?? 'none');
  const { blocks, first, last, ...counts } = await checkedHeights(
    world.clickhouse,
    await servedBuilds(world.pool),
  );
  const indexed = [...chain.keys()];
  expect({ blocks, first, last }).toEqual({
    blocks: outcomes.length,
    first: Math.min(...indexed),
    last: Math.max(...indexed),
  });
  expect(counts.mismatched).toBeGreaterThan(0);
  expect(counts).toEqual(
    Object.fromEntries(
      eventCheck.options.map((outcome) => [outcome, outcomes.filter((one) => one === outcome).length]),
    ),
  );
}

async function expectTablesOfChain(): Promise<void> {
  const all = transfersNow();
  const tokens = Map.groupBy(all, ({ transfer }) => transfer.token);
  const accounts = new Map<string, number>();
  for (const { transfer } of all) {
    for (const account of new Set([transfer.from, transfer.to])) {
      accounts.set(account, (accounts.get(account) ?? 0) + 1);
    }
  }
  const counted = (kind: number): Promise<Record<string, unknown>[]> =>
    world.select(
      `SELECT concat('0x', lower(hex(subject))) AS subject, toUInt32(sum(transfers)) AS n
       FROM {{transfer_counts}} FINAL WHERE subject_kind = ${kind} GROUP BY subject`,
    );
  const asMap = (rows: readonly Record<string, unknown>[]) =>
    new Map(rows.map(({ subject, n }) => [subject, n]));

  expect(await world.select('SELECT toUInt32(count()) AS n FROM {{transfers}} FINAL')).toEqual([
    { n: all.length },
  ]);
  expect(asMap(await counted(1))).toEqual(new Map([...tokens].map(([token, of]) => [token, of.length])));
  expect(asMap(await counted(2))).toEqual(accounts);
  expect(
    await world
      .select(
        `SELECT concat('0x', lower(hex(account))) AS subject, toUInt32(count()) AS n
       FROM {{account_feed}} FINAL GROUP BY account`,
      )
      .then(asMap),
  ).toEqual(accounts);
  // The legs of a token sum to zero.
  expect(
    await world.select('SELECT token FROM {{account_ledger}} FINAL GROUP BY token HAVING sum(delta) != 0'),
  ).toEqual([]);
  // What each account moved of each token in each range, added up from the transfers themselves.
  const moved = new Map<string, { delta: bigint; legs: number }>();
  for (const { transfer, block } of all) {
    if (transfer.kind === 'unknown') continue;
    for (const [account, delta] of [
      [transfer.from, -transfer.amount],
      [transfer.to, transfer.amount],
    ] as const) {
      const pair = [account, transfer.token, Math.floor(block.height / 1024)].join();
      const before = moved.get(pair) ?? { delta: 0n, legs: 0 };
      moved.set(pair, { delta: before.delta + delta, legs: before.legs + 1 });
    }
  }
  expect(
    await world.select(
      `SELECT concat('0x', lower(hex(account)), ',0x', lower(hex(token)), ',', toString(range)) AS pair,
         toString(delta) AS delta, toUInt32(legs) AS legs FROM {{account_ledger_ranges}} FINAL ORDER BY pair`,
    ),
  ).toEqual(
    [...moved]
      .map(([pair, { delta, legs }]) => ({ pair, delta: delta.toString(), legs }))
      .toSorted((a, b) => (a.pair < b.pair ? -1 : 1)),
  );

  const ranges = Map.groupBy(chain.values(), ({ chunk, message }) =>
    [chunk, Math.floor(message.block.height / 1024)].join(),
  );
  const expectedRanges = [...ranges].map(([name, held]) => {
    const blocks = held.map(({ message }) => message.block.height);
    const of = all.filter(({ block, chunk }) => name === [chunk, Math.floor(block.height / 1024)].join());
    return {
      name,
      blocks: blocks.length,
      transfers: of.length,
      ...Object.fromEntries(
        eventCheck.options.map((outcome) => [
          outcome,
          held.filter(({ message }) => message.block.event_check === outcome).length,
        ]),
      ),
      first_block: Math.min(...blocks),
      last_block: Math.max(...blocks),
      latest_transfer_block: Math.max(...of.map(({ block }) => block.height)),
    };
  });
  expect(
    await world.select(
      `SELECT concat(chunk, ',', toString(range)) AS name, blocks, toUInt32(transfers) AS transfers,
         ${eventCheck.options.join(', ')}, first_block,
         last_block, latest_transfer_block FROM {{indexed_block_ranges}} FINAL ORDER BY name`,
    ),
  ).toEqual(expectedRanges.toSorted((a, b) => (a.name < b.name ? -1 : 1)));
  await expectCheckedHeights();
}

const rewind = async (projections: readonly string[], offset = 0): Promise<void> => {
  await world.pool.query(
    'UPDATE tds.checkpoints SET next_offset = least(next_offset, $2) WHERE consumer = ANY ($1)',
    [projections, offset],
  );
};
const names = chainProjections.map(({ name }) => name);

describe('the tables of a chain with reorgs', () => {
  test('hold the rows of the remaining blocks', async () => {
    await expectTablesOfChain();
  });

  test('are the same when the whole log is read again in other batches', async () => {
    const before = await world.checksums();
    await rewind(names);
    await world.catchUp({ limits: { rows: 500, waitMs: 20, gapMs: 0 } });
    expect(await world.checksums()).toEqual(before);
    await rewind(names, 5);
    await world.catchUp({ limits: { rows: 170, waitMs: 20, gapMs: 0 } });
    expect(await world.checksums()).toEqual(before);
  });

  test('a projection whose checkpoint is reset is filled again alone', async () => {
    const before = await world.checksums();
    await world.select('SELECT 1');
    await world.clickhouse.command(`TRUNCATE TABLE ${firstTable('account_feed')}`);
    await rewind(['account-feed']);
    const others = world.metrics.rows;
    const rowsOf = async (name: string): Promise<number> =>
      (await others.get()).values.find(({ labels }) => labels.projection === name)?.value ?? 0;
    const transfersBefore = await rowsOf('transfers');
    await world.catchUp();
    expect(await world.checksums()).toEqual(before);
    expect(await rowsOf('transfers')).toBe(transfersBefore);
  });

  test('a range whose blocks are all reverted disappears from counts and ranges, and returns with new blocks', async () => {
    const before = await world.checksums();
    const taken = heights(3000, 3021).toReversed();
    const blocks = taken.map((height) => chain.get(height)?.message.block);
    await world.publish(taken.map(revert));
    await world.catchUp();
    await expectTablesOfChain();
    expect(await world.select('SELECT 1 AS found FROM {{transfer_counts}} FINAL WHERE range = 2')).toEqual(
      [],
    );
    expect(await world.select('SELECT chunk FROM {{indexed_block_ranges}} FINAL')).toEqual([
      { chunk: 'backfill-1' },
      { chunk: 'backfill-1' },
    ]);

    await world.publish(
      blocks.toReversed().flatMap((block) => (block === undefined ? [] : [accept(block, 'live')])),
    );
    await world.catchUp();
    await expectTablesOfChain();
    const after = await world.checksums();
    expect(after['transfer_counts']).toBe(before['transfer_counts']);
    expect(after['account_ledger_ranges']).toBe(before['account_ledger_ranges']);
    expect(after['indexed_block_ranges']).toBe(before['indexed_block_ranges']);
  });

  test('a block that another chunk publishes again no longer counts for the first chunk', async () => {
    const block = chain.get(1059)?.message.block;
    if (block === undefined) throw new Error('nothing at 1059');
    await world.publish([revert(1059), accept(block, 'repair')]);
    await world.catchUp();
    await expectTablesOfChain();
  });
});

describe('several processes', () => {
  test('share the partitions, hand them over, and end in the same rows', async () => {
    const limits = { rows: 200, waitMs: 20, gapMs: 0 };
    const first = await world.run({ limits });
    await world.publish(heights(5000, 5200).map((height) => accept(busyBlock(height, 5), 'live')));
    const second = await world.run({ limits });
    await world.publish(heights(1060, 1120).map((height) => accept(busyBlock(height, 5), 'backfill-1')));
    await world.publish(heights(5195, 5200).toReversed().map(revert));
    await first.stop();
    await world.publish(heights(5195, 5230).map((height) => accept(busyBlock(height, 5, 2), 'live')));
    await world.settled();
    await second.stop();
    await expectTablesOfChain();
    const once = await world.checksums();
    await rewind(names);
    await world.catchUp();
    expect(await world.checksums()).toEqual(once);
  });

  test('a writer resumes from a checkpoint that another process has moved', async () => {
    const run = await world.run();
    const add = async (first: number, last: number): Promise<void> => {
      await world.publish(heights(first, last).map((height) => accept(busyBlock(height, 5), 'live')));
      await Promise.race([world.settled(), run.done]);
    };
    await add(5231, 5233);
    const { rowCount } = await world.pool.query(
      `UPDATE tds.checkpoints SET next_offset = next_offset - 3
       WHERE consumer IN ('transfers', 'transfer-counts') AND partition = 5 AND next_offset > 3`,
    );
    expect(rowCount).toBe(2);
    await add(5234, 5240);
    await run.stop();
    await expectTablesOfChain();
  });
});
