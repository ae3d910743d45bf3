import { afterAll, beforeAll, expect, test } from 'vitest';

import { sleep } from '../../../infra/lifecycle.ts';
import { createAlarms } from '../../../infra/health/alarms.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { repairsLeft } from '../../../infra/health/service-health.ts';
import { createCommitmentStore } from '../../../pipeline/ingest/store/commitments.ts';
import { requestRepairs, waitForRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import type { IngestStore } from '../../../pipeline/ingest/ports.ts';
import { makeBlock } from '../../support/chain-messages.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

let pool: Pool;
let store: IngestStore;

beforeAll(async () => {
  pool = await isolatedPool();
  store = createIngestStore(pool);
  await store.createChunks([{ name: 'live', start: 0, end: null, finalHash: null }]);
});
afterAll(() => pool.end());

const ofAll = { start: 0, end: null };

async function acquire(holder: string) {
  const request = { name: 'live', holder, ttlMs: 1, nowMs: Date.now(), reserve: 10 };
  for (;;) {
    const grant = await store.acquire(request);
    if (grant !== null) return { name: 'live', epoch: grant.epoch };
  }
}

test('a postponed repair is due after growing delays, and at once when requested again', async () => {
  const fence = await acquire('one');
  await requestRepairs(pool, [7, 8], 'test', { replacesOrphan: true });
  const [first, second] = await store.pendingRepairs(ofAll, 10);
  if (first === undefined || second === undefined) throw new Error('expected two due repairs');
  const delays: number[] = [];
  for (let tries = 0; tries < 9; tries += 1) {
    await store.postponeRepair(fence, first);
    const { rows } = await pool.query<{ delay: number }>(
      'SELECT round(extract(epoch FROM next_try_at - now()))::integer AS delay FROM tds.repairs WHERE height = 7',
    );
    delays.push(rows[0]?.delay ?? 0);
  }
  // Time passes between the two statements.
  expect(delays[0]).toBeLessThanOrEqual(2);
  expect(delays.at(-1)).toBeGreaterThan(60);
  expect(delays.at(-1)).toBeLessThanOrEqual(120);
  expect(await store.pendingRepairs(ofAll, 10)).toEqual([second]);

  await requestRepairs(pool, [7], 'test');
  const due = await store.pendingRepairs(ofAll, 10);
  expect(due.map(({ height }) => height)).toEqual([8, 7]);
  expect(due[1]).toMatchObject({ replacesOrphan: true });
  // A repair read before the new request is not postponed.
  await store.postponeRepair(fence, first);
  expect(await store.pendingRepairs(ofAll, 10)).toEqual(due);
});

test('bodies that a repair may publish are stored with the block, each once, until it is done', async () => {
  const fence = await acquire('one');
  const bodyOf = (timestamp: number) => ({ ...makeBlock({ height: 30, transactions: [] }), timestamp });
  const [old, read, newest] = [bodyOf(1), bodyOf(2), bodyOf(3)];
  const facts = {};
  const recorded = async () => await store.recordedBlocks('live', 30, 30);
  await store.record(fence, [{ body: old, maps: [facts] }]);
  expect(await recorded()).toEqual([{ body: old, maps: [facts], rereads: [] }]);
  await requestRepairs(pool, [30], 'test', { reread: true });
  const repair = (await store.pendingRepairs({ start: 30, end: 30 }, 1))[0];
  if (repair === undefined) throw new Error('expected a due repair');

  await store.planRepair(fence, repair, facts);
  for (const body of [read, newest, read, old]) await store.planRepair(fence, repair, facts, body);
  expect(await recorded()).toMatchObject([{ body: old, rereads: [read, newest] }]);
  const former = { ...fence, epoch: fence.epoch - 1 };
  await expect(store.planRepair(former, repair, facts, bodyOf(4))).rejects.toMatchObject({
    code: 'LEASE_LOST',
  });
  expect(await recorded()).toMatchObject([{ body: old, rereads: [read, newest] }]);

  await store.finishRepair(fence, repair, facts, newest);
  expect(await recorded()).toEqual([{ body: newest, maps: [facts], rereads: [] }]);
});

test('a holder whose write PostgreSQL has lost in a fail-over loses its lease', async () => {
  const fence = await acquire('one');
  await store.plan(fence, { to: 5, facts: {} });
  await pool.query('CREATE TABLE replica AS SELECT * FROM tds.chunks');
  await store.plan(fence, { to: 6, facts: {} });
  await pool.query(
    'UPDATE tds.chunks SET (plan_to, revision) = (SELECT plan_to, revision FROM replica WHERE replica.name = chunks.name)',
  );
  for (const write of [
    () => store.chunk(fence),
    () => store.renew(fence, 1000),
    () => store.markForRevert(fence, 0),
    () => store.record(fence, [{ body: makeBlock({ height: 50, transactions: [] }), maps: [{}] }]),
  ])
    await expect(write()).rejects.toMatchObject({ code: 'LEASE_LOST' });
  expect(await store.recordedBlocks('live', 50, 50)).toEqual([]);

  // A write that nothing was lost of is accepted, and no epoch is granted twice.
  const next = await acquire('two');
  expect(next.epoch).toBeGreaterThan(fence.epoch);
  await store.renew(next, 1000);
  expect(await store.chunk(next)).toMatchObject({ plan: { to: 5 } });
  await pool.query('UPDATE tds.chunks SET epoch = 0, holder = NULL');
  expect((await acquire('three')).epoch).toBeGreaterThan(next.epoch);
});

test('chunks show the lease that lasts, which every renewal moves', async () => {
  const leaseOf = async () => (await store.chunks())[0]?.lease;
  const fence = await acquire('one');
  await store.renew(fence, 60_000);
  const first = await leaseOf();
  await sleep(2);
  await store.renew(fence, 60_000);
  const renewed = await leaseOf();
  expect([first?.holder, renewed?.holder]).toEqual(['one', 'one']);
  expect(renewed?.until).toBeGreaterThan(first?.until ?? Infinity);
  await store.renew(fence, 1);
  await sleep(5);
  expect(await leaseOf()).toBeNull();
  await store.release(fence);
  expect(await leaseOf()).toBeNull();
});

test('an alarm is raised and cleared only by the lease holder', async () => {
  const alarms = async () => (await pool.query('SELECT name, detail FROM tds.alarms')).rows;
  const former = await acquire('one');
  const fence = await acquire('two');
  await store.raiseAlarm('ingest.stalled:live', 'by a former holder', former);
  expect(await alarms()).toEqual([]);

  await store.raiseAlarm('ingest.stalled:live', 'by the holder', fence);
  await store.raiseAlarm('ingest.stalled:live', 'by a former holder', former);
  expect(await alarms()).toEqual([{ name: 'ingest.stalled:live', detail: 'by the holder' }]);
  await store.raiseAlarm('ingest.stalled:live', 'by the holder, again', fence);
  await store.raiseAlarm('ingest.stalled:start', 'without a lease');
  expect(await alarms()).toHaveLength(2);
  await store.clearAlarms(['ingest.stalled:start']);
  await store.clearAlarms(['ingest.stalled:live'], former);
  expect(await alarms()).toEqual([{ name: 'ingest.stalled:live', detail: 'by the holder, again' }]);
  await store.raiseAlarm('contract.unclassified:0x1', 'no answer');
  await store.clearAlarms(['ingest.stalled:live'], fence);
  expect(await alarms()).toEqual([{ name: 'contract.unclassified:0x1', detail: 'no answer' }]);
  await store.clearAlarms(['contract.unclassified:'], fence);
  expect(await alarms()).toEqual([]);
});

test('an alarm is stored whatever the characters of its detail', async () => {
  const details = async () => (await pool.query('SELECT detail FROM tds.alarms ORDER BY name')).rows;
  await store.raiseAlarm('ingest.failing:start', 'a\0b');
  await createAlarms(pool).raise('tokens.list', 'c\0\ud800');
  expect(await details()).toEqual([{ detail: 'a\u2400b' }, { detail: 'c\u2400\ufffd' }]);
  await store.clearAlarms(['ingest.failing:start', 'tokens.list']);
});

test('repairsLeft counts pending repairs', async () => {
  await pool.query('UPDATE tds.repairs SET done_at = now()');
  expect(await repairsLeft(pool)).toEqual({ pending: 0, oldest: null });
  await requestRepairs(pool, [20, 21, 22], 'test');
  await pool.query("UPDATE tds.repairs SET requested_at = '2024-05-01T00:00:00Z' WHERE height = 21");
  expect(await repairsLeft(pool)).toEqual({ pending: 3, oldest: new Date('2024-05-01T00:00:00Z') });
});

test('waits for repairs, and says how many are left where they take too long', async () => {
  const heights = [41, 42, 43];
  const within = { withinMs: 0, signal: new AbortController().signal };
  await requestRepairs(pool, heights, 'test');
  await pool.query('UPDATE tds.repairs SET done_at = now() WHERE height = 42');
  expect(await waitForRepairs(pool, heights, within)).toBe(2);
  await pool.query('UPDATE tds.repairs SET done_at = now()');
  expect(await waitForRepairs(pool, heights, within)).toBe(0);
});

test('finished chunks to repair have a due repair in their range', async () => {
  await pool.query('UPDATE tds.repairs SET done_at = now(); UPDATE tds.chunks SET range_start = 300');
  const chunks = [0, 100, 200].map((start) => ({
    name: `from-${start}`,
    start,
    end: start + 99,
    finalHash: null,
  }));
  await store.createChunks(chunks);
  await pool.query("UPDATE tds.chunks SET status = 'finished' WHERE name IN ('from-0', 'from-200')");
  await requestRepairs(pool, [100, 300], 'test');
  expect(await store.finishedChunksToRepair()).toEqual([]);
  await requestRepairs(pool, [99], 'test');
  expect(await store.finishedChunksToRepair()).toEqual(['from-0']);
  await pool.query("UPDATE tds.repairs SET next_try_at = now() + interval '1 hour' WHERE height = 99");
  expect(await store.finishedChunksToRepair()).toEqual([]);
});

test('adds up counts of comparisons, and lists the versions of verified blocks', async () => {
  const counts = createCommitmentStore(pool);
  expect(await counts.verifiedVersions('block_hash')).toEqual([]);
  expect(await counts.lowest()).toBeNull();
  const count = {
    commitment: 'block_hash',
    version: '0.14.1',
    outcome: 'verified',
    blocks: 2,
    from: 5,
    to: 9,
  } as const;
  await counts.add([
    count,
    { ...count, version: '0.13.4' },
    { ...count, version: '0.15.0', outcome: 'mismatched', from: 1 },
  ]);
  await createCommitmentStore(pool).add([
    { ...count, from: 3, to: 4 },
    { ...count, commitment: 'receipts' },
  ]);
  expect(await counts.verifiedVersions('block_hash')).toEqual(['0.13.4', '0.14.1']);
  expect(await counts.verifiedVersions('receipts')).toEqual(['0.14.1']);
  expect(await counts.versions()).toEqual(['0.13.4', '0.14.1', '0.15.0']);
  expect(await counts.lowest()).toBe(3);
  const { rows } = await pool.query(
    `SELECT blocks, from_height, to_height FROM tds.commitment_checks
      WHERE commitment = 'block_hash' AND starknet_version = '0.14.1' AND outcome = 'verified'`,
  );
  expect(rows.map((row) => Object.values(row).map(Number))).toEqual([[4, 3, 9]]);

  // Few blocks show it, and these were reverted.
  await counts.add([{ ...count, blocks: 12 }]);
  expect(await counts.forget(6)).toEqual([]);
  expect(await counts.forget(5)).toEqual([
    { commitment: 'block_hash', version: '0.13.4' },
    { commitment: 'receipts', version: '0.14.1' },
  ]);
  expect(await counts.verifiedVersions('block_hash')).toEqual(['0.14.1']);
  expect(await counts.forget(0)).toEqual([]);
});
