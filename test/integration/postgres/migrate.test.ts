import { readFileSync, readdirSync } from 'node:fs';

import { afterEach, beforeEach, expect, it } from 'vitest';

import { moveCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import { countOf, createPool, isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { checkMigrated, migrate } from '../../../infra/postgres/migrate.ts';
import { pollUntil, retry } from '../../../infra/retry.ts';
import { lockServed } from '../../../projections/engine/served-lock.ts';
import { topics } from '../../../schemas/topics.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { tds } from '../../support/tds.ts';

const directory = new URL('../../../infra/postgres/migrations/', import.meta.url);
const files = readdirSync(directory).toSorted();

let own: Isolated;
let pool: Pool;
beforeEach(async () => {
  own = await isolated();
  pool = createPool(own.env.DATABASE_URL, { applicationName: 'test', queryTimeoutMs: 10_000 });
});
afterEach(async () => {
  await pool.end();
  await own.drop();
});

/** Applies the migrations before one of them, as an older version of the program did. */
async function migrateBefore(first: string): Promise<void> {
  await pool.query('CREATE SCHEMA tds');
  await pool.query(
    'CREATE TABLE tds.migrations (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())',
  );
  for (const name of files.filter((file) => file < first)) {
    await pool.query(readFileSync(new URL(name, directory), 'utf8'));
    await pool.query('INSERT INTO tds.migrations (name) VALUES ($1)', [name]);
  }
}

it('moves the checkpoints of observers and matchers to the table of all consumers', async () => {
  await migrateBefore('0080');
  await pool.query(
    `INSERT INTO tds.checkpoints (projection, build, topic, partition, topic_id, next_offset)
     VALUES ('transfers', 3, 'chain.blocks', 1, 'a', 10)`,
  );
  await pool.query(
    `INSERT INTO tds.observer_positions (observer, topic, partition, topic_id, next_offset)
     VALUES ('tokens', 'chain.blocks', 1, 'a', 20)`,
  );
  await pool.query(
    `INSERT INTO tds.dispatch_positions (matcher, topic, partition, topic_id, next_offset, updated_at)
     VALUES ('balances', 'chain.blocks', 2, 'a', 30, '2026-01-02T03:04:05Z')`,
  );

  expect(await migrate(pool)).toEqual(files.filter((file) => file >= '0080'));

  const { rows } = await pool.query(
    'SELECT consumer, build, topic, partition, topic_id, next_offset FROM tds.checkpoints ORDER BY next_offset',
  );
  const place = { topic: 'chain.blocks', topic_id: 'a' };
  expect(rows).toEqual([
    { consumer: 'transfers', build: 3, partition: 1, next_offset: 10, ...place },
    { consumer: 'observe-tokens', build: 0, partition: 1, next_offset: 20, ...place },
    { consumer: 'dispatch-balances', build: 0, partition: 2, next_offset: 30, ...place },
  ]);
  const times = await pool.query(
    "SELECT updated_at FROM tds.checkpoints WHERE consumer = 'dispatch-balances'",
  );
  expect(times.rows).toEqual([{ updated_at: new Date('2026-01-02T03:04:05Z') }]);
  expect(await migrate(pool)).toEqual([]);
});

it('waits for a batch under way, whose checkpoints move meanwhile', async () => {
  await migrateBefore('0153');
  const build = { projection: 'transfers', version: 1, build: 1, names: {} };
  await pool.query(
    `INSERT INTO tds.builds (projection, build, version, shape_hash, state, names)
     VALUES ('transfers', 1, 1, 'a', 'serving', '{}')`,
  );
  await pool.query(
    `INSERT INTO tds.checkpoints (consumer, build, topic, partition, topic_id, next_offset)
     VALUES ('transfers', 1, 'chain.blocks', 0, 'a', 10)`,
  );
  const lock = await lockServed(pool, [build]);
  const migrated = migrate(pool);
  const waiting = await pollUntil(
    async () => (await pool.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount,
    (count) => count === 1,
    { everyMs: 20, withinMs: 5000 },
  );
  expect(waiting).toBe(1);
  const move = { owner: { consumer: 'transfers', build: 1 }, partition: 0, expected: 10, next: 11 };
  try {
    expect(await moveCheckpoints(pool, { topic: topics.chainBlocks, topicId: 'a' }, [move])).toEqual([]);
  } finally {
    await lock.release();
  }
  expect(await migrated).toEqual(files.filter((file) => file >= '0153'));
});

it('gives a table free that another transaction keeps locked, and applies nothing', async () => {
  await migrateBefore('0153');
  const reader = await pool.connect();
  await reader.query('BEGIN; SELECT FROM tds.builds');
  await expect(migrate(pool)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE', retryable: true });
  await reader.query('COMMIT');
  reader.release();
  expect(await migrate(pool)).toEqual(files.filter((file) => file >= '0153'));
});

it('goes on once another process, which freezes while it migrates, has been silent for long', async () => {
  const reached = Promise.withResolvers<void>();
  const thawed = Promise.withResolvers<void>();
  const freezing: Pool = {
    ...pool,
    async connect() {
      const client = await pool.connect();
      return {
        ...client,
        async query(statement, values) {
          if (typeof statement === 'string' && statement.includes('FROM tds.migrations')) {
            reached.resolve();
            await thawed.promise;
          }
          return await client.query(statement, values);
        },
      };
    },
  };
  const frozen = migrate(freezing, { idleMs: 1000 });
  await reached.promise;
  try {
    const isRetryable = isPostgresUnavailable;
    expect(await retry(() => migrate(pool), { isRetryable, deadlineMs: 10_000 })).toEqual(files);
  } finally {
    thawed.resolve();
  }
  await expect(frozen).rejects.toSatisfy(isPostgresUnavailable);
});

it('says after a moment that another process migrates the database', async () => {
  const other = await pool.connect();
  await other.query("BEGIN; SELECT pg_advisory_xact_lock(hashtext('tds.migrate'))");
  await expect(migrate(pool)).rejects.toMatchObject({
    code: 'STORE_UNAVAILABLE',
    retryable: true,
    message: 'Another process is migrating this database',
  });
  await other.query('COMMIT');
  other.release();
  expect(await migrate(pool)).toEqual(files);
});

it('lets the server end a session whose client has given up a statement that waits for a lock', async () => {
  await migrate(pool);
  const holder = await pool.connect();
  const impatient = createPool(own.env.DATABASE_URL, { applicationName: 'impatient', queryTimeoutMs: 200 });
  const lock = 'SELECT pg_advisory_lock(1)';
  try {
    await holder.query(lock);
    await expect(impatient.query(lock)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' });
    const sessions = async (): Promise<number> =>
      await countOf(pool, "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'impatient'");
    expect(await sessions()).toBe(1);
    await expect.poll(sessions).toBe(0);
  } finally {
    holder.release(true);
    await impatient.end();
  }
});

it('is done by a user who may create in the database without owning it', async () => {
  const url = new URL(own.env.DATABASE_URL);
  const database = url.pathname.slice(1);
  const user = `guest_of_${database}`;
  Object.assign(url, { username: user, password: 'secret' });
  await pool.query(`CREATE ROLE ${user} LOGIN PASSWORD 'secret'`);
  await pool.query(`GRANT CREATE ON DATABASE ${database} TO ${user}`);
  const guest = createPool(url.href, { applicationName: 'test' });
  try {
    expect(await migrate(guest)).toEqual(files);
  } finally {
    await guest.end();
    await pool.query(`DROP OWNED BY ${user} CASCADE`);
    await pool.query(`DROP ROLE ${user}`);
  }
});

it('is required by a role, which accepts those of a newer program', async () => {
  await migrateBefore('0163');
  const { code, stdout } = await tds({ ...own.env, STARKNET_RPC_URL: 'http://127.0.0.1:1' }, 'ingest');
  expect(stdout).toContain(
    `lacks migrations of this release, from ${files.find((file) => file >= '0163')} on: run its \`tds migrate\``,
  );
  expect(code).toBe(1);

  await migrate(pool);
  await pool.query("INSERT INTO tds.migrations (name) VALUES ('9999_newer.sql')");
  await checkMigrated(own.env.DATABASE_URL);
});

it.each(['status', 'builds', 'snapshot', 'verify'])('is required by `tds %s`', async (command) => {
  const { code, stdout, stderr } = await tds({ ...own.env }, command);
  expect(stderr).toMatch(
    /^This database lacks migrations of this release, from 0001_core\.sql on: run .*\n$/,
  );
  expect([code, stdout]).toEqual([command === 'verify' ? 2 : 1, '']);
});

it('is missing in an empty database', async () => {
  await expect(checkMigrated(own.env.DATABASE_URL)).rejects.toMatchObject({
    code: 'VERSION_MISMATCH',
    message: expect.stringContaining('from 0001_core.sql on'),
  });
});
