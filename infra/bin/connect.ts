import { createNodeMetrics } from '../../pipeline/node/metrics.ts';
import type { ChainCheck } from '../../pipeline/node/chain-id.ts';
import { createNode } from '../../pipeline/node/node.ts';
import type { Node } from '../../pipeline/node/types.ts';
import { createClickHouse } from '../clickhouse/client.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import type { Kafka } from '../kafka/client.ts';
import { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import type { Registry } from '../metrics.ts';
import { createPool } from '../postgres/client.ts';
import type { Pool } from '../postgres/client.ts';

interface Connecting {
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
    brokers: required(config, 'kafkaBrokers'),
    clientId,
    topicPrefix: config.kafkaTopicPrefix,
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
  { url, timeoutMs = ROLE_CLICKHOUSE_MS }: { url?: string; timeoutMs?: number } = {},
): ClickHouse {
  const clickhouse = createClickHouse(url ?? required(config, 'clickhouseUrl'), { application, timeoutMs });
  releasers.push('ClickHouse', () => clickhouse.close());
  return clickhouse;
}

export function openNode(
  { config, releasers }: Connecting,
  metrics: Registry,
  {
    maxConcurrent = config.rpcConcurrency,
    checkChain,
  }: { maxConcurrent?: number; checkChain?: ChainCheck } = {},
): Node {
  const node = createNode({
    url: required(config, 'starknetRpcUrl'),
    timeoutMs: config.rpcTimeoutMs,
    maxConcurrent,
    metrics: createNodeMetrics(metrics),
    ...(checkChain === undefined ? {} : { checkChain }),
  });
  releasers.push('node', () => node.close());
  return node;
}

/** The stores of a command; `releasers` closes whatever else it opens. */
export interface Stores {
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly releasers: Releasers;
}

/** Opens the stores for one command and closes them when it is done. */
export async function withStores<T>(
  config: Config,
  name: string,
  log: Logger,
  work: (stores: Stores) => Promise<T>,
): Promise<T> {
  const releasers = new Releasers((what, error) =>
    log.debug({ err: error, what }, 'could not close resource'),
  );
  const opening = { config, log, releasers };
  try {
    return await work({
      // Commands wait for long statements.
      pool: openPool(opening, name, 4, { queryTimeoutMs: null }),
      kafka: openKafka(opening, name),
      clickhouse: openClickHouse(opening, name, { timeoutMs: COMMAND_CLICKHOUSE_MS }),
      releasers,
    });
  } finally {
    await releasers.releaseAll();
  }
}
