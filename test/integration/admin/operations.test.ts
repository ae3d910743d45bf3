import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';

import { ABANDONED_SECONDS } from '../../../infra/bin/operator/operation-log.ts';
import { startOperations } from '../../../infra/bin/operator/operations.ts';
import type { RunTds } from '../../../infra/bin/operator/operations.ts';
import { tdsProcesses } from '../../../infra/bin/operator/run-tds.ts';
import { systemClock } from '../../../infra/clock.ts';
import type { Clock } from '../../../infra/clock.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { unavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { withRebuildLock } from '../../../projections/engine/builds.ts';
import { selectors } from '../../../schemas/decode/layouts.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { OperationAnswer } from '../../../schemas/api/admin/operations.ts';
import type { ProjectionsAnswer } from '../../../schemas/api/admin/projections.ts';
import { topics } from '../../../schemas/topics.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';
import { COIN } from '../../support/chain-messages.ts';
import { atEnd, until } from '../../support/projection-world.ts';
import { eventually } from '../../support/service.ts';

/** What admins ask for through the API, carried out by processes that have the stores' write access. */

let world: AdminWorld;
let publisher: Publisher;
const workers: { stop(): Promise<void> }[] = [];
/** How often workers have listed pending operations, as each does in every round. */
let lists = 0;

beforeAll(async () => {
  world = await adminWorld();
  publisher = world.api.kafka.publisher();
});
afterEach(async () => {
  for (const worker of workers.splice(0)) await worker.stop();
});
afterAll(async () => {
  await publisher?.close();
  await world?.close();
});

const refuse: RunTds = () => Promise.reject(new Error('no command is expected'));
/** On which the time between two rounds passes ten times as fast. */
function quickClock(): Clock {
  let time = 0;
  return {
    ...systemClock,
    now: () => time,
    async sleep(ms, signal) {
      await systemClock.sleep(ms / 10, signal);
      time += ms;
    },
  };
}
function startWorker(runTds: RunTds = refuse, pool: Pool = world.api.pool, clock = quickClock()): void {
  const query: Pool['query'] = async (statement, values) => {
    if (values?.[2] === ABANDONED_SECONDS) lists += 1;
    return await pool.query(statement, values);
  };
  workers.push(
    startOperations({
      pool: { ...pool, query },
      publisher,
      runTds,
      clock,
      log: createLogger('test', 'silent'),
    }),
  );
}

const listed = async (more: number): Promise<void> => {
  const enough = lists + more;
  await until(async () => lists >= enough);
};

const idOf = (position: number): string => `${toFelt(0xb10cn)}:${position}`;
async function quarantineEvent(position: number, block: number): Promise<void> {
  await publisher.publish(topics.quarantine, [
    {
      key: idOf(position),
      value: {
        type: 'event.quarantined',
        v: 1,
        id: idOf(position),
        reason: 'no layout of Transfer has 3 keys and 4 data felts',
        block,
        block_hash: toFelt(0xb10cn),
        position,
        transaction_hash: toFelt(0x7n),
        event: { from_address: COIN, keys: [selectors.Transfer, toFelt(1n), toFelt(2n)], data: [] },
        quarantined_at: 1_700_000_000_000,
      },
    },
  ]);
  await until(async () => await atEnd(world.api.kafka, world.api.pool, topics.quarantine, ['quarantine']));
}
const halt = async (topic: string, offset: number): Promise<void> =>
  void (await world.api.pool.query(
    `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
     VALUES ('tokens', 1, $1, 0, $2, 'not JSON')`,
    [topic, offset],
  ));
const count = async (sql: string, values: unknown[] = []): Promise<number> =>
  Number((await world.api.pool.query<{ n: string }>(`SELECT count(*) AS n FROM ${sql}`, values)).rows[0]?.n);
const operation = async (id: string): Promise<OperationAnswer> => {
  const { status, json } = await world.get(`/api/admin/operations/${id}/`);
  expect(status).toBe(200);
  return json as OperationAnswer;
};

describe('an entry of the quarantine', () => {
  test('is skipped, and its operation names the admin and what was done', async () => {
    startWorker();
    await quarantineEvent(1, 77);
    const { status, json } = await world.post(`/api/admin/quarantine/${idOf(1)}/skip/`);
    expect(status, JSON.stringify(json)).toBe(200);
    expect(json).toEqual({
      id: expect.any(String),
      operation: 'quarantine.skip',
      subject: idOf(1),
      state: 'done',
      detail: `${idOf(1)} is skipped.`,
      requested_by: expect.stringMatching(/^user:\d+$/),
      requested_at: expect.any(String),
      finished_at: expect.any(String),
    });
    expect((await world.get(`/api/admin/quarantine/${idOf(1)}/`)).json).toMatchObject({ state: 'skipped' });
    expect(await operation(json.id)).toEqual(json);
    expect((await world.get('/api/admin/operations/')).json.results[0]).toEqual(json);
    // As `tds quarantine skip` refuses it.
    const again = await world.post(`/api/admin/quarantine/${idOf(1)}/skip/`);
    expect(again.status).toBe(409);
    expect(again.json.detail).toBe(`${idOf(1)} is already resolved: skipped`);
  });

  test('has its block repaired on retry', async () => {
    startWorker();
    await quarantineEvent(2, 78);
    const { status, json } = await world.post(`/api/admin/quarantine/${idOf(2)}/retry/`);
    expect(status, JSON.stringify(json)).toBe(200);
    expect(json.detail).toContain('Requested a repair of block 78');
    expect(await count('tds.repairs WHERE height = 78 AND done_at IS NULL')).toBe(1);
  });

  test('that is a message is read again on retry, and skipped in rebuilds on skip', async () => {
    startWorker();
    await halt('tokens', 5);
    expect((await world.post('/api/admin/quarantine/tokens:0:5/retry/')).json).toMatchObject({
      state: 'done',
      detail: 'tokens will read tokens:0:5 again, and halt again if it cannot be parsed.',
    });
    expect(await count('tds.projection_halts')).toBe(0);
    await halt('tokens', 6);
    expect((await world.post('/api/admin/quarantine/tokens:0:6/skip/')).status).toBe(200);
    expect(await count("tds.skips WHERE projection = 'tokens' AND message_offset = 6")).toBe(1);
  });

  test('that does not exist is answered 404, and nothing is asked for', async () => {
    const before = await count('tds.operations');
    const { status, json } = await world.post('/api/admin/quarantine/tokens:0:99/skip/');
    expect(status).toBe(404);
    expect(json.detail).toContain('No quarantine entry has the id tokens:0:99');
    expect(await count('tds.operations')).toBe(before);
  });
});

test('an operation is answered 202 while no process carries it out, and done once one does', async () => {
  await quarantineEvent(3, 79);
  const { status, json } = await world.post(`/api/admin/quarantine/${idOf(3)}/retry/`);
  expect(status).toBe(202);
  expect(json).toMatchObject({ state: 'requested', operation: 'quarantine.retry', subject: idOf(3) });
  expect((await world.get(`/api/admin/operations/${json.id}/`)).status).toBe(404);
  startWorker();
  await eventually(async () => expect(await operation(json.id)).toMatchObject({ state: 'done' }));
});

test('a request that no process has begun within an hour is recorded as failed, once', async () => {
  await quarantineEvent(7, 83);
  const { json } = await world.post(`/api/admin/quarantine/${idOf(7)}/retry/`);
  await world.api.pool.query(
    'UPDATE accounts_v2_b1.command_outcomes SET issued_at = issued_at - 3600001 WHERE id = $1',
    [json.id],
  );
  startWorker();
  startWorker();
  await eventually(async () =>
    expect(await operation(json.id)).toMatchObject({
      operation: 'quarantine.retry',
      subject: idOf(7),
      requested_by: json.requested_by,
      state: 'failed',
      detail: 'Not begun within an hour: ask for it again',
      finished_at: expect.any(String),
    }),
  );
  expect(await count('tds.repairs WHERE height = 83')).toBe(0);
});

test('a repeated Idempotency-Key is one operation, also for two processes that carry out', async () => {
  let runs = 0;
  const held = Promise.withResolvers<void>();
  const runTds: RunTds = async () => {
    runs += 1;
    await world.api.pool.query(
      `INSERT INTO tds.rebuild_runs (id, projections, requested_by) VALUES (gen_random_uuid(), '{tokens}', 'user:1')`,
    );
    await held.promise;
    return 'rebuilt';
  };
  startWorker(runTds);
  startWorker(runTds);
  const ask = async () =>
    await world.api.call('POST', '/api/admin/projections/tokens/rebuild/', {
      token: world.admin,
      json: {},
      headers: { 'Idempotency-Key': 'once' },
    });
  const first = await ask();
  // Also while the first one is running, which would refuse another request.
  await until(async () => (await count("tds.rebuild_runs WHERE 'tokens' = ANY (projections)")) === 1);
  const second = await ask();
  held.resolve();
  expect([first.status, second.status]).toEqual([202, 202]);
  expect(second.json.id).toBe(first.json.id);
  await eventually(async () =>
    expect(await operation(first.json.id)).toMatchObject({ state: 'done', detail: 'rebuilt' }),
  );
  expect(runs).toBe(1);
});

test('a command of a user who is no admin is refused by the projection', async () => {
  startWorker();
  await quarantineEvent(4, 80);
  const { rows } = await world.api.pool.query<{ id: number }>(
    "SELECT id FROM accounts_v2_b1.users WHERE username = 'stranger'",
  );
  const userId = Number(rows[0]?.id);
  const outcome = await world.api.commands.submit({
    type: 'quarantine.skip',
    actor: `user:${userId}`,
    body: { user_id: userId, entry_id: idOf(4) },
  });
  expect(outcome).toMatchObject({ accepted: false, result: { detail: 'This user is not an admin.' } });
  expect((await world.get(`/api/admin/quarantine/${idOf(4)}/`)).json).toMatchObject({ state: 'open' });
});

test('an operation whose process was killed is carried out by another one, and given up after three', async () => {
  await quarantineEvent(5, 81);
  await quarantineEvent(6, 82);
  const abandoned = async (id: string, entry: string, attempts: number): Promise<void> =>
    void (await world.api.pool.query(
      `INSERT INTO tds.operations (id, operation, subject, requested_by, requested_at, attempts, updated_at)
       VALUES ($1, 'quarantine.retry', $2, 'user:1', now() - interval '1 day', $3, now() - interval '16 seconds')`,
      [id, entry, attempts],
    ));
  await abandoned('killed', idOf(5), 1);
  await abandoned('hopeless', idOf(6), 3);
  expect(await operation('killed')).toMatchObject({ state: 'interrupted' });
  startWorker();
  await eventually(async () => {
    expect(await operation('killed')).toMatchObject({ state: 'done' });
    expect(await operation('hopeless')).toMatchObject({
      state: 'failed',
      detail: 'Its process ended 3 times before it was done',
    });
  });
  expect(await count('tds.repairs WHERE height = 81')).toBe(1);
  expect(await count('tds.repairs WHERE height = 82')).toBe(0);
});

const abandonedRow = async (id: string, of: string, subject: string): Promise<void> =>
  void (await world.api.pool.query(
    `INSERT INTO tds.operations (id, operation, subject, requested_by, requested_at, updated_at)
     VALUES ($1, $2, $3, 'user:1', now(), now() - interval '16 seconds')`,
    [id, of, subject],
  ));

test('an operation is done where the process that was killed had done it', async () => {
  await quarantineEvent(8, 84);
  startWorker();
  expect((await world.post(`/api/admin/quarantine/${idOf(8)}/skip/`)).json).toMatchObject({ state: 'done' });
  await abandonedRow('skipped-before', 'quarantine.skip', idOf(8));
  await abandonedRow('aborted-before', 'rebuild.abort', 'balances');
  await eventually(async () => {
    expect(await operation('skipped-before')).toMatchObject({
      state: 'done',
      detail: `${idOf(8)} is already resolved: skipped`,
    });
    expect(await operation('aborted-before')).toMatchObject({
      state: 'done',
      detail: 'No rebuild of balances is running',
    });
  });
});

test('a process writes nothing about an operation that another one has claimed since', async () => {
  const run = Promise.withResolvers<string>();
  await abandonedRow('taken-over', 'verify.start', 'all');
  startWorker(async () => await run.promise);
  const row = "tds.operations WHERE id = 'taken-over' AND state = 'running' AND attempts";
  await eventually(async () => expect(await count(`${row} = 2`)).toBe(1));
  const { pool } = world.api;
  await pool.query("UPDATE tds.operations SET attempts = 3, updated_at = 'epoch' WHERE id = 'taken-over'");
  await listed(3);
  expect(await count(`${row} = 3 AND updated_at = 'epoch'`)).toBe(1);
  run.reject(new Error('Another process is verifying'));
  for (const worker of workers.splice(0)) await worker.stop();
  expect(await count(`${row} = 3 AND updated_at = 'epoch'`)).toBe(1);
  await pool.query("DELETE FROM tds.operations WHERE id = 'taken-over'");
});

test.each([
  ['an outage, in which its process could not show that it runs it', 20_000],
  ['the start of a process, before which there may have been an outage', 0],
])('an operation is not taken over right after %s', async (_, outageMs) => {
  const id = `running-elsewhere-${outageMs}`;
  const untouched = async (): Promise<void> =>
    expect(await count('tds.operations WHERE id = $1 AND attempts = 1', [id])).toBe(1);
  let time = 0;
  const clock = {
    ...systemClock,
    now: () => time,
    sleep: async (_ms: number, signal?: AbortSignal) => await systemClock.sleep(20, signal),
  };
  startWorker(async () => 'verified', undefined, clock);
  await listed(1);
  time += outageMs;
  await abandonedRow(id, 'verify.start', 'all');
  await listed(3);
  await untouched();
  time += 7000;
  await listed(2);
  time += 7000;
  await listed(2);
  await untouched();
  time += 1000;
  await eventually(async () =>
    expect(await operation(id)).toMatchObject({ state: 'done', detail: 'verified' }),
  );
});

test('an operation is carried out once, however many are asked for after it', async () => {
  let runs = 0;
  startWorker(async () => `run ${(runs += 1)}`);
  const ask = async (): Promise<string> => {
    const { json } = await world.post('/api/admin/verification/');
    await eventually(async () => expect((await operation(json.id)).state).toBe('done'));
    return json.id;
  };
  const first = await ask();
  await world.api.pool.query(
    `INSERT INTO tds.operations (id, operation, subject, requested_by, requested_at, state)
     SELECT 'later ' || i, 'verify.start', 'all', 'user:1', now() + interval '1 minute', 'done'
     FROM generate_series(1, 500) AS i`,
  );
  await ask();
  await listed(3);
  expect([runs, (await operation(first)).detail]).toEqual([2, 'run 1']);
  await world.api.pool.query("DELETE FROM tds.operations WHERE starts_with(id, 'later ')");
});

test('an operation that is done is recorded as done, also where PostgreSQL does not answer at first', async () => {
  const { pool } = world.api;
  let failures = 0;
  const query: Pool['query'] = async (statement, values) => {
    if (values?.[1] === 'done' && (failures += 1) < 3)
      throw unavailable('The connection to PostgreSQL was lost', null);
    return await pool.query(statement, values);
  };
  startWorker(async () => 'no difference', { ...pool, query });
  const { status, json } = await world.post('/api/admin/verification/');
  expect(status, JSON.stringify(json)).toBeLessThan(300);
  await eventually(async () => expect((await operation(json.id)).state).not.toBe('running'));
  expect(await operation(json.id)).toMatchObject({ state: 'done', detail: 'no difference' });
});

test('a rebuild that a process seems to have abandoned is begun again only once its lock is free', async () => {
  const { pool } = world.api;
  await abandonedRow('cut-off', 'rebuild.start', 'tokens');
  await withRebuildLock(pool, ['tokens'], async () => {
    startWorker(async () => 'rebuilt');
    await listed(20); // a worker takes over only after 15 rounds of its own
    expect(await count("tds.operations WHERE id = 'cut-off' AND attempts = 1 AND state = 'running'")).toBe(1);
  });
  await eventually(async () =>
    expect(await operation('cut-off')).toMatchObject({ state: 'done', detail: 'rebuilt' }),
  );
});

const programs = (): RunTds =>
  tdsProcesses({
    PATH: process.env['PATH'],
    NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
    DATA_DIR: mkdtempSync(join(tmpdir(), 'tds-rebuild-')),
    ...world.api.env,
  });

describe('a rebuild', () => {
  const rebuildOf = async (name: string) =>
    ((await world.get('/api/admin/projections/')).json as ProjectionsAnswer).results.find(
      (one) => one.name === name,
    );

  test('that an admin starts runs as a process, is compared and swapped', async () => {
    await world.startProjections();
    await world.publishBlocks(0, 2);
    await world.projected();
    startWorker(programs());
    const { status, json } = await world.post('/api/admin/projections/tx-index/rebuild/', {});
    expect(status, JSON.stringify(json)).toBe(202);
    expect(json).toMatchObject({ operation: 'rebuild.start', subject: 'tx-index', state: 'running' });
    await eventually(async () =>
      expect(await operation(json.id)).toMatchObject({
        state: 'done',
        detail: expect.stringContaining('Swapped'),
      }),
    );
    const shown = await rebuildOf('tx-index');
    expect(shown?.rebuild).toMatchObject({
      state: 'finished',
      requested_by: json.requested_by,
      is_swapped: true,
      differences: 0,
    });
    expect(shown?.builds).toMatchObject([{ state: 'retired' }, { state: 'serving' }]);
  });

  test('is refused for an unknown projection and while one is running, which an admin aborts', async () => {
    startWorker();
    for (const path of ['rebuild/', 'rebuild/abort/'])
      expect((await world.post(`/api/admin/projections/nothing/${path}`, {})).status, path).toBe(404);
    const none = await world.post('/api/admin/projections/transfers/rebuild/abort/');
    expect([none.status, none.json.detail]).toEqual([409, 'No rebuild of transfers is running']);
    await world.api.pool.query(
      `INSERT INTO tds.rebuild_runs (id, projections, requested_by, updated_at)
       VALUES (gen_random_uuid(), '{transfers}', 'operator', now() + interval '1 minute')`,
    );
    const second = await world.post('/api/admin/projections/transfers/rebuild/', {});
    expect([second.status, second.json.detail]).toEqual([409, 'A rebuild of transfers is running already.']);
    const aborted = await world.post('/api/admin/projections/transfers/rebuild/abort/');
    expect(aborted.status, JSON.stringify(aborted.json)).toBe(200);
    await eventually(async () =>
      expect((await rebuildOf('transfers'))?.rebuild).toMatchObject({ state: 'running', is_aborting: true }),
    );
  });

  test('that has just begun is not begun twice, and is aborted once it shows its progress', async () => {
    const shown = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<string>();
    startWorker(async () => {
      await shown.promise;
      await world.api.pool.query(
        `INSERT INTO tds.rebuild_runs (id, projections, requested_by) VALUES (gen_random_uuid(), '{prices}', 'user:1')`,
      );
      return await ended.promise;
    });
    const path = '/api/admin/projections/prices/rebuild/';
    try {
      expect((await world.post(path, {})).status).toBe(202);
      const second = await world.post(path, {});
      expect([second.status, second.json.detail]).toEqual([409, 'A rebuild of prices is running already.']);
      const aborting = world.post(`${path}abort/`);
      const isAborting = "tds.operations WHERE operation = 'rebuild.abort' AND subject = 'prices'";
      await until(async () => (await count(isAborting)) === 1);
      shown.resolve();
      const aborted = await aborting;
      expect(aborted.status, JSON.stringify(aborted.json)).toBe(200);
      expect(
        await count(
          "tds.rebuild_runs WHERE 'prices' = ANY (projections) AND abort_requested_at > started_at",
        ),
      ).toBe(1);
    } finally {
      shown.resolve();
      ended.resolve('aborted');
    }
  });
});

describe('a verification', () => {
  const start = async () => await world.post('/api/admin/verification/');

  test('that an admin starts runs `tds verify`, and its report is the detail', async () => {
    await world.api.pool.query('DELETE FROM tds.projection_halts');
    await halt('tokens', 7);
    startWorker(programs());
    const { status, json } = await start();
    expect(status, JSON.stringify(json)).toBe(202);
    expect(json).toMatchObject({ operation: 'verify.start', subject: 'all', state: 'running' });
    const second = await start();
    expect([second.status, second.json.detail]).toEqual([409, 'A verification is running already.']);
    // Done also with differences.
    await eventually(async () =>
      expect(await operation(json.id)).toMatchObject({
        state: 'done',
        detail: expect.stringMatching(/^halt: tokens is halted at tokens:0:7: .*\n.*: 1 difference\.$/),
      }),
    );
    const { last_verify: run } = (await world.get('/api/admin/verification/')).json;
    expect(run).toMatchObject({ outcome: 'differences', from: 0, to: 2, differences: 1 });
  });
});
