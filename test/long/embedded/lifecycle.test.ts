import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { createClient } from '@clickhouse/client';
import kafkajs from 'kafkajs';
import pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';

import { startEmbedded } from '../../../infra/embedded/index.ts';
import type { Embedded, EmbeddedUrls } from '../../../infra/embedded/index.ts';
import { markOf } from '../../../infra/embedded/processes.ts';
import { createLogger } from '../../../infra/log.ts';

/** The embedded services through kills, second starts, restricted folders and occupied ports. */
const log = createLogger('test', 'warn');
const noUrl = {
  KAFKA_BROKERS: 'none:1',
  CLICKHOUSE_URL: 'http://none',
  API_CLICKHOUSE_URL: 'http://none',
  DATABASE_URL: 'postgres://none',
};

let dataDir: string;
let releases: (() => Promise<unknown> | void)[];
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'tds-life-'));
  releases = [() => rmSync(dataDir, { recursive: true, force: true })];
});
afterEach(async () => {
  for (const release of releases.toReversed()) await release();
});

async function start(folder: string, env: Record<string, string> = {}): Promise<Embedded> {
  const embedded = await startEmbedded({ dataDir: folder, log, env });
  releases.push(() => embedded.stop());
  return embedded;
}

async function startChild(): Promise<{ child: ChildProcess; urls: EmbeddedUrls; pids: number[] }> {
  const script = fileURLToPath(new URL('start-process.ts', import.meta.url));
  const child = spawn(process.execPath, [script, dataDir], { stdio: ['ignore', 'pipe', 'inherit'] });
  releases.push(() => void child.kill('SIGKILL'));
  for await (const line of createInterface({ input: child.stdout })) {
    return { child, ...(JSON.parse(line) as { urls: EmbeddedUrls; pids: number[] }) };
  }
  throw new Error('the child ended without a word');
}

async function writeEverywhere(urls: EmbeddedUrls): Promise<void> {
  const clickhouse = createClient({ url: urls.CLICKHOUSE_URL });
  await clickhouse.command({ query: 'CREATE TABLE kept (x UInt8) ENGINE = MergeTree ORDER BY x' });
  await clickhouse.insert({ table: 'kept', values: [{ x: 7 }], format: 'JSONEachRow' });
  await clickhouse.close();
  const postgres = new pg.Client({ connectionString: urls.DATABASE_URL });
  await postgres.connect();
  await postgres.query('CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)');
  await postgres.end();
  const kafka = kafkaAt(urls);
  const [admin, producer] = [
    kafka.admin(),
    kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner }),
  ];
  await admin.connect();
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic: 'kept', numPartitions: 1 }] });
  await admin.disconnect();
  await producer.connect();
  await producer.send({ topic: 'kept', acks: -1, messages: [{ value: '7' }] });
  await producer.disconnect();
}

async function readEverywhere(urls: EmbeddedUrls): Promise<unknown> {
  const clickhouse = createClient({ url: urls.CLICKHOUSE_URL });
  const rows = await (
    await clickhouse.query({ query: 'SELECT x FROM kept', format: 'JSONEachRow' })
  ).json<unknown>();
  await clickhouse.close();
  const postgres = new pg.Client({ connectionString: urls.DATABASE_URL });
  await postgres.connect();
  const { rows: kept } = await postgres.query<{ x: number }>('SELECT x FROM kept');
  await postgres.end();
  const admin = kafkaAt(urls).admin();
  await admin.connect();
  const offsets = await admin.fetchTopicOffsets('kept');
  await admin.disconnect();
  return { clickhouse: rows, postgres: kept, kafka: offsets.map(({ high }) => high) };
}

function kafkaAt(urls: EmbeddedUrls): kafkajs.Kafka {
  return new kafkajs.Kafka({ brokers: [urls.KAFKA_BROKERS], logLevel: kafkajs.logLevel.NOTHING });
}

test('services end with a killed start, and an immediate next start finds the data', async () => {
  const first = await startChild();
  await writeEverywhere(first.urls);
  first.child.kill('SIGKILL');

  // The services are still stopping: the start waits for them and takes over the stale lock.
  const second = await start(dataDir);
  for (const pid of first.pids) expect(markOf(pid)).toBeNull();
  expect(second.urls).toEqual(first.urls);
  expect(await readEverywhere(second.urls)).toEqual({
    clickhouse: [{ x: 7 }],
    postgres: [{ x: 7 }],
    kafka: ['1'],
  });
});

test('starts after services were killed together with their parent', async () => {
  const first = await startChild();
  await writeEverywhere(first.urls);
  first.child.kill('SIGSTOP');
  for (const pid of first.pids) process.kill(pid, 'SIGKILL');
  first.child.kill('SIGKILL');
  const second = await start(dataDir);
  expect(await readEverywhere(second.urls)).toMatchObject({ clickhouse: [{ x: 7 }], postgres: [{ x: 7 }] });
});

test('restarts a killed service on the same port with its data', async () => {
  let restarts = 0;
  const embedded = await startEmbedded({ dataDir, log, env: {}, onRestart: () => void (restarts += 1) });
  releases.push(() => embedded.stop());
  await writeEverywhere(embedded.urls);
  const before = embedded.services.map(({ pid }) => pid);
  for (const pid of before) process.kill(pid, 'SIGKILL');
  await expect.poll(() => restarts).toBe(before.length);
  expect(await readEverywhere(embedded.urls)).toEqual({
    clickhouse: [{ x: 7 }],
    postgres: [{ x: 7 }],
    kafka: ['1'],
  });
  const after = embedded.services.map(({ pid }) => pid);
  for (const [i, pid] of after.entries()) expect(pid).not.toBe(before[i]);
  await embedded.stop();
  for (const pid of after) expect(markOf(pid)).toBeNull();
});

test('refuses a second start on a folder in use and names the process that uses it', async () => {
  const first = await start(dataDir, noUrl);
  await expect(startEmbedded({ dataDir, log, env: noUrl })).rejects.toMatchObject({
    code: 'CONFLICT',
    message: expect.stringContaining(`in use by process ${process.pid}`),
  });
  expect(first.services.map(({ name }) => name)).toEqual(['redis']);
  expect(markOf(first.services[0]?.pid ?? 0)).not.toBeNull();
});

test('runs two folders side by side, and starts no service whose URL is given', async () => {
  const other = mkdtempSync(join(tmpdir(), 'tds-life-'));
  releases.push(() => rmSync(other, { recursive: true, force: true }));
  const [first, second] = await Promise.all([start(dataDir, noUrl), start(other, noUrl)]);
  expect(first.urls.REDIS_URL).not.toBe(second.urls.REDIS_URL);
  expect(first.urls).toMatchObject(noUrl);
});

test('changes a remembered port that another process uses', async () => {
  const first = await start(dataDir, noUrl);
  await first.stop();
  const port = Number(new URL(first.urls.REDIS_URL).port);
  const squatter = createServer().listen(port, '127.0.0.1');
  releases.push(() => void squatter.close());
  const second = await start(dataDir, noUrl);
  expect(second.urls.REDIS_URL).not.toBe(first.urls.REDIS_URL);
});

test('PostgreSQL runs in a folder that only its owner can read; so are the secrets', async () => {
  chmodSync(dataDir, 0o700);
  const { urls } = await start(dataDir, { ...noUrl, DATABASE_URL: '', REDIS_URL: 'redis://none' });
  const client = new pg.Client({ connectionString: urls.DATABASE_URL });
  await client.connect();
  await client.end();
  expect(statSync(dataDir).mode & 0o777).toBe(0o700);
  expect(statSync(join(dataDir, 'postgres.password')).mode & 0o777).toBe(0o600);
  expect(urls.DATABASE_URL).toContain(readFileSync(join(dataDir, 'postgres.password'), 'utf8').trim());
});

test('a failed start names the part and the reason, and leaves nothing running', async () => {
  // A file in place of the cluster's folder.
  writeFileSync(join(dataDir, 'clickhouse'), '');
  const failed = startEmbedded({ dataDir, log, env: { ...noUrl, CLICKHOUSE_URL: '' } });
  await expect(failed).rejects.toThrow(/clickhouse/);
  // Redis had started in parallel; if it still ran, its folder would be locked.
  rmSync(join(dataDir, 'clickhouse'));
  const again = await start(dataDir, noUrl);
  expect(again.services).toHaveLength(1);
});

test('stops quickly and completely', async () => {
  const embedded = await start(dataDir);
  const began = performance.now();
  await embedded.stop();
  expect(performance.now() - began).toBeLessThan(8000);
  for (const { pid, exited } of embedded.services) {
    await exited;
    expect(markOf(pid)).toBeNull();
  }
});
