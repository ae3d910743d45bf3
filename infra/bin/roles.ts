import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';

import { startApi } from '../../api/server.ts';
import { holdChainIn } from '../../pipeline/ingest/identify.ts';
import { startIngester } from '../../pipeline/ingest/ingest.ts';
import { createIngestMetrics } from '../../pipeline/ingest/metrics.ts';
import { createStandards } from '../../pipeline/ingest/contracts/standards.ts';
import { createIngestStore } from '../../pipeline/ingest/store/store.ts';
import type { HoldChain } from '../../pipeline/node/chain-id.ts';
import { createNodeMetrics } from '../../pipeline/node/metrics.ts';
import { createNode } from '../../pipeline/node/node.ts';
import { startDispatcher } from '../../pipeline/dispatch/dispatcher.ts';
import { createObserverMetrics } from '../../pipeline/observe/metrics.ts';
import { runTokenObserver } from '../../pipeline/observe/tokens.ts';
import { servedBuilds, servedSchema } from '../../projections/served.ts';
import { clickhouseProjections, postgresProjections, projections } from '../../projections/index.ts';
import { createProjectionMetrics } from '../../projections/engine/metrics.ts';
import { runPostgresProjection } from '../../projections/engine/run/postgres-runner.ts';
import { runClickHouseProjections } from '../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../projections/engine/run/follow-served.ts';
import { startSampling } from '../../projections/engine/verify/sampling.ts';
import { AppError } from '../../schemas/errors.ts';
import { createClickHouse } from '../clickhouse/client.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import { systemClock } from '../clock.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createKafka } from '../kafka/client.ts';
import type { Kafka } from '../kafka/client.ts';
import type { Releasers } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import type { Registry } from '../metrics.ts';
import { createPool } from '../postgres/client.ts';
import { createSealing } from '../sealing.ts';
import type { Pool } from '../postgres/client.ts';
import { startBalanceObserver } from './balance-observer.ts';
import { bodyReader } from './body-reader.ts';
import { openEgress } from './egress.ts';
import { startNftObserver } from './nft-observer.ts';
import { startPriceObservers } from './price-observers.ts';
import { isMistake } from './process.ts';
import { allRunning } from './role-attempt.ts';
import { serviceMetrics } from './service-metrics.ts';
import { createWhereServed } from './where-served.ts';

/** What a role is given; whatever it opens it pushes to `releasers`: they are released when it does not start, too. */
export interface RoleContext {
  readonly config: Config;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly releasers: Releasers;
  readonly signal: AbortSignal;
  /** Ends the process: a supervisor starts it again. */
  readonly fail: (error: unknown) => void;
}

/** A writer that is silent for so long has lost its chunks to another process. */
const LEASE_MS = 10_000;

/** No query of a request takes so long; a client has gone by then. */
const REQUEST_MS = 15_000;

/** A statement of a role that takes longer meets a server that hangs. Those of requests are far quicker, or of no use. */
const ROLE_QUERY_MS = 60_000;
const API_QUERY_MS = 8000;

export interface Role {
  readonly name: string;
  readonly summary: string;
  /** Resolves when the role does its work; gives its URL when it serves one. */
  start(context: RoleContext, only: readonly string[]): Promise<{ url: string | null }>;
}

const ingest: Role = {
  name: 'ingest',
  summary: 'follow the chain and write its blocks to the log',
  async start({ config, log, metrics, releasers, signal, fail }) {
    const kafka = openKafka({ config, log, releasers }, 'tds-ingest');
    const pool = openPool(config, releasers, 'tds-ingest', 8, log);
    const clickhouse = openClickHouse(releasers, required(config, 'clickhouseUrl'), 'tds-ingest');
    const node = openNode(config, metrics, releasers);
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const ingester = startIngester(
      {
        node,
        store: createIngestStore(pool),
        publisher,
        standards: createStandards({ node, pool, log }),
        openBodies: bodyReader({ pool, clickhouse, kafka }),
        clock: systemClock,
        log,
        metrics: createIngestMetrics(metrics),
        settings: {
          indexFrom: config.indexFrom,
          backfillChunkBlocks: config.backfillChunkBlocks,
          backfillConcurrency: config.backfillConcurrency,
          prefetchBytes: config.prefetchBytes,
          prefetchConcurrency: config.rpcConcurrency,
          headPollMs: config.headPollMs,
          l1PollMs: config.l1PollSeconds * 1000,
          stallMs: config.stallSeconds * 1000,
          leaseMs: LEASE_MS,
          holder: `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`,
        },
      },
      signal,
    );
    ingester.done.catch(fail);
    releasers.push('ingester', () => ingester.stop());
    return { url: null };
  },
};

const project: Role = {
  name: 'project',
  summary: 'build the read models from the log; all of them, or those that are named',
  async start({ config, log, metrics: registry, releasers, fail }, only) {
    const unknown = only.filter((name) => !projections.some((projection) => projection.name === name));
    if (unknown.length > 0) {
      const names = projections.map(({ name }) => name).join(', ');
      throw new AppError('INVALID', `No projection is called ${unknown.join(', ')}; there are ${names}`);
    }
    const wanted = ({ name }: { name: string }): boolean => only.length === 0 || only.includes(name);
    const kafka = openKafka({ config, log, releasers }, 'tds-project');
    const pool = openPool(config, releasers, 'tds-project', 12, log);
    const clickhouse = openClickHouse(releasers, required(config, 'clickhouseUrl'), 'tds-project');
    const metrics = createProjectionMetrics(registry);
    const runs: Promise<ProjectionRun>[] = postgresProjections.filter(wanted).map((projection) =>
      runPostgresProjection({
        kafka,
        pool,
        projection,
        groupId: `project-${projection.name}`,
        log,
        metrics,
      }),
    );
    for (const [topic, together] of Map.groupBy(clickhouseProjections.filter(wanted), (one) => one.topic)) {
      const names = only.length === 0 ? [] : together.map(({ name }) => name);
      const groupId = ['project', topic.name, ...names].join('-');
      const limits = { rows: config.batchRows };
      runs.push(
        runClickHouseProjections({
          kafka,
          clickhouse,
          pool,
          projections: together,
          groupId,
          log,
          metrics,
          limits,
        }),
      );
    }
    await allRunning(runs, { releasers, fail });
    if (only.length === 0) {
      const sampling = startSampling({ pool, clickhouse, kafka, clock: systemClock, log, metrics: registry });
      releasers.push('sampling', () => sampling.stop());
    }
    return { url: null };
  },
};

const observe: Role = {
  name: 'observe',
  summary:
    'ask the chain what the log makes one want to know: names and decimals of tokens, balances; read prices; fetch metadata of NFTs',
  async start(context) {
    const { config, log, metrics, releasers, signal, fail } = context;
    const kafka = openKafka({ config, log, releasers }, 'tds-observe');
    const pool = openPool(config, releasers, 'tds-observe', 8, log);
    const hold = holdChainIn(createIngestStore(pool));
    const node = openNode(config, metrics, releasers, async (served) => {
      await hold(served).catch((error: unknown) => {
        if (isMistake(error)) fail(error);
        throw error;
      });
    });
    const observers = createObserverMetrics(metrics);
    const observer = await runTokenObserver({ config, node, pool, kafka, log, metrics: observers, signal });
    observer.done.catch(fail);
    releasers.push('token observer', () => observer.stop());
    const clickhouse = openClickHouse(releasers, required(config, 'clickhouseUrl'), 'tds-observe');
    await startBalanceObserver(context, { kafka, pool, clickhouse, node });
    await startPriceObservers(context, { kafka, pool });
    await startNftObserver(context, { kafka, pool, clickhouse, node, observers });
    return { url: null };
  },
};

const dispatch: Role = {
  name: 'dispatch',
  summary: 'match what happens with the webhooks that want to hear of it, and deliver it',
  async start({ config, log, metrics, releasers, fail }) {
    const kafka = openKafka({ config, log, releasers }, 'tds-dispatch');
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const pool = openPool(config, releasers, 'tds-dispatch', 10, log);
    const clickhouse = openClickHouse(releasers, required(config, 'clickhouseUrl'), 'tds-dispatch');
    const dispatcher = await startDispatcher({
      config,
      kafka,
      publisher,
      pool,
      clickhouse,
      egress: openEgress(config, releasers),
      sealing: createSealing(required(config, 'secretKey'), config.secretKeysBefore),
      webhooks: () => servedSchema(pool, 'webhooks'),
      whereServed: createWhereServed(pool),
      clock: systemClock,
      log,
      metrics,
    });
    dispatcher.done.catch(fail);
    releasers.push('dispatcher', () => dispatcher.stop());
    return { url: null };
  },
};

const api: Role = {
  name: 'api',
  summary: 'serve the read models over HTTP',
  async start({ config, log, metrics, releasers }) {
    const kafka = openKafka({ config, log, releasers }, 'tds-api');
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const pool = createPool(required(config, 'apiDatabaseUrl'), {
      applicationName: 'tds-api',
      max: 12,
      queryTimeoutMs: API_QUERY_MS,
      onError: (error) => log.warn({ err: error }, 'PostgreSQL connection lost'),
    });
    releasers.push('PostgreSQL', () => pool.end());
    const clickhouse = openClickHouse(releasers, required(config, 'apiClickhouseUrl'), 'tds-api', REQUEST_MS);
    const served = (): ReturnType<typeof servedBuilds> => servedBuilds(pool);
    const egress = openEgress(config, releasers);
    const server = await startApi({
      config,
      pool,
      clickhouse,
      publisher,
      kafka,
      servedBuilds: served,
      checkUrl: (url) => egress.checkUrl(url),
      log,
      metrics,
      metricsText: serviceMetrics({
        registry: metrics,
        pool,
        clickhouse,
        kafka,
        stallSeconds: config.stallSeconds,
        servedBuilds: served,
      }),
    });
    releasers.push('http server', () => server.close());
    return { url: server.url };
  },
};

export const roles: readonly Role[] = [ingest, project, observe, dispatch, api];

function openKafka(
  { config, log, releasers }: Pick<RoleContext, 'config' | 'log' | 'releasers'>,
  clientId: string,
): Kafka {
  const kafka = createKafka({
    brokers: required(config, 'kafkaBrokers'),
    clientId,
    topicPrefix: config.kafkaTopicPrefix,
    log,
  });
  releasers.push('Kafka', () => kafka.close());
  return kafka;
}

function openPool(
  config: Config,
  releasers: Releasers,
  applicationName: string,
  max: number,
  log: Logger,
): Pool {
  const pool = createPool(required(config, 'databaseUrl'), {
    applicationName,
    max,
    queryTimeoutMs: ROLE_QUERY_MS,
    onError: (error) => log.warn({ err: error }, 'PostgreSQL connection lost'),
  });
  releasers.push('PostgreSQL', () => pool.end());
  return pool;
}

function openClickHouse(
  releasers: Releasers,
  url: string,
  application: string,
  timeoutMs = 120_000,
): ClickHouse {
  const clickhouse = createClickHouse(url, { application, timeoutMs });
  releasers.push('ClickHouse', () => clickhouse.close());
  return clickhouse;
}

function openNode(
  config: Config,
  metrics: Registry,
  releasers: Releasers,
  holdChain?: HoldChain,
): ReturnType<typeof createNode> {
  const node = createNode({
    url: required(config, 'starknetRpcUrl'),
    timeoutMs: config.rpcTimeoutMs,
    maxConcurrent: config.rpcConcurrency,
    metrics: createNodeMetrics(metrics),
    ...(holdChain === undefined ? {} : { holdChain }),
  });
  releasers.push('node', () => node.close());
  return node;
}
