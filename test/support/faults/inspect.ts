import { z } from 'zod';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { SimulatedNode } from '../starknet/node.ts';
import { createKafka } from '../../../infra/kafka/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { chainProjections, deferredProjections, postgresProjections } from '../../../projections/index.ts';
import { topics } from '../../../schemas/topics.ts';
import { foldLog } from '../fold-log.ts';
import { atEnd } from '../projection-world.ts';
import { hex } from '../truth.ts';
import { deferredDifferences, isAnythingDue } from './deferred-tables.ts';
import { compare, tableDifferences, trueTables } from './tables.ts';
import { messagesOf } from '../topic.ts';

/** Compares the stores of a service with its node's canonical chain. */
export interface Inspector {
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  /**
   * True when the log matches the canonical chain, every projection has read the log to its end, and passes have derived all
   * that is due.
   */
  isSettled(): Promise<boolean>;
  /** Differences of log, tables and quarantine from the canonical chain: anything missing or duplicated. */
  differences(): Promise<string[]>;
  /** The same without reading the log, which grows with every fork. */
  tableDifferences(): Promise<string[]>;
  /** Rows of a ClickHouse table that are visible now; 0 while it does not exist. */
  count(table: string): Promise<number>;
  close(): Promise<void>;
}

/** `env`: the settings of the service. */
export function inspector(node: SimulatedNode, env: Readonly<Record<string, string>>): Inspector {
  const log = createLogger('fault-test', process.env['TEST_LOG'] ?? 'silent');
  const pool = createPool(env['DATABASE_URL'] ?? '', {
    applicationName: 'test',
    max: 5,
    // Longer than a service's own timeout, because test files share the machine.
    connectTimeoutMs: 60_000,
  });
  const kafka = createKafka({
    brokers: (env['KAFKA_BROKERS'] ?? '').split(','),
    clientId: 'test',
    topicPrefix: env['KAFKA_TOPIC_PREFIX'] ?? '',
    log,
  });
  const clickhouse = createClickHouse(env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const tableName = async (table: string): Promise<string> => (await servedBuilds(pool)).table(table);

  const headHash = (): string => hex(BigInt(node.ledger.at(node.ledger.head())?.hash ?? 0));
  const logIsWhole = async (): Promise<boolean> => {
    const { rows } = await pool.query<{ whole: boolean }>(
      `SELECT EXISTS (SELECT 1 FROM tds.chunks WHERE name = 'live' AND cursor = $1 + 1)
         AND (EXISTS (SELECT 1 FROM tds.recorded_blocks
                WHERE chunk = 'live' AND height = $1 AND hash = $2 AND intent = 'accept')
              OR EXISTS (SELECT 1 FROM tds.chunks WHERE name = 'live' AND final_hash = $2))
         AND NOT EXISTS (SELECT 1 FROM tds.chunks WHERE name <> 'live' AND status <> 'finished') AS whole`,
      [node.ledger.head(), headHash()],
    );
    return rows[0]?.whole === true;
  };
  const tablesAreRead = async (): Promise<boolean> => {
    const names = [...chainProjections, ...deferredProjections].map(({ name }) => name);
    if (!(await atEnd(kafka, pool, topics.chainBlocks, names))) return false;
    for (const { name, topic } of postgresProjections) {
      if (!(await atEnd(kafka, pool, topic, [name]))) return false;
    }
    return true;
  };

  const logDifferences = async (): Promise<string[]> => {
    const { accepted, breaches } = foldLog(await messagesOf(kafka, topics.chainBlocks));
    const truth = Array.from(
      { length: node.ledger.head() + 1 },
      (_, height) => `${height} ${hex(BigInt(node.ledger.at(height)?.hash ?? 0))}`,
    );
    const found = [...accepted].map(([height, hash]) => `${height} ${hash}`);
    return [...breaches, ...compare('chain.blocks', truth, found)];
  };
  const quarantineDifferences = async (): Promise<string[]> => {
    const schema = (await servedBuilds(pool)).schema('quarantine');
    const { rows } = await pool.query<{ line: string }>(
      `SELECT block || ' ' || position AS line FROM ${schema}.entries WHERE resolved_at IS NULL`,
    );
    const truth = [];
    for (let height = 0; height <= node.ledger.head(); height += 1) {
      truth.push(...node.malformedAt(height).map(({ block, position }) => `${block} ${position}`));
    }
    return compare(
      'quarantine',
      truth,
      rows.map((row) => row.line),
    );
  };

  const allTables = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ name: string; range_start: number; range_end: number | null }>(
      'SELECT name, range_start, range_end FROM tds.chunks',
    );
    const chunkOf = (height: number): string =>
      rows.find((row) => height >= row.range_start && height <= (row.range_end ?? Infinity))?.name ?? '';
    const served = await servedBuilds(pool);
    return [
      ...(await tableDifferences(clickhouse, trueTables(node, chunkOf), (table) => served.table(table))),
      ...(await deferredDifferences(clickhouse, node, (table) => served.table(table))),
      ...(await quarantineDifferences()),
    ];
  };

  return {
    pool,
    kafka,
    clickhouse,
    isSettled: async () =>
      (await logIsWhole()) && (await tablesAreRead()) && !(await isAnythingDue(pool, clickhouse)),
    differences: async () => [...(await logDifferences()), ...(await allTables())],
    tableDifferences: allTables,
    async count(table) {
      const name = await tableName(table).catch(() => null);
      if (name === null) return 0;
      const [row] = await clickhouse.rows({
        name: 'test.count',
        sql: `SELECT count() AS n FROM ${name} FINAL`,
        row: z.object({ n: z.coerce.number() }),
      });
      return row?.n ?? 0;
    },
    close: async () => void (await Promise.all([kafka.close(), pool.end(), clickhouse.close()])),
  };
}
