import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { text } from 'node:stream/consumers';

import { createClient } from '@clickhouse/client';
import kafkajs from 'kafkajs';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { createAlarms } from '../../../infra/health/alarms.ts';
import { raisedAlarms } from '../../../infra/health/service-health.ts';
import { grantApiRole } from '../../../infra/postgres/api-role.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { clickhouseProjections, postgresProjections } from '../../../projections/index.ts';
import { txIndex } from '../../../projections/tx-index/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { startRole } from '../../support/faults/role.ts';
import { until } from '../../support/ingest-world.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { createSimulatedNode } from '../../support/starknet/node.ts';
import { tds } from '../../support/tds.ts';

/** A role that is started before its stores says by name what it waits for, and ends at once when it is told to. */

let own: Isolated;
beforeAll(async () => {
  own = await isolated();
  expect(await tds({ ...own.env }, 'migrate')).toMatchObject({ code: 0 });
});
afterAll(async () => await own?.drop());

/** The store that a role's log names while it waits, the exit code after SIGTERM, and whether it logs a failure. */
async function startUp(
  role: string,
  env: Readonly<Record<string, string>>,
): Promise<{ waitsFor: string; code: number | null; isFailure: boolean }> {
  const child = spawn(process.execPath, ['infra/bin/tds.ts', role], {
    env: { PATH: process.env['PATH'] ?? '', SECRET_KEY: '5c'.repeat(32), PORT: '0', ...own.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  let logged = '';
  const waitsFor = await new Promise<string>((resolve) => {
    child.stdout.on('data', (chunk: Buffer) => {
      logged += chunk.toString();
      const [, what] = /waiting for ([^"]+)"/.exec(logged) ?? [];
      const [, store] = /"message":"(Kafka|PostgreSQL)[^\n]*store unavailable, retrying/.exec(logged) ?? [];
      const named = what ?? store;
      if (named !== undefined) resolve(named);
    });
    void ended.then(() => resolve(`nothing: it ended:\n${logged}`));
  });
  child.kill('SIGTERM');
  const killer = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const code = await ended;
  clearTimeout(killer);
  return { waitsFor, code, isFailure: logged.includes('"level":60') };
}

const nobody = '127.0.0.1:1';
test.each([
  ['Kafka', 'project', { KAFKA_BROKERS: nobody }],
  ['PostgreSQL', 'project', { DATABASE_URL: `postgres://a:b@${nobody}/tds` }],
  [
    'PostgreSQL and Kafka',
    'observe',
    { DATABASE_URL: `postgres://a:b@${nobody}/tds`, KAFKA_BROKERS: nobody },
  ],
])('a role waits for %s, which %s needs, and names it', async (what, role, env) => {
  const outcome = await startUp(role, { STARKNET_RPC_URL: `http://${nobody}`, ...env });
  expect(outcome).toEqual({ waitsFor: what, code: 0, isFailure: false });
});

/** Starts the API without a URL that it could write with; returns its exit code, null once it is ready, and its log. */
async function startApi(
  changed: Readonly<Record<string, string>> = {},
): Promise<{ code: number | null; logged: string }> {
  const { CLICKHOUSE_URL: _clickhouse, DATABASE_URL, ...env } = own.env;
  const child = spawn(process.execPath, ['infra/bin/tds.ts', 'api'], {
    env: {
      PATH: process.env['PATH'] ?? '',
      DATA_DIR: '/nonexistent',
      SECRET_KEY: '5c'.repeat(32),
      PORT: '0',
      ...env,
      API_DATABASE_URL: DATABASE_URL,
      ...changed,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let logged = '';
  child.stdout.on('data', (chunk: Buffer) => (logged += chunk.toString()));
  let isClosed = false;
  child.once('close', () => (isClosed = true));
  try {
    await until('the API is ready', async () => isClosed || /api is ready/.test(logged));
    return { code: child.exitCode, logged };
  } finally {
    child.kill('SIGTERM');
  }
}

test('the API starts without a URL that it could write with', async () => {
  const { logged } = await startApi();
  expect(logged).toContain('api is ready');
});

test('the API does not start with a password that ClickHouse rejects', async () => {
  const url = new URL(own.env.API_CLICKHOUSE_URL);
  url.password = 'wrong';
  const { code, logged } = await startApi({ API_CLICKHOUSE_URL: url.href });
  expect(logged).toContain('ClickHouse rejected the connection: ');
  expect(logged).not.toContain('"stack"');
  expect(code).toBe(1);
});

test('the API does not start on a database that lacks migrations, if its role may read them', async () => {
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test', max: 1 });
  const url = new URL(own.env.DATABASE_URL);
  const role = `api_${randomBytes(4).toString('hex')}`;
  url.username = role;
  await grantApiRole(pool, url.href);
  const start = async () => await startApi({ API_DATABASE_URL: url.href });
  await pool.query("UPDATE tds.migrations SET name = 'x' || name WHERE name = '0001_core.sql'");
  try {
    const { code, logged } = await start();
    expect(logged).toContain('This database lacks migrations of this release, from 0001_core.sql on');
    expect(code).toBe(1);
    await pool.query(`REVOKE SELECT ON tds.migrations FROM ${role}`);
    expect((await start()).logged).toContain('api is ready');
  } finally {
    await pool.query("UPDATE tds.migrations SET name = '0001_core.sql' WHERE name = 'x0001_core.sql'");
    await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    await pool.end();
  }
});

test('an ingester of another chain fails before it is ready', async () => {
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test', max: 1 });
  await createIngestStore(pool).storeChainId(toFelt(1n));
  const node = await createSimulatedNode({ seed: 'other', manual: true, initialHead: 2 });
  const child = spawn(process.execPath, ['infra/bin/tds.ts', 'ingest'], {
    env: { PATH: process.env['PATH'] ?? '', ...own.env, STARKNET_RPC_URL: node.url },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  try {
    const [logged, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    expect(logged).toContain('Starknet node serves chain');
    expect(logged).not.toContain('ingest is ready');
    expect(code).toBe(1);
  } finally {
    child.kill('SIGKILL');
    await node.close();
    await createAlarms(pool).clear(['ingest.failing:start']);
    await pool.end();
  }
});

test('a start that fails half way releases everything, and is retried in the same process', async () => {
  const kafka = new kafkajs.Kafka({ brokers: [own.env.KAFKA_BROKERS], logLevel: kafkajs.logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  const role = await startRole('project', { ...own.env, STARKNET_RPC_URL: `http://${nobody}` });
  try {
    // The last build that is opened, while other projections begin to run.
    const lastBuild = /FROM tds\.builds[^]*indexed-blocks/;
    await role.proxies.postgres.trap({ request: lastBuild, act: 'reset' }).sprung;
    await role.ready;
    expect(role.output()).toContain('waiting for ');

    const streams = new Set(clickhouseProjections.map(({ topic }) => topic.name));
    const names = [...streams, ...postgresProjections.map(({ name }) => name)];
    const { groups } = await admin.describeGroups(
      names.map((name) => `${own.env.KAFKA_TOPIC_PREFIX}project-${name}`),
    );
    const members = groups.map(({ groupId, members: { length } }) => ({ groupId, length }));
    expect(members).toEqual(groups.map(({ groupId }) => ({ groupId, length: 1 })));
    expect(members).toHaveLength(names.length);
  } finally {
    await role.stop();
    await admin.disconnect();
  }
});

test.each([
  ['observe', 'without a token list', 'tokens.list', { TOKEN_LIST_URL: '', PRICE_FEED_URL: '' }],
  ['project', 'without a cluster', 'clickhouse.replica-missing:one', {}],
] as const)('%s %s clears its alarm of before', async (name, _, alarm, settings) => {
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test', max: 1 });
  const alarms = createAlarms(pool);
  await alarms.raise(alarm, 'no answer');
  await alarms.raise('tokens.other', 'of another part');
  const role = await startRole(name, { ...own.env, STARKNET_RPC_URL: `http://${nobody}`, ...settings });
  try {
    await expect
      .poll(async () => (await raisedAlarms(pool)).map((raised) => raised.name))
      .toEqual(['tokens.other']);
  } finally {
    await role.stop();
    await alarms.clear(['tokens.other']);
    await pool.end();
  }
});

test('a waiting role retries, and probes the stores only when it logs what it waits for', async () => {
  const seen: string[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      seen.push(/application_name\0([^\0]+)/.exec(chunk.toString('latin1'))?.[1] ?? '');
      socket.destroy();
    });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const address = server.address();
  const port = typeof address === 'object' ? address?.port : 0;
  const count = (name: string): number => seen.filter((one) => one === name).length;
  const env = { ...own.env, DATABASE_URL: `postgres://a:b@127.0.0.1:${port}/tds` };
  const child = spawn(process.execPath, ['infra/bin/tds.ts', 'project', 'accounts'], {
    env: { PATH: process.env['PATH'] ?? '', STARKNET_RPC_URL: `http://${nobody}`, ...env },
    stdio: 'ignore',
  });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  try {
    await until('the fifth try', async () => count('tds-project') >= 5);
    expect(count('tds-wait')).toBe(1);
    expect(child.exitCode).toBeNull();
  } finally {
    child.kill('SIGTERM');
    await ended;
    server.close();
  }
});

test('a migration names the read models whose tables ClickHouse has lost, until they are rebuilt', async () => {
  const clickhouse = createClient({ url: own.env.CLICKHOUSE_URL });
  try {
    await clickhouse.command({ query: `DROP TABLE tx_index_v${txIndex.version}_b1 SYNC` });
  } finally {
    await clickhouse.close();
  }
  const named = 'Run `tds rebuild tx-index`.\n';
  expect((await tds({ ...own.env }, 'migrate')).stdout).toContain(named);
  expect(await tds({ ...own.env }, 'rebuild', 'tx-index')).toMatchObject({ code: 0 });
  expect((await tds({ ...own.env }, 'migrate')).stdout).not.toContain(named);
});
