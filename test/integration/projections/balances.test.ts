import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { chainReads } from '../../../projections/balances/queries.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { withNames } from '../../../projections/define.ts';
import type { PostgresProjection } from '../../../projections/define.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import { unmovedBalances } from '../../../projections/unmoved-balances/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { balancesMessage } from '../../../schemas/messages/balances.ts';
import type { BalancesMessage } from '../../../schemas/messages/balances.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

/** What is kept of balances that were read from the chain. */

let pool: Pool;
let served: ServedBuilds;
let next = 1;
let account = toFelt(1n);
const token = toFelt(0xc01n);

beforeAll(async () => {
  pool = await isolatedPool();
  await openBuild(pool, null, balances);
  await openBuild(pool, null, unmovedBalances);
  served = await servedBuilds(pool);
});
afterAll(() => pool.end());
beforeEach(() => {
  account = toFelt(BigInt((next += 1)));
});

const hash = (block: number, fork = 0) => toFelt(BigInt(block) * 1000n + BigInt(fork) + 1n);
const message = (block: number, fields: Record<string, unknown> = {}) => ({
  type: 'balance.observed',
  v: 1,
  account,
  token,
  block,
  block_hash: hash(block),
  balance: String(block * 2),
  observed_at: 10_000 + block,
  requested_at: 9000 + block,
  l1_height: null,
  ...fields,
});

async function foldWith(
  projection: PostgresProjection<BalancesMessage>,
  timestamp: number,
  messages: readonly object[],
  partition = 0,
): Promise<void> {
  const meta = { partition, offset: 0, timestamp, schema: served.schema(projection.name) };
  await inTransaction(pool, async (tx) => {
    for (const one of messages) await projection.fold(tx, balancesMessage.parse(one), meta);
  });
}
const fold = async (...messages: readonly object[]): Promise<void> => await foldWith(balances, 0, messages);
/** Folds answers about pairs that nothing moved, which the log took at a time. */
const foldUnmoved = async (timestamp: number, ...messages: readonly object[]): Promise<void> =>
  await foldWith(unmovedBalances, timestamp, messages);
const read = async () => (await chainReads(pool, served, [{ account, token }]))({ account, token });
const blocks = async (): Promise<number[]> => (await read()).anchors.map(({ block }) => block);

test('returns a pair that was never read as empty, and the largest balance exactly', async () => {
  expect(await read()).toEqual({ anchors: [], refusal: null });
  const largest = (1n << 256n) - 1n;
  await fold(message(7, { balance: largest.toString() }));
  expect(await read()).toEqual({
    anchors: [
      { block: 7, hash: hash(7), balance: largest, observedAt: 10_007, requestedAt: 9007, isKept: true },
    ],
    refusal: null,
  });
});

test('keeps reads at both blocks of a height, and of two at one block the later, for the newest request', async () => {
  await fold(
    message(5),
    message(5, { block_hash: hash(5, 1), balance: '77' }),
    message(5, { balance: '11', observed_at: 20_000, requested_at: 1 }),
  );
  const { anchors } = await read();
  expect(new Set(anchors.map(({ balance }) => balance))).toEqual(new Set([11n, 77n]));
  expect(anchors.find(({ balance }) => balance === 11n)).toMatchObject({
    observedAt: 20_000,
    requestedAt: 9005,
  });
});

test('keeps the oldest 4 reads, the newest 32, and the newest 4 that were accepted on L1', async () => {
  const first = Array.from({ length: 10 }, (_, index) => index + 1);
  await fold(...first.map((block) => message(block)));
  expect(await blocks()).toEqual(first.toReversed());
  // 9 and 10 are above the height accepted on L1; one of 40 more is read at every block.
  const more = Array.from({ length: 40 }, (_, index) => message(100 + index, { l1_height: 8 }));
  await fold(...more);
  const newest = (block: number, count: number) => Array.from({ length: count }, (_, index) => block - index);
  expect(await blocks()).toEqual([...newest(139, 32), 8, 7, 6, 5, 4, 3, 2, 1]);
  await fold(message(140, { l1_height: 110 }));
  // 140 to 109 are the newest 32; 110, 109, 108 and 8 the newest accepted on L1 of those that were left.
  expect(await blocks()).toEqual([...newest(140, 33), 8, 4, 3, 2, 1]);
});

test('marks a contract that gives no balance until it gives one', async () => {
  await fold(message(3, { type: 'balance.refused', reason: 'no entry point\0', balance: undefined }));
  expect((await read()).refusal).toEqual({
    reason: 'no entry point\u2400',
    refusedAt: 10_003,
    requestedAt: 9003,
  });
  await fold(message(4));
  expect((await read()).refusal).toBe(null);
});

const DAY = 86_400_000;
const zero = (block: number) => message(block, { balance: '0' });
const refused = (block: number) =>
  message(block, { type: 'balance.refused', reason: 'no entry point', balance: undefined });

test('keeps the last answer about a pair that nothing moved for a day of the log', async () => {
  const unmoved = account;
  await foldUnmoved(DAY, zero(7));
  expect(await blocks()).toEqual([7]);
  await foldUnmoved(DAY + 1, zero(8));
  expect(await blocks()).toEqual([8]);
  account = toFelt(0xb0bn);
  await foldUnmoved(2 * DAY + 1, zero(9));
  account = unmoved;
  expect(await blocks()).toEqual([8]);
  account = toFelt(0xb0bn);
  await foldUnmoved(2 * DAY + 2, zero(10));
  account = unmoved;
  expect(await read()).toEqual({ anchors: [], refusal: null });
});

test('keeps an answer until a message of its own partition, in whatever order the partitions are read', async () => {
  const unmoved = account;
  await foldUnmoved(3 * DAY, zero(7));
  account = toFelt(0xb0cn);
  await foldWith(unmovedBalances, 5 * DAY, [zero(8)], 1);
  expect(await blocks()).toEqual([8]);
  account = unmoved;
  expect(await blocks()).toEqual([7]);
});

test('copies answers of version 1, which any partition deletes', async () => {
  const schema = served.schema('unmoved-balances');
  await foldUnmoved(6 * DAY, zero(7));
  await pool.query(
    `CREATE SCHEMA previous; CREATE TABLE previous.answers AS TABLE ${schema}.answers;
     ALTER TABLE previous.answers DROP COLUMN partition; DELETE FROM ${schema}.answers`,
  );
  const names = { schema, previous_schema: 'previous' };
  await pool.query(withNames(unmovedBalances.carryOver ?? '', names));
  expect(await blocks()).toEqual([7]);
  const copied = account;
  account = toFelt(0xb0dn);
  await foldWith(unmovedBalances, 8 * DAY, [zero(8)], 2);
  account = copied;
  expect(await blocks()).toEqual([]);
});

test('an answer folded again does not replace a later one', async () => {
  await foldUnmoved(10, zero(8));
  await foldUnmoved(9, zero(7));
  expect(await blocks()).toEqual([8]);
});

test('of a balance and a refusal the later answer counts, wherever they are kept', async () => {
  await foldUnmoved(10, refused(3));
  expect((await read()).refusal).toMatchObject({ refusedAt: 10_003, reason: 'no entry point' });
  await fold(message(4));
  expect(await read()).toMatchObject({ refusal: null, anchors: [{ block: 4 }] });
  await foldUnmoved(11, refused(5));
  expect(await read()).toMatchObject({ refusal: { refusedAt: 10_005 }, anchors: [{ block: 4 }] });
  await foldUnmoved(12, zero(6));
  expect(await read()).toMatchObject({ refusal: null, anchors: [{ block: 6 }, { block: 4 }] });
});
