import { setTimeout as sleep } from 'node:timers/promises';

import { Registry } from 'prom-client';
import { z } from 'zod';

import { createClickHouse } from '../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { createKafka } from '../../infra/kafka/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { createLogger } from '../../infra/log.ts';
import type { Logger } from '../../infra/log.ts';
import { createPool } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { migrate } from '../../infra/postgres/migrate.ts';
import { chainProjections } from '../../projections/index.ts';
import { servedBuilds } from '../../projections/served.ts';
import { createProjectionMetrics } from '../../projections/engine/metrics.ts';
import type { ProjectionMetrics } from '../../projections/engine/metrics.ts';
import { runClickHouseProjections } from '../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../projections/engine/run/lifetime.ts';
import type { ClickHouseRunOptions } from '../../projections/engine/run/clickhouse-runner.ts';
import type { ChainBlocksMessage } from '../../schemas/messages/chain-blocks.ts';
import { partitionOfHeight, topics } from '../../schemas/topics.ts';
import type { Topic } from '../../schemas/topics.ts';
import { isolated } from './isolation.ts';

/** Real stores of one test file, with helpers for tests of projections. */
export interface ProjectionWorld {
  /** Settings for a process on the same stores. */
  readonly env: Readonly<Record<string, string>>;
  readonly kafka: Kafka;
  readonly pool: Pool;
  readonly clickhouse: ClickHouse;
  /** For operations that the project's own Kafka client does not offer. */
  readonly kafkaAddress: { readonly brokers: readonly string[]; readonly prefix: string };
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
  publish(messages: readonly ChainBlocksMessage[]): Promise<void>;
  /** Starts all projections of chain.blocks; `stopRuns` stops them at the latest. */
  run(options?: Partial<ClickHouseRunOptions>): Promise<ProjectionRun>;
  /** Waits until every checkpoint of these projections is at the end of the log. */
  settled(projections?: readonly string[]): Promise<void>;
  /** Projects all messages and stops. */
  catchUp(options?: Partial<ClickHouseRunOptions>): Promise<void>;
  /** By table: number and hash of the visible rows. Derived rows without their version. */
  checksums(): Promise<Record<string, string>>;
  /** Rows of a query, in which `{{table}}` is the table of build 1. */
  select(sql: string): Promise<Record<string, unknown>[]>;
  stopRuns(): Promise<void>;
  close(): Promise<void>;
}

const tables: readonly string[] = chainProjections.flatMap(({ ddl }) =>
  [...ddl.matchAll(/\{\{([a-z_]+)\}\}/g)].map(([, name = '']) => name),
);
const derived = new Set(['account_ledger_ranges', 'transfer_counts', 'indexed_block_ranges']);

/** Name of a table in the first build of its projection. */
export function firstTable(placeholder: string): string {
  const { version = 1 } = chainProjections.find(({ ddl }) => ddl.includes(`{{${placeholder}}}`)) ?? {};
  return `${placeholder}_v${version}_b1`;
}

export async function projectionWorld(): Promise<ProjectionWorld> {
  const own = await isolated();
  const log = createLogger('test', process.env['LOG_LEVEL'] ?? 'silent');
  const kafka = createKafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    clientId: 'test',
    topicPrefix: own.env.KAFKA_TOPIC_PREFIX,
    log,
  });
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
  const clickhouse = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
  const metrics = createProjectionMetrics(new Registry());
  const publisher = kafka.publisher();
  const runs = new Set<ProjectionRun>();
  await Promise.all([migrate(pool), kafka.ensureTopics()]);

  const select: ProjectionWorld['select'] = (sql) =>
    clickhouse.rows({
      name: 'test',
      sql: sql.replaceAll(/\{\{([a-z_]+)\}\}/g, (_, name: string) => firstTable(name)),
      row: z.record(z.string(), z.unknown()),
    });

  const world: ProjectionWorld = {
    env: { ...own.env },
    kafka,
    pool,
    clickhouse,
    kafkaAddress: { brokers: own.env.KAFKA_BROKERS.split(','), prefix: own.env.KAFKA_TOPIC_PREFIX },
    log,
    metrics,
    select,
    async publish(messages) {
      await publisher.publish(
        topics.chainBlocks,
        messages.map((value) => ({ value, partition: partitionOfHeight(value.block.height) })),
      );
    },
    async run(options = {}) {
      const run = await runClickHouseProjections({
        kafka,
        clickhouse,
        pool,
        projections: chainProjections,
        groupId: 'project',
        log,
        metrics,
        ...options,
      });
      runs.add(run);
      return run;
    },
    async settled(projections = chainProjections.map(({ name }) => name)) {
      await until(async () => await atEnd(kafka, pool, topics.chainBlocks, projections));
    },
    async catchUp(options) {
      const run = await world.run(options);
      try {
        await Promise.race([world.settled(), run.done]);
      } finally {
        await run.stop();
      }
    },
    async checksums() {
      const sums: Record<string, string> = {};
      for (const table of tables) {
        const columns = derived.has(table) ? '* EXCEPT (seq)' : '*';
        const [row] = await select(
          `SELECT count() AS rows, groupBitXor(cityHash64(${columns})) AS hash FROM {{${table}}} FINAL`,
        );
        sums[table] = `${String(row?.['rows'])} ${String(row?.['hash'])}`;
      }
      return sums;
    },
    async stopRuns() {
      for (const run of runs) await run.stop();
      runs.clear();
    },
    async close() {
      await world.stopRuns();
      await publisher.close();
      await Promise.all([kafka.close(), pool.end(), clickhouse.close()]);
      await own.drop();
    },
  };
  return world;
}

/** Whether the checkpoints of the served builds of these projections are at the end of the topic, in every partition. */
export async function atEnd(
  kafka: Kafka,
  pool: Pool,
  topic: Topic<unknown>,
  projections: readonly string[],
): Promise<boolean> {
  const heads = new Map((await kafka.offsets(topic)).map(({ partition, high }) => [partition, high]));
  const { rows } = await pool.query<{ partition: number; next_offset: number }>(
    `SELECT partition, next_offset FROM tds.projection_checkpoints
     WHERE state = 'serving' AND topic = $1 AND projection = ANY ($2)`,
    [topic.name, projections],
  );
  return (
    rows.length === heads.size * projections.length &&
    rows.every(({ partition, next_offset }) => heads.get(partition) === next_offset)
  );
}

/** Polls until the condition holds; throws after `ms`. */
export async function until(holds: () => Promise<boolean>, ms = 120_000): Promise<void> {
  const end = Date.now() + ms;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`condition not met after ${ms} ms: ${holds.toString()}`);
    await sleep(50);
  }
}

/** The served ledger has an account which the log does not have. */
export async function giveToNobody(world: Pick<ProjectionWorld, 'pool' | 'clickhouse'>): Promise<void> {
  const served = await servedBuilds(world.pool);
  const [byBlock, ranges] = [served.table('account_ledger_by_block'), served.table('account_ledger_ranges')];
  const of = (from: string): string =>
    `FROM ${from} FINAL WHERE range = 0 AND delta > 0 ORDER BY token LIMIT 1`;
  await world.clickhouse.command(
    `INSERT INTO ${byBlock} SELECT range, toFixedString('nobody', 32), token, block, 5, 1, seq, 0 ${of(byBlock)}`,
  );
  await world.clickhouse.command(
    `INSERT INTO ${ranges} SELECT toFixedString('nobody', 32), token, range, 5, 1, seq, 0 ${of(ranges)}`,
  );
}
