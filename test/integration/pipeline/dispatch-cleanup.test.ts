import { randomUUID } from 'node:crypto';

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import {
  deletePageOfOld,
  deletePageOfWebhook,
  scheduleDeletion,
  scheduleOrphanDeletions,
} from '../../../pipeline/dispatch/deletions.ts';
import { deliveryWorld } from '../../support/delivery-world.ts';
import type { DeliveryWorld } from '../../support/delivery-world.ts';
import { until } from '../../support/projection-world.ts';

/** Deletion of deliveries in pages, beside everything else that works on them. */

const DAY_MS = 86_400_000;

let world: DeliveryWorld;
beforeAll(async () => {
  world = await deliveryWorld();
});
afterAll(async () => await world.close());
afterEach(async () => {
  await world.reset();
  expect(world.failures.splice(0)).toEqual([]);
});

/** Stores deliveries with times from `after` + 1 to `after` + `count`; every third is pending, unless all are finished. */
async function fill(webhookId: number, count: number, isFinished = true, after = 0): Promise<void> {
  await world.pool.query(
    `INSERT INTO tds.webhook_deliveries (id, webhook_id, event, body, created_at, status, scheduled_at, due_at)
     SELECT gen_random_uuid(), $1, 'transfer.created', '{}', $4::bigint + n, CASE WHEN at IS NULL THEN 'success' ELSE 'pending' END, at, at
     FROM (SELECT n, CASE WHEN n % 3 = 0 AND NOT $3 THEN n::bigint END AS at FROM generate_series(1, $2::int) AS n) AS made`,
    [webhookId, count, isFinished, after],
  );
}
async function countOf(table: string, webhookId: number): Promise<number> {
  const { rows } = await world.pool.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM tds.${table} WHERE webhook_id = $1`,
    [webhookId],
  );
  return rows[0]?.n ?? 0;
}
const schedule = async (webhookId: number): Promise<void> =>
  await inTransaction(world.pool, async (tx) => await scheduleDeletion(tx, webhookId, 1));

it('carries out tests of other webhooks while the deletion of one waits for a locked delivery', async () => {
  await world.station();
  const [gone, other] = [await world.receiver(), await world.receiver()];
  const { id: deleted } = await world.webhook(gone.url);
  const { id: tested } = await world.webhook(other.url);
  await fill(deleted, 12_001);
  const lock = await world.pool.connect();
  await lock.query('BEGIN');
  await lock.query('SELECT 1 FROM tds.webhook_deliveries WHERE webhook_id = $1 LIMIT 1 FOR UPDATE', [
    deleted,
  ]);
  try {
    await world.command('webhook.delete', { webhook_id: deleted });
    await world.command('webhook.test', { webhook_id: tested, delivery_id: randomUUID() });
    await until(async () => other.received.length === 1);
    await until(async () => (await countOf('webhook_deliveries', deleted)) === 1);
    expect(await countOf('webhook_deletions', deleted)).toBe(1);
  } finally {
    await lock.query('ROLLBACK');
    lock.release();
  }
  await until(async () => (await countOf('webhook_deletions', deleted)) === 0);
  expect(await countOf('webhook_deliveries', deleted)).toBe(0);
  expect(await countOf('webhook_deliveries', tested)).toBe(1);
});

it('never sends what a matcher stores for a webhook that was deleted meanwhile, and deletes it', async () => {
  await world.station();
  const receiver = await world.receiver();
  const { id } = await world.webhook(receiver.url);
  await world.command('webhook.delete', { webhook_id: id });
  await until(async () => (await countOf('webhook_deletions', id)) === 0);
  await world.deliver(id, 3);
  await world.looked();
  world.clock.advance(60_000);
  await until(async () => (await countOf('webhook_deliveries', id)) === 0);
  await until(async () => (await countOf('webhook_endpoints', id)) === 0);
  expect(receiver.received).toEqual([]);
});

it('keeps the deliveries of a webhook that only a later build of the webhooks has', async () => {
  const { id } = await world.webhook('http://127.0.0.2/');
  await world.deliver(id);
  await world.pool.query('CREATE SCHEMA retired; CREATE TABLE retired.webhooks (id bigint)');
  await scheduleOrphanDeletions(world.pool, 'retired', world.clock.wallTime());
  expect([await countOf('webhook_endpoints', id), await countOf('webhook_deletions', id)]).toEqual([1, 0]);
});

/** A pool whose connection fails at its n-th statement, counted from 1. */
function failingPool(n: number): Pool {
  let statements = 0;
  return {
    ...world.pool,
    async connect() {
      const client = await world.pool.connect();
      return {
        isLost: () => client.isLost(),
        release: (destroy) => client.release(destroy),
        async query(statement, values) {
          statements += 1;
          if (statements === n) throw new Error('killed');
          return await client.query(statement, values);
        },
      };
    },
  };
}

it('resumes a deletion that a crash interrupted at any statement, and counts each delivery once', async () => {
  const [id, other] = [71, 72];
  await fill(other, 5);
  let crashes = 0;
  for (let n = 1; ; n += 1) {
    await fill(id, 25, false);
    await schedule(id);
    const pool = failingPool(n);
    const deleteAll = async (through: Pool): Promise<number> => {
      for (;;) {
        const progress = await deletePageOfWebhook(through, 10);
        if (progress === null || progress.isDone) return progress?.deleted ?? 0;
      }
    };
    const deleted = await deleteAll(pool).catch(async () => {
      crashes += 1;
      return await deleteAll(world.pool);
    });
    expect(deleted).toBe(25);
    expect([await countOf('webhook_deliveries', id), await countOf('webhook_deletions', id)]).toEqual([0, 0]);
    if (crashes < n) break;
  }
  expect(crashes).toBeGreaterThan(15);
  expect(await countOf('webhook_deliveries', other)).toBe(5);
});

it('deletes a short history before the rest of a long one', async () => {
  const [long, short] = [71, 72];
  await fill(long, 25);
  await fill(short, 5);
  await schedule(long);
  await deletePageOfWebhook(world.pool, 10);
  await schedule(short);
  expect(await deletePageOfWebhook(world.pool, 10)).toMatchObject({ webhookId: short, isDone: true });
  expect(await deletePageOfWebhook(world.pool, 10)).toMatchObject({ webhookId: long, deleted: 20 });
});

it('deletes the oldest deliveries that have no attempt left first, and no others', async () => {
  await fill(71, 30, false);
  const before = 22;
  expect(await deletePageOfOld(world.pool, { now: before, maxAgeMs: 0 }, 10)).toBe(10);
  const left = async (): Promise<number[]> =>
    (
      await world.pool.query<{ at: number }>(
        'SELECT created_at AS at FROM tds.webhook_deliveries WHERE due_at IS NULL ORDER BY created_at',
      )
    ).rows.map(({ at }) => at);
  expect(await left()).toEqual([16, 17, 19, 20, 22, 23, 25, 26, 28, 29]);
  expect(await deletePageOfOld(world.pool, { now: before, maxAgeMs: 0 }, 10)).toBe(4);
  expect(await left()).toEqual([22, 23, 25, 26, 28, 29]);
  expect(await countOf('webhook_deliveries', 71)).toBe(6 + 10);
});

it('deletes nothing too early on a host whose clock is ahead', async () => {
  await fill(71, 10, false);
  await world.pool.query('UPDATE tds.webhook_deliveries SET created_at = $1', [Date.now()]);
  const aDayAhead = Date.now() + DAY_MS;
  expect(await deletePageOfOld(world.pool, { now: aDayAhead, maxAgeMs: DAY_MS / 2 }, 10)).toBe(0);
  expect(await countOf('webhook_deliveries', 71)).toBe(10);
});

it('deletes old deliveries in the background, those with an attempt left excepted', async () => {
  await world.station();
  const receiver = await world.receiver();
  const { id } = await world.webhook(receiver.url);
  await world.command('webhook.update', { webhook_id: id, status: 'paused' });
  const [waiting = ''] = await world.deliver(id);
  await world.looked();
  await fill(id, 10);
  world.clock.advance(31 * DAY_MS);
  await until(async () => (await countOf('webhook_deliveries', id)) === 1);
  expect((await world.delivery(id, waiting)).status).toBe('pending');
});

/** Rows that a statement's scans of deliveries have read, and the names of the plan's nodes. */
async function readBy(
  settings: string,
  text: string,
  params: readonly unknown[],
): Promise<{ rows: number; scans: string[] }> {
  interface Node {
    readonly 'Node Type': string;
    readonly 'Actual Rows': number;
    readonly 'Actual Loops': number;
    readonly 'Rows Removed by Filter'?: number;
    readonly Plans?: readonly Node[];
  }
  const { rows } = await inTransaction(world.pool, async (tx) => {
    await tx.query(settings);
    return await tx.query<{ 'QUERY PLAN': [{ Plan: Node }] }>(
      `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`,
      params,
    );
  });
  const flat = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(flat)];
  const nodes = flat((rows[0] as { 'QUERY PLAN': [{ Plan: Node }] })['QUERY PLAN'][0].Plan);
  const scans = nodes.filter(({ 'Node Type': type }) => type.includes('Scan'));
  return {
    scans: scans.map(({ 'Node Type': type }) => type),
    rows: scans.reduce(
      (sum, one) => sum + (one['Actual Rows'] + (one['Rows Removed by Filter'] ?? 0)) * one['Actual Loops'],
      0,
    ),
  };
}

it('reads a page and no more of 200,000 deliveries, whether the planner has statistics or not', async () => {
  await fill(71, 180_000, false);
  await fill(72, 20_000, false);
  const statements: [string, unknown[]][] = [];
  let settings = '';
  const recording: Pool = {
    ...world.pool,
    async connect() {
      const client = await world.pool.connect();
      return {
        isLost: () => client.isLost(),
        release: (destroy) => client.release(destroy),
        async query(statement, values) {
          const text = typeof statement === 'string' ? statement : statement.text;
          if (text.startsWith('SET LOCAL')) settings = text;
          if (text.includes('webhook_deliveries')) statements.push([text, [...(values ?? [])]]);
          return await client.query(statement, values);
        },
      };
    },
  };
  await schedule(71);
  await deletePageOfWebhook(recording, 100);
  await deletePageOfOld(recording, { now: 100_000, maxAgeMs: 0 }, 100);
  expect(statements).toHaveLength(3);
  for (const isAnalyzed of [false, true]) {
    if (isAnalyzed) await world.pool.query('ANALYZE tds.webhook_deliveries');
    for (const [text, params] of statements) {
      const { rows, scans } = await readBy(settings, text, params);
      expect(scans, text).not.toContain('Seq Scan');
      expect(rows, text).toBeLessThanOrEqual(500);
    }
  }
});

describe('the quota', () => {
  const LIMITS = { perWebhook: 100, perUser: 160 };
  const URL = 'http://127.0.0.2/';
  /** A day before the test's clock. */
  const before = (): number => world.clock.now() - DAY_MS;
  const timesOf = async (webhookId: number): Promise<number[]> => {
    const { rows } = await world.pool.query<{ at: number }>(
      'SELECT created_at - $2::bigint AS at FROM tds.webhook_deliveries WHERE webhook_id = $1 ORDER BY created_at',
      [webhookId, before()],
    );
    return rows.map(({ at }) => at);
  };
  const newest = (count: number, of: number): number[] =>
    Array.from({ length: count }, (_, i) => of - count + 1 + i);
  /** A webhook whose endpoint has nothing due. */
  const webhookOf = async (owner: number): Promise<number> => {
    const { id } = await world.webhook(URL, owner);
    await world.pool.query('INSERT INTO tds.webhook_endpoints (webhook_id, activation) VALUES ($1, 1)', [id]);
    return id;
  };

  it('keeps the newest deliveries of a webhook, and does not touch those of another one', async () => {
    const [full, other] = [await webhookOf(101), await webhookOf(102)];
    await fill(full, 12_100, true, before());
    await fill(other, LIMITS.perWebhook, true, before());
    await world.station({}, LIMITS);
    await until(async () => (await countOf('webhook_deliveries', full)) <= LIMITS.perWebhook);
    await world.looked();
    expect(await timesOf(full)).toEqual(newest(LIMITS.perWebhook, 12_100));
    expect(await countOf('webhook_deliveries', other)).toBe(LIMITS.perWebhook);
  });

  it('of a user is shared by the webhooks of that user', async () => {
    const [one, another] = [await webhookOf(103), await webhookOf(103)];
    for (const id of [one, another]) await fill(id, 90, true, before());
    await world.station({}, LIMITS);
    for (const id of [one, another]) {
      await until(async () => (await countOf('webhook_deliveries', id)) <= 80);
      expect(await timesOf(id)).toEqual(newest(80, 90));
    }
  });

  it('deletes neither what waits for an attempt nor what was stored within the hour, and then disables', async () => {
    const id = await webhookOf(104);
    await fill(id, 330, false, before());
    const recent = 150;
    await world.pool.query(
      `INSERT INTO tds.webhook_deliveries (id, webhook_id, event, body, created_at, status)
       SELECT gen_random_uuid(), $1, 'transfer.created', '{}', $2::bigint - n, 'success' FROM generate_series(1, $3::int) AS n`,
      [id, world.clock.now(), recent],
    );
    await world.station({}, LIMITS);
    const stateOf = async () => {
      const { rows } = await world.pool.query<{ status: string; disabled_reason: string | null }>(
        `SELECT status, disabled_reason FROM ${world.schema}.webhooks WHERE id = $1`,
        [id],
      );
      return rows[0];
    };
    await until(async () => (await stateOf())?.status !== 'active');
    expect(await stateOf()).toEqual({
      status: 'disabled',
      disabled_reason: 'More than 100 deliveries are waiting.',
    });
    const waiting = Array.from({ length: 110 }, (_, i) => 3 * (i + 1));
    const kept = (await timesOf(id)).filter((at) => at <= 330);
    expect(kept).toEqual(waiting);
    expect(await countOf('webhook_deliveries', id)).toBe(waiting.length + recent);
  });
});
