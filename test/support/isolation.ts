import { randomBytes } from 'node:crypto';

import { createClient } from '@clickhouse/client';
import { Redis } from 'ioredis';
import pg from 'pg';
import { inject } from 'vitest';

import type { EmbeddedUrls } from '../../infra/embedded/index.ts';

/** Databases and a topic prefix of the shared servers, for one test file. */
export interface Isolated {
  /** Settings for a role of the service. */
  readonly env: EmbeddedUrls & { readonly KAFKA_TOPIC_PREFIX: string };
  /** Drops the databases; the topics end with the broker. */
  drop(): Promise<void>;
}

/**
 * `const own = await isolated()` in `beforeAll`, `await own.drop()` in `afterAll`. Creating a database takes milliseconds,
 * starting a server seconds. Redis has a database per worker, emptied here, as a worker runs one file at a time.
 */
export async function isolated(): Promise<Isolated> {
  const { urls } = inject('backend');
  const name = `tds_${randomBytes(6).toString('hex')}`;
  const redis = inDatabase(urls.REDIS_URL, String(Number(process.env['VITEST_POOL_ID'] ?? 0) % 16));
  await Promise.all([
    onPostgres(urls.DATABASE_URL, `CREATE DATABASE ${name}`),
    onClickHouse(urls.CLICKHOUSE_URL, `CREATE DATABASE ${name} ENGINE = Atomic`),
    emptyRedis(redis),
  ]);
  return {
    env: {
      KAFKA_BROKERS: urls.KAFKA_BROKERS,
      KAFKA_TOPIC_PREFIX: `${name}.`,
      CLICKHOUSE_URL: inDatabase(urls.CLICKHOUSE_URL, name),
      API_CLICKHOUSE_URL: inDatabase(urls.API_CLICKHOUSE_URL, name),
      DATABASE_URL: inDatabase(urls.DATABASE_URL, name),
      ...(urls.API_DATABASE_URL === undefined
        ? {}
        : { API_DATABASE_URL: inDatabase(urls.API_DATABASE_URL, name) }),
      REDIS_URL: redis,
    },
    async drop() {
      await Promise.all([
        onPostgres(urls.DATABASE_URL, `DROP DATABASE ${name} WITH (FORCE)`),
        onClickHouse(urls.CLICKHOUSE_URL, `DROP DATABASE ${name} SYNC`),
      ]);
    },
  };
}

function inDatabase(url: string, name: string): string {
  const changed = new URL(url);
  changed.pathname = `/${name}`;
  return changed.href;
}

async function onPostgres(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

async function onClickHouse(url: string, sql: string): Promise<void> {
  const client = createClient({ url });
  try {
    await client.command({ query: sql });
  } finally {
    await client.close();
  }
}

async function emptyRedis(url: string): Promise<void> {
  const client = new Redis(url);
  try {
    await client.flushdb();
  } finally {
    client.disconnect();
  }
}
