import { randomUUID } from 'node:crypto';

import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import {
  deletePageOfWebhook,
  scheduleDeletion,
  scheduleOrphanDeletions,
} from '../../../pipeline/dispatch/deletions.ts';
import { insertDeliveries, retryDelivery } from '../../../pipeline/dispatch/deliveries.ts';
import {
  activateEndpoints,
  activatedWebhooks,
  endpointsOfReenabledOwners,
  reenableEndpointsOfOwners,
  webhooksToDisable,
} from '../../../pipeline/dispatch/endpoints.ts';
import { claimDeliveries, releaseClaims } from '../../../pipeline/dispatch/send/claims.ts';
import type { DeliveryClaim } from '../../../pipeline/dispatch/send/claims.ts';
import { storeOutcomes } from '../../../pipeline/dispatch/send/outcomes.ts';
import { afterAttempt } from '../../../pipeline/dispatch/send/schedule.ts';
import { withNames } from '../../../projections/define.ts';
import { webhooks } from '../../../projections/webhooks/projector.ts';
import { interleaving } from '../../support/interleaving.ts';
import { projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { createRandom } from '../../support/random.ts';
import type { Random } from '../../support/random.ts';

/**
 * Everyone who touches the deliveries, side by side, in orders drawn by chance at every statement: matchers, senders that
 * die, what users ask for, the upkeep. Whatever the order, nothing that is due is forgotten, and nobody has what is another's.
 */

const SCHEMA = 'model';
const LEASE_MS = 1000;
const DEAD_LIMIT = 2;
const delaysMs = [100];
/** In any order, what is due of what may be sent to this webhook now. */
const DUE = `d.due_at IS NOT NULL AND (
  w.status = 'active' AND (e.activation <> w.activation OR e.consecutive_dead < ${DEAD_LIMIT})
  OR d.manual_at IS NOT NULL OR (d.is_test AND d.attempts = 0))`;

let world: ProjectionWorld;
beforeAll(async () => {
  world = await projectionWorld();
  await world.pool.query(`CREATE SCHEMA ${SCHEMA}`);
  await world.pool.query(withNames(webhooks.ddl, { schema: SCHEMA }));
  await world.pool.query("UPDATE tds.served SET schemas = jsonb_build_object('webhooks', $1::text)", [
    SCHEMA,
  ]);
});
afterAll(async () => await world.close());
beforeEach(async () => {
  await world.pool.query(
    `TRUNCATE ${SCHEMA}.webhooks, ${SCHEMA}.disabled_owners, tds.webhook_deliveries, tds.webhook_endpoints, tds.webhook_deletions CASCADE`,
  );
});

/** One that sends: its lease, and what it has. */
interface Process {
  lease: string;
  claims: { readonly claim: DeliveryClaim; readonly until: number }[];
}

interface Model {
  readonly random: Random;
  now: number;
  nextId: number;
  readonly webhooks: number[];
  readonly processes: Process[];
  /** Deliveries as they were last seen. */
  seen: ReadonlyMap<string, { readonly status: string; readonly attempts: number }>;
  /** Claims that were cut off from their process: someone may still try to end them. */
  readonly late: DeliveryClaim[];
}

async function addWebhook(model: Model): Promise<void> {
  const id = (model.nextId += 1);
  await world.pool.query(
    `INSERT INTO ${SCHEMA}.webhooks (id, user_id, name, url, events, status, created_at, updated_at, activation, secret, from_block)
     VALUES ($1, $1, 'mine', 'http://127.0.0.2/', '{transfer.created}', 'active', 0, 0, $1, 'sealed', -1)`,
    [id],
  );
  model.webhooks.push(id);
}

async function storm(seed: number, rounds: number): Promise<void> {
  const random = createRandom(seed);
  const model: Model = {
    random,
    now: 1000,
    nextId: 0,
    webhooks: [],
    late: [],
    seen: new Map(),
    processes: [0, 1].map(() => ({ lease: randomUUID(), claims: [] })),
  };
  for (let i = 0; i < 3; i += 1) await addWebhook(model);
  const between = interleaving(world.pool, random);
  for (let round = 0; round < rounds; round += 1) {
    if (random.chance(400)) model.now += random.pick([1, 110, LEASE_MS, LEASE_MS]);
    const free = new Set(model.processes);
    const work = Array.from({ length: 2 + random.below(4) }, () => draw(model, between.pool, free));
    await between.run(work);
    while (model.webhooks.length < 3) await addWebhook(model);
    expect(
      [...(await breaches()), ...(await taken(model)), ...(await undone(model))],
      `seed ${seed}, round ${round}`,
    ).toEqual([]);
  }
  await drain(model, seed);
}

/** What someone does next. A process does one thing at a time. */
function draw(model: Model, pool: typeof world.pool, free: Set<Process>): () => Promise<unknown> {
  const { random, now } = model;
  const webhookId = random.pick(model.webhooks);
  const process = random.pick(model.processes);
  const isFree = free.has(process);
  const kind = random.below(isFree ? 12 : 7);
  const status = random.pick(['active', 'active', 'paused']);
  if (kind >= 7) free.delete(process);
  switch (kind) {
    case 0:
    case 1:
      return async () => {
        const made = Array.from({ length: 1 + random.below(3) }, () => ({
          id: randomUUID(),
          webhookId: random.chance(700) ? webhookId : random.pick(model.webhooks),
          event: 'transfer.created',
          body: '{}',
          createdAt: now - random.below(50),
          isTest: random.chance(150),
        }));
        await inTransaction(pool, async (tx) => await insertDeliveries(tx, made));
      };
    case 2:
    case 3:
      return async () => {
        const { rows } = await world.pool.query<{ id: string; webhook_id: number }>(
          `SELECT id, webhook_id FROM tds.webhook_deliveries WHERE status <> 'success' ORDER BY created_at, id`,
        );
        if (rows.length === 0) return;
        const { id, webhook_id } = random.pick(rows);
        await inTransaction(
          pool,
          async (tx) => await retryDelivery(tx, { webhookId: webhook_id, id, at: now }),
        );
      };
    case 4:
      return async () => {
        const activation = status === 'active' ? (model.nextId += 1) : null;
        await pool.query(
          `UPDATE ${SCHEMA}.webhooks SET status = $2, activation = coalesce($3, activation) WHERE id = $1`,
          [webhookId, status, activation],
        );
      };
    case 5:
      if (random.chance(500))
        return async () =>
          void (await pool.query(
            random.chance(500)
              ? `INSERT INTO ${SCHEMA}.disabled_owners (user_id) VALUES ($1) ON CONFLICT DO NOTHING`
              : `DELETE FROM ${SCHEMA}.disabled_owners WHERE user_id = $1`,
            [webhookId],
          ));
      return async () => {
        await activateEndpoints(pool, await activatedWebhooks(pool, SCHEMA));
        await reenableEndpointsOfOwners(pool, await endpointsOfReenabledOwners(pool, SCHEMA));
        for (const { id, activation } of await webhooksToDisable(pool, SCHEMA, DEAD_LIMIT)) {
          await pool.query(
            `UPDATE ${SCHEMA}.webhooks SET status = 'disabled' WHERE id = $1 AND activation = $2 AND status = 'active'`,
            [id, activation],
          );
        }
      };
    case 6:
      return async () => {
        // Late enough that others had it meanwhile.
        if (!random.chance(100))
          return await end(model, pool, model.late.splice(0, Math.max(0, model.late.length - 3)));
        const at = model.webhooks.indexOf(webhookId);
        if (at !== -1) model.webhooks.splice(at, 1);
        await pool.query(`DELETE FROM ${SCHEMA}.webhooks WHERE id = $1`, [webhookId]);
        await inTransaction(pool, async (tx) => await scheduleDeletion(tx, webhookId, now));
        await deletePageOfWebhook(pool, 2);
      };
    case 7:
    case 8:
      return async () => await claim(model, pool, process);
    case 9:
    case 10:
      return async () => {
        const count = random.below(process.claims.length + 1);
        const ending = process.claims.slice(0, count).map((held) => held.claim);
        await end(model, pool, ending);
        process.claims.splice(0, count);
      };
    default:
      return async () => {
        const claims = process.claims.splice(0).map((held) => held.claim);
        if (random.chance(300)) return await releaseClaims(pool, claims);
        // It dies; another is started in its place.
        process.lease = randomUUID();
        model.late.push(...claims);
      };
  }
}

async function claim(model: Model, pool: typeof world.pool, process: Process): Promise<void> {
  const { random, now } = model;
  const perEndpoint = new Map(
    model.webhooks.filter(() => random.chance(500)).map((id) => [id, random.below(3)] as const),
  );
  const claims = await claimDeliveries(pool, {
    schema: SCHEMA,
    now,
    lease: process.lease,
    leaseMs: LEASE_MS,
    limit: 1 + random.below(4),
    perEndpoint,
    perOtherEndpoint: random.below(3),
    deadLimit: DEAD_LIMIT,
    inFlight: process.claims.map(({ claim: { id } }) => id),
  });
  for (const one of claims) {
    const isTaken = model.processes.some((other) =>
      other.claims.some(({ claim: { id }, until }) => id === one.id && (other === process || until > now)),
    );
    expect(isTaken, `${one.id} is claimed twice`).toBe(false);
    process.claims.push({ claim: one, until: now + LEASE_MS });
  }
}

async function end(model: Model, pool: typeof world.pool, claims: readonly DeliveryClaim[]): Promise<void> {
  const { random, now } = model;
  await storeOutcomes(
    pool,
    claims.map((one) => {
      const isSuccess = random.chance(400);
      const { isManual } = one;
      const next = afterAttempt(one, { isSuccess, isManual, at: now }, { delaysMs }, () => 0);
      const error = isSuccess ? null : 'answered 500';
      return {
        claim: one,
        next,
        startedAt: now,
        durationMs: 1,
        responseCode: 500,
        responseBody: null,
        error,
      };
    }),
  );
}

/** What must never be seen while nobody is in a transaction. */
async function breaches(): Promise<unknown[]> {
  const { rows } = await world.pool.query(
    `SELECT 'forgotten' AS what, d.id, d.due_at, e.due_at AS looked_at
     FROM tds.webhook_deliveries d JOIN ${SCHEMA}.webhooks w ON w.id = d.webhook_id
     LEFT JOIN tds.webhook_endpoints e ON e.webhook_id = d.webhook_id
     WHERE ${DUE} AND NOT coalesce(e.due_at <= d.due_at, false)
       -- the upkeep is about to look
       AND NOT (w.status = 'active' AND e.activation < w.activation) AND NOT e.owner_disabled
     UNION ALL
     SELECT 'not due when it says', id, due_at, least(scheduled_at, manual_at) FROM tds.webhook_deliveries
     WHERE lease IS NULL AND due_at IS DISTINCT FROM least(scheduled_at, manual_at)
     UNION ALL
     SELECT 'neither done nor scheduled', id, due_at, scheduled_at FROM tds.webhook_deliveries
     WHERE (status IN ('success', 'dead')) <> (scheduled_at IS NULL) OR (status = 'success' AND due_at IS NOT NULL)`,
  );
  return rows;
}

/** Deliveries whose lease someone has, and that are no longer that one's. */
async function taken({ processes, now }: Model): Promise<unknown[]> {
  const claims = processes.flatMap(({ claims: all }) => all.filter(({ until }) => until > now));
  const { rows } = await world.pool.query(
    `SELECT 'taken away' AS what, d.id, d.lease, has.lease AS of
     FROM unnest($1::uuid[], $2::uuid[]) AS has (id, lease) JOIN tds.webhook_deliveries d ON d.id = has.id
     WHERE d.lease IS DISTINCT FROM has.lease`,
    [claims.map(({ claim: { id } }) => id), claims.map(({ claim: { lease } }) => lease)],
  );
  return rows;
}

/** Deliveries that have fewer attempts than before, or are a success no more. */
async function undone(model: Model): Promise<unknown[]> {
  const { rows } = await world.pool.query<{ id: string; status: string; attempts: number }>(
    'SELECT id, status, attempts FROM tds.webhook_deliveries',
  );
  const { seen } = model;
  model.seen = new Map(rows.map((row) => [row.id, row]));
  return rows.flatMap((row) => {
    const before = seen.get(row.id);
    const isUndone =
      before !== undefined &&
      (row.attempts < before.attempts || (before.status === 'success' && row.status !== 'success'));
    return isUndone ? [{ what: 'undone', before, row }] : [];
  });
}

/** Every webhook is active, every process that is left takes what is due, and all of it is taken by its receiver. */
async function drain(model: Model, seed: number): Promise<void> {
  await world.pool.query(`UPDATE ${SCHEMA}.webhooks SET status = 'active', activation = $1`, [
    model.nextId + 1,
  ]);
  await world.pool.query(`DELETE FROM ${SCHEMA}.disabled_owners`);
  await activateEndpoints(world.pool, await activatedWebhooks(world.pool, SCHEMA));
  await reenableEndpointsOfOwners(world.pool, await endpointsOfReenabledOwners(world.pool, SCHEMA));
  model.now += 10 * LEASE_MS;
  for (;;) {
    const claims = await claimDeliveries(world.pool, {
      schema: SCHEMA,
      now: model.now,
      lease: randomUUID(),
      leaseMs: LEASE_MS,
      limit: 100,
      perEndpoint: new Map(),
      perOtherEndpoint: 10,
      deadLimit: DEAD_LIMIT,
      inFlight: [],
    });
    if (claims.length === 0) break;
    await storeOutcomes(
      world.pool,
      claims.map((one) => {
        const attempt = { isSuccess: true, isManual: one.isManual, at: model.now };
        const next = afterAttempt(one, attempt, { delaysMs }, () => 0);
        const answer = { responseCode: 200, responseBody: null, error: null };
        return { claim: one, next, startedAt: model.now, durationMs: 1, ...answer };
      }),
    );
  }
  const { rows } = await world.pool.query(
    `SELECT d.id, d.status FROM tds.webhook_deliveries d JOIN ${SCHEMA}.webhooks w ON w.id = d.webhook_id
     WHERE d.status NOT IN ('success', 'dead')`,
  );
  expect(rows, `seed ${seed}, at the end`).toEqual([]);
  await scheduleOrphanDeletions(world.pool, SCHEMA, model.now);
  while ((await deletePageOfWebhook(world.pool, 2)) !== null);
  const { rows: orphans } = await world.pool.query(
    `SELECT d.id FROM tds.webhook_deliveries d LEFT JOIN ${SCHEMA}.webhooks w ON w.id = d.webhook_id WHERE w.id IS NULL`,
  );
  expect(orphans, `seed ${seed}, of deleted webhooks`).toEqual([]);
}

it.each([1, 2, 3, 4, 5, 6, 7, 8])('leaves no due delivery behind (seed %i)', async (seed) => {
  await storm(seed, 80);
});

it('schedules the deliveries skipped while too many were dead, once one has succeeded', async () => {
  const model = { webhooks: [] as number[], nextId: 0 } as Model;
  await addWebhook(model);
  const [webhookId = 0] = model.webhooks;
  const made = async (createdAt: number): Promise<string> => {
    const id = randomUUID();
    const delivery = { id, webhookId, event: 'transfer.created', body: '{}', createdAt };
    await inTransaction(world.pool, async (tx) => await insertDeliveries(tx, [delivery]));
    return id;
  };
  const attempt = async (now: number, isSuccess: boolean): Promise<string[]> => {
    const claims = await claimDeliveries(world.pool, {
      schema: SCHEMA,
      now,
      lease: randomUUID(),
      leaseMs: LEASE_MS,
      limit: 10,
      perEndpoint: new Map(),
      perOtherEndpoint: 10,
      deadLimit: DEAD_LIMIT,
      inFlight: [],
    });
    await storeOutcomes(
      world.pool,
      claims.map((one) => ({
        claim: one,
        next: afterAttempt(one, { isSuccess, isManual: one.isManual, at: now }, { delaysMs: [] }, () => 0),
        startedAt: now,
        durationMs: 1,
        responseCode: isSuccess ? 200 : 500,
        responseBody: null,
        error: null,
      })),
    );
    return claims.map(({ id }) => id);
  };
  const dead = [await made(1000), await made(1000)];
  expect((await attempt(1000, false)).toSorted()).toEqual(dead.toSorted());
  const passedOver = await made(1100);
  expect(await attempt(1200, false)).toEqual([]);
  const [again = ''] = dead;
  await inTransaction(world.pool, async (tx) => await retryDelivery(tx, { webhookId, id: again, at: 1300 }));
  expect(await attempt(1300, true)).toEqual([again]);
  expect(await breaches()).toEqual([]);
  expect(await attempt(1300, true)).toEqual([passedOver]);
});
