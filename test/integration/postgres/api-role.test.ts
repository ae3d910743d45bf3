import { randomBytes } from 'node:crypto';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { grantApiRole } from '../../../infra/postgres/api-role.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { migrate } from '../../../infra/postgres/migrate.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';

/** What the API's role may do, tried from a connection of its own. */

let own: Isolated;
let owner: Pool;
let api: Pool;
const role = `api_${randomBytes(4).toString('hex')}`;
let url: URL;

beforeAll(async () => {
  own = await isolated();
  owner = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
  await migrate(owner);
  await owner.query('CREATE SCHEMA before_v1_b1');
  await owner.query('CREATE TABLE before_v1_b1.things AS SELECT 1 AS x');
  url = new URL(own.env.DATABASE_URL);
  url.username = role;
  url.password = encodeURIComponent('it\'s a "pass\\word"');
  await grantApiRole(owner, url.href);
  await grantApiRole(owner, url.href);
  await owner.query('CREATE SCHEMA after_v1_b2');
  await owner.query('CREATE TABLE after_v1_b2.things AS SELECT 2 AS x');
  api = createPool(url.href, { applicationName: 'test-api' });
});
afterAll(async () => {
  await api.end();
  await owner.query(`DROP OWNED BY ${role}`);
  await owner.query(`DROP ROLE ${role}`);
  await owner.end();
  await own.drop();
});

describe('the role of the API', () => {
  it.each([
    'before_v1_b1.things',
    'after_v1_b2.things',
    'tds.migrations',
    'tds.served',
    'tds.builds',
    'tds.checkpoints',
    'tds.projection_checkpoints',
    'tds.projection_halts',
    'tds.alarms',
    'tds.role_processes',
    'tds.chunk_writers',
    'tds.observer_progress',
    'tds.repairs_left',
    'tds.webhook_deliveries',
    'tds.webhook_endpoints',
    'tds.chunk_map',
    'tds.pending_repairs',
    'tds.contract_standards',
    'tds.history',
    'tds.rebuild_runs',
    'tds.verify_runs',
    'tds.verify_samples',
    'tds.conservation',
    'tds.operations',
  ])('reads %s', async (table) => {
    await expect(api.query(`SELECT * FROM ${table}`)).resolves.toBeDefined();
  });

  it('listens', async () => {
    await expect(api.query('LISTEN tds_commands_decided')).resolves.toBeDefined();
  });

  it.each([
    'tds.chunks',
    'tds.recorded_blocks',
    'tds.repairs',
    'pg_catalog.pg_authid',
    'pg_catalog.pg_user_mapping',
  ])('does not read %s', async (table) => {
    await expect(api.query(`SELECT * FROM ${table}`)).rejects.toMatchObject({ code: '42501' });
  });

  // Also where the role turns off the read-only default, which it may.
  const statements = [
    'INSERT INTO before_v1_b1.things VALUES (9)',
    'UPDATE before_v1_b1.things SET x = 9',
    'DELETE FROM before_v1_b1.things',
    'TRUNCATE before_v1_b1.things',
    'DROP TABLE before_v1_b1.things',
    'ALTER TABLE before_v1_b1.things ADD y int',
    'BEGIN; LOCK TABLE before_v1_b1.things IN EXCLUSIVE MODE',
    "UPDATE tds.served SET tables = '{}'",
    'DELETE FROM tds.operations',
    'UPDATE tds.rebuild_runs SET abort_requested_at = now()',
    "INSERT INTO tds.role_processes (role, process) VALUES ('api', 'here:1:00000001')",
    'DELETE FROM tds.role_processes',
    'ALTER FUNCTION tds.write_api_heartbeat RESET ALL',
    "CREATE OR REPLACE FUNCTION tds.write_api_heartbeat(id text, has_stopped boolean) RETURNS void LANGUAGE sql AS ''",
    'CREATE TABLE public.mine (x int)',
    'CREATE TABLE before_v1_b1.mine (x int)',
    'CREATE SCHEMA mine',
    'CREATE TEMP TABLE mine (x int)',
    'CREATE ROLE mine',
    'CREATE DATABASE mine',
    'CREATE EXTENSION dblink',
    "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT lo_import('/etc/passwd')",
    "COPY before_v1_b1.things TO '/tmp/things'",
    "COPY before_v1_b1.things TO PROGRAM 'cat'",
    "COPY before_v1_b1.things FROM PROGRAM 'echo 1'",
    'SELECT pg_reload_conf()',
    'SET ROLE postgres',
    'SET SESSION AUTHORIZATION postgres',
    "ALTER SYSTEM SET log_statement = 'none'",
    `ALTER ROLE ${role} SUPERUSER`,
  ];
  it.each(statements)('cannot: %s', async (statement) => {
    for (const mode of ['on', 'off']) {
      const client = await api.connect();
      try {
        await client.query(`SET default_transaction_read_only = ${mode}`);
        // 42501: not allowed; 25006: not in a read-only transaction.
        const codes = mode === 'on' ? ['42501', '25006'] : ['42501'];
        const error = await client.query(statement).then(
          () => null,
          (refused: unknown) => refused,
        );
        expect(error).toMatchObject({ code: expect.toSatisfy((code) => codes.includes(String(code))) });
      } finally {
        client.release(true);
      }
    }
  });

  it('is read-only with a short statement timeout by default', async () => {
    const show = async (name: string) => (await api.query(`SHOW ${name}`)).rows[0]?.[name];
    expect(await show('default_transaction_read_only')).toBe('on');
    expect(await show('statement_timeout')).toBe('15s');
  });

  describe('by the function of heartbeats', () => {
    const writable = async (statement: string, values: unknown[] = []) => {
      const client = await api.connect();
      try {
        await client.query('SET default_transaction_read_only = off');
        return await client.query(statement, values);
      } finally {
        client.release(true);
      }
    };
    const beat = async (id: unknown, hasStopped: unknown = false) =>
      await writable('SELECT tds.write_api_heartbeat($1, $2)', [id, hasStopped]);
    const processes = async () =>
      (await owner.query('SELECT role, process, stopped_at IS NOT NULL AS stopped FROM tds.role_processes'))
        .rows;
    const live = { role: 'project', process: 'here:1:00000001', stopped: false };
    const own = { role: 'api', process: 'a-host.example:17:0123abcd', stopped: false };

    beforeAll(async () => {
      await owner.query('INSERT INTO tds.role_processes (role, process) VALUES ($1, $2)', [
        live.role,
        live.process,
      ]);
    });

    it('writes heartbeats of the role api only', async () => {
      await beat(own.process);
      await beat(own.process);
      expect(await processes()).toEqual([live, own]);
      await beat(own.process, true);
      expect(await processes()).toEqual([live, { ...own, stopped: true }]);
      await beat(live.process, true);
      expect(await processes()).toContainEqual(live);
    });

    it.each([
      [null, false],
      ['here:1:00000001', null],
      ['', false],
      ['here', false],
      ['here:1:0000000G', false],
      ['here:1:00000001\nx', false],
      [`${'x'.repeat(256)}:1:00000001`, false],
      ["here'; DROP TABLE tds.served; --:1:00000001", false],
    ])('refuses %s, %s', async (id, hasStopped) => {
      const before = await processes();
      await expect(beat(id, hasStopped)).rejects.toMatchObject({ code: '22023' });
      expect(await processes()).toEqual(before);
    });

    it('uses its own tables and operators, not those that a caller names', async () => {
      const search = 'SET search_path = before_v1_b1, pg_temp, tds';
      const { rows } = await owner.query(
        "SELECT prosecdef, proconfig FROM pg_proc WHERE proname = 'write_api_heartbeat'",
      );
      expect(rows).toEqual([{ prosecdef: true, proconfig: ['search_path=pg_catalog, pg_temp'] }]);
      await expect(
        writable(`${search}; SELECT tds.write_api_heartbeat('${own.process}', false)`),
      ).resolves.toBeDefined();
      expect(await processes()).toContainEqual(own);
    });

    it('keeps a thousand processes at most', async () => {
      await writable(`SELECT tds.write_api_heartbeat('here:' || n || ':00000001', false)
        FROM generate_series(1, 1005) AS n`);
      const all = await processes();
      expect(all.filter(({ role }) => role === 'api')).toHaveLength(1000);
      expect(all).toContainEqual(live);
    });

    it('refuses another role of the database', async () => {
      const other = `other_${randomBytes(4).toString('hex')}`;
      await owner.query(`CREATE ROLE ${other}`);
      await owner.query(`GRANT USAGE ON SCHEMA tds TO ${other}`);
      const client = await owner.connect();
      try {
        await client.query(`SET ROLE ${other}`);
        await expect(
          client.query(`SELECT tds.write_api_heartbeat('${own.process}', false)`),
        ).rejects.toMatchObject({ code: '42501' });
      } finally {
        client.release(true);
      }
      await owner.query(`DROP OWNED BY ${other}`);
      await owner.query(`DROP ROLE ${other}`);
    });
  });

  it('loses privileges granted by mistake at the next grant', async () => {
    // The default that lets it read builds to come gives it tables of later migrations, too.
    await owner.query('CREATE TABLE tds.later (x int)');
    await expect(api.query('SELECT * FROM tds.later')).resolves.toBeDefined();
    await owner.query(`ALTER ROLE ${role} CREATEDB`);
    await owner.query(`GRANT pg_read_all_data TO ${role}`);
    await owner.query(`GRANT CREATE ON DATABASE ${url.pathname.slice(1)} TO ${role}`);
    await grantApiRole(owner, url.href);
    for (const table of ['tds.chunks', 'tds.later']) {
      await expect(api.query(`SELECT * FROM ${table}`)).rejects.toMatchObject({ code: '42501' });
    }
    const { rows } = await owner.query('SELECT rolcreatedb, rolsuper FROM pg_roles WHERE rolname = $1', [
      role,
    ]);
    expect(rows).toEqual([{ rolcreatedb: false, rolsuper: false }]);
  });

  it('gets a new password from a new URL, and must not be the owner', async () => {
    const changed = new URL(url);
    changed.password = 'another';
    await grantApiRole(owner, changed.href);
    const fresh = createPool(changed.href, { applicationName: 'test' });
    await expect(fresh.query('SELECT 1')).resolves.toBeDefined();
    await fresh.end();
    await expect(grantApiRole(owner, own.env.DATABASE_URL)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });
});

describe('an owner of the database that is no superuser', () => {
  const plain = `owner_${randomBytes(4).toString('hex')}`;
  const reader = `reader_${randomBytes(4).toString('hex')}`;
  const database = `${plain}_db`;
  const urlOf = (username: string): string => {
    const one = new URL(own.env.DATABASE_URL);
    Object.assign(one, { username, password: 'secret', pathname: `/${database}` });
    return one.href;
  };
  const asOwner = async (work: (pool: Pool) => Promise<void>): Promise<void> => {
    const pool = createPool(urlOf(plain), { applicationName: 'test' });
    try {
      await work(pool);
    } finally {
      await pool.end();
    }
  };

  beforeAll(async () => {
    await owner.query(`CREATE ROLE ${plain} LOGIN CREATEROLE PASSWORD 'secret'`);
    await owner.query(`CREATE DATABASE ${database} OWNER ${plain}`);
  });
  afterAll(async () => {
    await owner.query(`DROP DATABASE ${database} WITH (FORCE)`);
    await owner.query(`DROP ROLE IF EXISTS ${reader}`);
    await owner.query(`DROP ROLE ${plain}`);
  });

  it('migrates and grants twice; the role of the API then reads, and does not write', async () => {
    for (let times = 0; times < 2; times++) {
      await asOwner(async (pool) => {
        await migrate(pool);
        await grantApiRole(pool, urlOf(reader));
      });
    }
    const pool = createPool(urlOf(reader), { applicationName: 'test' });
    await expect(pool.query('SELECT * FROM tds.served')).resolves.toBeDefined();
    await expect(pool.query("UPDATE tds.served SET tables = '{}'")).rejects.toMatchObject({
      code: expect.stringMatching('42501|25006'),
    });
    await pool.end();
  });

  it('gets the GRANT that it lacks to change a role of another owner in the error', async () => {
    await owner.query(`REVOKE ${reader} FROM ${plain}`);
    await asOwner(async (pool) => {
      await expect(grantApiRole(pool, urlOf(reader))).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringContaining(`GRANT "${reader}" TO "${plain}" WITH ADMIN OPTION`),
      });
    });
  });
});

it('two installations on one server may grant the same role at the same time', async () => {
  const other = await isolated();
  const otherOwner = createPool(other.env.DATABASE_URL, { applicationName: 'test' });
  await migrate(otherOwner);
  const shared = new URL(url);
  const name = `shared_${randomBytes(4).toString('hex')}`;
  shared.username = name;
  const owners = [owner, otherOwner];
  for (let round = 0; round < 10; round += 1)
    await Promise.all(owners.map(async (one) => await grantApiRole(one, shared.href)));
  for (const one of owners) await one.query(`DROP OWNED BY ${name}`);
  await owner.query(`DROP ROLE ${name}`);
  await otherOwner.end();
  await other.drop();
});
