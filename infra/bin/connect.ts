import { createNodeMetrics } from '../../pipeline/node/metrics.ts';
import { createNode } from '../../pipeline/node/node.ts';
import type { NodeOptions } from '../../pipeline/node/node.ts';
import type { Node } from '../../pipeline/node/types.ts';
import { createClickHouse } from '../clickhouse/client.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import { kafkaConnection } from '../kafka/connection.ts';
import type { Kafka } from '../kafka/client.ts';
import { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import type { Registry } from '../metrics.ts';
import { createPool, isPostgresUnavailable } from '../postgres/client.ts';
import type { Pool } from '../postgres/client.ts';
import { checkMigrated } from '../postgres/migrate.ts';
import { AppError } from '../../schemas/errors.ts';

export interface Connecting {
  readonly config: Config;
  readonly log: Logger;
  /** Closes what was opened. */
  readonly releasers: Releasers;
}

/** A role's statement that takes longer is on a hung server. */
const ROLE_QUERY_MS = 60_000;
const ROLE_CLICKHOUSE_MS = 120_000;
const COMMAND_CLICKHOUSE_MS = 600_000;

export function openKafka({ config, log, releasers }: Connecting, clientId: string): Kafka {
  const kafka = createKafka({
    ...kafkaConnection(config),
    clientId,
    topicPrefix: config.kafkaTopicPrefix,
    allowUnsafeTopics: config.kafkaAllowUnsafeTopics,
    log,
  });
  releasers.push('Kafka', () => kafka.close());
  return kafka;
}

export function openPool(
  { config, log, releasers }: Connecting,
  applicationName: string,
  max: number,
  { url, queryTimeoutMs }: { url?: string; queryTimeoutMs?: number | null } = {},
): Pool {
  const timeoutMs = queryTimeoutMs === undefined ? ROLE_QUERY_MS : queryTimeoutMs;
  const pool = createPool(url ?? required(config, 'databaseUrl'), {
    applicationName,
    max,
    ...(timeoutMs === null ? {} : { queryTimeoutMs: timeoutMs }),
    onError: (error) => log.warn({ err: error }, 'PostgreSQL connection lost'),
  });
  releasers.push('PostgreSQL', () => pool.end());
  return pool;
}

export function openClickHouse(
  { config, releasers }: Connecting,
  application: string,
  {
    url,
    timeoutMs = ROLE_CLICKHOUSE_MS,
    isReader = false,
    connections,
  }: { url?: string; timeoutMs?: number; isReader?: boolean; connections?: number } = {},
): ClickHouse {
  const { clickhouseCluster: name, clickhouseInsertQuorum: insertQuorum } = config;
  const cluster = name === null ? null : { name, insertQuorum };
  const options = {
    application,
    timeoutMs,
    isReader,
    cluster,
    ...(connections === undefined ? {} : { connections }),
  };
  const clickhouse = createClickHouse(url ?? required(config, 'clickhouseUrl'), options);
  releasers.push('ClickHouse', () => clickhouse.close());
  return clickhouse;
}

export function openNode(
  { config, releasers }: Connecting,
  metrics: Registry,
  options: Partial<Omit<NodeOptions, 'url' | 'metrics'>> = {},
): Node {
  const node = createNode({
    url: required(config, 'starknetRpcUrl'),
    timeoutMs: config.rpcTimeoutMs,
    maxConcurrent: config.rpcConcurrency,
    metrics: createNodeMetrics(metrics),
    ...options,
  });
  releasers.push('node', () => node.close());
  return node;
}

interface CommandOptions {
  /** Default true. */
  readonly needsMigrations?: boolean;
}

/**
 * Runs `work` and closes what it opened.
 *
 * @throws VERSION_MISMATCH instead of the error of `work` where the database lacks migrations, unless it does not need them
 */
export async function withConnections<T>(
  config: Config,
  log: Logger,
  work: (connecting: Connecting) => Promise<T>,
  { needsMigrations = true }: CommandOptions = {},
): Promise<T> {
  const releasers = new Releasers((name, error) =>
    log.debug({ err: error, name }, 'could not close resource'),
  );
  try {
    return await work({ config, log, releasers });
  } catch (error) {
    throw needsMigrations ? await explained(error, config) : error;
  } finally {
    await releasers.releaseAll();
  }
}

/** Missing migrations cause errors of every kind: a table, a column or a topic may be missing. */
async function explained(error: unknown, { databaseUrl }: Config): Promise<unknown> {
  if (databaseUrl === null || isPostgresUnavailable(error)) return error;
  return await checkMigrated(databaseUrl).then(
    () => error,
    (found: unknown) => (found instanceof AppError && found.code === 'VERSION_MISMATCH' ? found : error),
  );
}

/** A pool for a command, whose statements have no time limit. */
export function openCommandPool(connecting: Connecting, name: string, max = 4): Pool {
  return openPool(connecting, name, max, { queryTimeoutMs: null });
}

/** The stores of a command, which may open more through them. */
export interface Stores extends Connecting {
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
}

/** Opens the stores for one command and closes them when it is done. */
export async function withStores<T>(
  config: Config,
  name: string,
  log: Logger,
  work: (stores: Stores) => Promise<T>,
  options: CommandOptions = {},
): Promise<T> {
  const open = (connecting: Connecting): Stores => ({
    ...connecting,
    pool: openCommandPool(connecting, name),
    kafka: openKafka(connecting, name),
    clickhouse: openClickHouse(connecting, name, { timeoutMs: COMMAND_CLICKHOUSE_MS }),
  });
  return await withConnections(config, log, async (connecting) => await work(open(connecting)), options);
}
