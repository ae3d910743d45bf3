import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { z } from 'zod';

import { createClickHouse } from '../../infra/clickhouse/client.ts';
import type { ClickHouse, Params } from '../../infra/clickhouse/client.ts';
import { createKafka } from '../../infra/kafka/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { createLogger } from '../../infra/log.ts';
import { createPool } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { servedBuilds } from '../../projections/served.ts';
import type { ServedBuilds } from '../../projections/served.ts';

/** The stores of a running service, with write access. */
export interface Stores {
  readonly clickhouse: ClickHouse;
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly served: ServedBuilds;
  /** Rows of a statement; `{{table}}` stands for the served table. */
  readonly query: <T>(sql: string, row: z.ZodType<T>, params?: Params) => Promise<T[]>;
  /** The single number of a statement, in a column `n`. */
  readonly number: (sql: string, params?: Params) => Promise<number>;
  close(): Promise<void>;
}

const runFile = z.object({ env: z.record(z.string(), z.string()) });
const oneNumber = z.object({ n: z.coerce.number() });

export async function openStores(dataDir: string): Promise<Stores> {
  const { env } = runFile.parse(JSON.parse(readFileSync(join(dataDir, 'run.json'), 'utf8')));
  const log = createLogger('bench', 'error');
  const pool = createPool(env['DATABASE_URL'] ?? '', { applicationName: 'bench', max: 2 });
  const clickhouse = createClickHouse(env['CLICKHOUSE_URL'] ?? '', { application: 'bench' });
  const kafka = createKafka({
    brokers: (env['KAFKA_BROKERS'] ?? '').split(','),
    clientId: 'bench',
    topicPrefix: env['KAFKA_TOPIC_PREFIX'] ?? '',
    log,
  });
  const served = await servedBuilds(pool);
  const query: Stores['query'] = (sql, row, params = {}) => {
    const named = sql.replaceAll(/\{\{([a-z_]+)\}\}/g, (_, name: string) => served.table(name));
    return clickhouse.rows({ name: 'bench', sql: named, row }, params);
  };
  return {
    clickhouse,
    pool,
    kafka,
    served,
    query,
    async number(sql, params) {
      const [row] = await query(sql, oneNumber, params);
      if (row === undefined) throw new Error(`no row: ${sql}`);
      return row.n;
    },
    async close() {
      await Promise.all([kafka.close(), clickhouse.close(), pool.end()]);
    },
  };
}

const partsRow = z.object({
  table: z.string(),
  rows: z.coerce.number(),
  parts: z.coerce.number(),
  stored: z.coerce.number(),
  plain: z.coerce.number(),
});

/** Size on disk of each table. */
export function tableSizes({ query }: Stores): Promise<z.infer<typeof partsRow>[]> {
  return query(
    `SELECT table, sum(rows) AS rows, count() AS parts, sum(data_compressed_bytes) AS stored,
       sum(data_uncompressed_bytes) AS plain
     FROM system.parts WHERE active AND database = currentDatabase() GROUP BY table ORDER BY stored DESC`,
    partsRow,
  );
}
