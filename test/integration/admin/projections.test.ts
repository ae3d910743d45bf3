import { once } from 'node:events';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { abortRebuild } from '../../../infra/bin/operator/rebuild-runs.ts';
import { recordedRebuild } from '../../../infra/bin/operator/recorded-rebuild.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { unavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import type { RebuildReport } from '../../../projections/engine/rebuild/rebuild.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import type { ProjectionsAnswer, RebuildRun } from '../../../schemas/api/admin/projections.ts';
import { TRANSACTIONS, adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { eventually } from '../../support/service.ts';

/** What admins see of read models and of a rebuild while it runs. */

let world: AdminWorld;
/** Two transfers in a transaction. */
const ROWS_A_BLOCK = 2 * TRANSACTIONS;
/** The lower heights are in partition 0, the upper ones in partition 1. */
const [LOWER, UPPER] = [4, 2];

beforeAll(async () => {
  world = await adminWorld();
  world.beat('project');
  await world.startProjections();
  await world.publishBlocks(0, LOWER - 1);
  await world.publishBlocks(1024, 1024 + UPPER - 1);
  await world.projected();
});
afterAll(() => world?.close());

type Shown = ProjectionsAnswer['results'][number];
const shown = async (name: string): Promise<Shown> => {
  const { status, json } = await world.get('/api/admin/projections/');
  expect(status).toBe(200);
  const found = (json as ProjectionsAnswer).results.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no projection ${name}`);
  return found;
};
const rebuildOf = async (): Promise<RebuildRun> => {
  const { rebuild } = await shown('transfers');
  if (rebuild === null) throw new Error('no rebuild');
  return rebuild;
};
const rebuildNow = async (kafka: Kafka, pool: Pool = world.api.pool): Promise<RebuildReport> =>
  await recordedRebuild(
    {
      kafka,
      clickhouse: world.owner,
      pool,
      clock: systemClock,
      log: createLogger('test', 'silent'),
      metrics: createProjectionMetrics(createMetrics('rebuild')),
      signal: new AbortController().signal,
    },
    [transfers],
    { swap: true, requestedBy: 'operator', onProgress: () => {} },
  );

test('a projection is listed with its build, rows and bytes', async () => {
  const one = await shown('transfers');
  expect(one).toMatchObject({
    store: 'clickhouse',
    topic: 'chain.blocks',
    state: 'ok',
    lag_messages: 0,
    rebuild: null,
    builds: [
      { build: 1, state: 'serving', version: transfers.version, rows: (LOWER + UPPER) * ROWS_A_BLOCK },
    ],
  });
  expect(one.builds[0]?.bytes).toBeGreaterThan(0);
  const users = (await shown('accounts')).builds[0]?.tables.find(({ table }) => table === 'users');
  expect(users).toMatchObject({ rows: 2 });
  expect(await shown('accounts')).toMatchObject({ store: 'postgres', topic: 'commands' });
});

describe('a rebuild', () => {
  test('shows how far it has read while it runs, and ends when an admin aborts it', async () => {
    const held = Promise.withResolvers<void>();
    const slow: Kafka = {
      ...world.api.kafka,
      async *readRanges(topic, ranges, signal = new AbortController().signal) {
        for await (const batch of world.api.kafka.readRanges(topic, ranges, signal)) {
          yield batch;
          await Promise.all([held.promise, signal.aborted || once(signal, 'abort')]);
        }
      },
    };
    const ended = rebuildNow(slow).then(
      () => 'finished',
      (error: unknown) => String(error),
    );
    await eventually(async () => {
      const run = await rebuildOf();
      expect([LOWER, UPPER]).toContain(run.messages_read);
      expect(run).toMatchObject({
        state: 'running',
        phase: 'reading',
        error: null,
        messages_total: LOWER + UPPER,
        requested_by: 'operator',
        is_aborting: false,
      });
      expect(run.seconds_left).toBeGreaterThanOrEqual(1);
    });
    const { builds } = await shown('transfers');
    expect(builds).toMatchObject([{ state: 'serving' }, { build: 2, state: 'building' }]);

    await abortRebuild(world.api.pool, 'transfers', new AbortController().signal);
    await eventually(async () => expect((await rebuildOf()).is_aborting).toBe(true));
    held.resolve();
    expect(await ended).toContain('Aborted; the next run resumes from here');
    await eventually(async () =>
      expect(await rebuildOf()).toMatchObject({
        state: 'aborted',
        error: 'Aborted; the next run resumes from here',
        is_swapped: false,
        seconds_left: null,
      }),
    );
    await expect(
      abortRebuild(world.api.pool, 'transfers', new AbortController().signal),
    ).rejects.toMatchObject({ code: 'CONFLICT' });
  });

  test('shows the rows that it compared and where the served table differs', async () => {
    // A block is lost from the served table.
    await world.owner.command(
      'DELETE FROM transfers_v1_b1 WHERE block_desc = 0xffffffff - 2'.replace('v1', `v${transfers.version}`),
    );
    const report = await rebuildNow(world.api.kafka);
    expect(report.builds).toMatchObject([{ projection: 'transfers', isResumed: true }]);
    await eventually(async () =>
      expect(await rebuildOf()).toMatchObject({
        state: 'finished',
        error: null,
        differences: 1,
        differing: [
          {
            table: 'transfers',
            where: 'heights 0 to 1023',
            served_rows: (LOWER - 1) * ROWS_A_BLOCK,
            rebuilt_rows: LOWER * ROWS_A_BLOCK,
          },
        ],
        rows_compared: (LOWER + UPPER) * ROWS_A_BLOCK,
        is_swapped: true,
      }),
    );
    expect((await shown('transfers')).builds).toMatchObject([
      { build: 1, state: 'retired', retired_at: expect.any(String) },
      { build: 2, state: 'serving' },
    ]);
  });

  test('is shown as finished when PostgreSQL fails over as it ends', async () => {
    const { pool } = world.api;
    let failures = 2;
    const failingOver: Pool = {
      ...pool,
      async query(statement, values) {
        const isEnd =
          typeof statement === 'string' && statement.startsWith('UPDATE tds.rebuild_runs SET state');
        if (isEnd && failures > 0) {
          failures -= 1;
          throw unavailable('PostgreSQL did not answer', null);
        }
        return await pool.query(statement, values);
      },
    };
    await rebuildNow(world.api.kafka, failingOver);
    expect(await rebuildOf()).toMatchObject({ state: 'finished', is_swapped: true, error: null });
  });

  test('whose process was killed is shown as interrupted', async () => {
    await world.api.pool.query(
      `INSERT INTO tds.rebuild_runs (id, projections, requested_by, started_at, updated_at)
       VALUES (gen_random_uuid(), '{transfers}', 'operator', now(), now() - interval '16 seconds')`,
    );
    await eventually(async () => expect((await rebuildOf()).state).toBe('interrupted'));
  });
});
