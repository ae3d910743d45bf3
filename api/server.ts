import { availableParallelism } from 'node:os';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import { fileURLToPath } from 'node:url';

import type Koa from 'koa';

import type { ClickHouse } from '../infra/clickhouse/client.ts';
import { required } from '../infra/config.ts';
import type { Config } from '../infra/config.ts';
import type { Kafka, Publisher } from '../infra/kafka/client.ts';
import { Releasers, sleep } from '../infra/lifecycle.ts';
import { listenTcp } from '../infra/listen-tcp.ts';
import type { Logger } from '../infra/log.ts';
import { REQUEST_DRAIN_MS } from '../infra/shutdown.ts';
import { createSealing } from '../infra/sealing.ts';
import type { Registry } from '../infra/metrics.ts';
import { openObjectStore } from '../infra/object-store/store.ts';
import type { Pool } from '../infra/postgres/client.ts';
import { listen } from '../infra/postgres/listen.ts';
import { openCounters } from '../infra/redis/client.ts';
import { keyByHash, usableKeys, usableSessions } from '../projections/accounts/queries.ts';
import { newestBlock } from '../projections/indexed-blocks/queries.ts';
import { findOutcomes } from '../projections/outcomes/queries.ts';
import { AD_COUNTED_CHANNEL } from '../schemas/messages/ads.ts';
import { INDEXED_CHANNEL } from '../schemas/messages/chain-status.ts';
import { OBSERVED_CHANNEL } from '../schemas/messages/requests.ts';
import type { Operator } from './admin/operator.ts';
import { createAdEvents } from './ads/events.ts';
import type { AdEvents } from './ads/events.ts';
import { createExportRecords } from './export/records.ts';
import type { ExportRecords } from './export/records.ts';
import { loadConsole } from './console/console.ts';
import type { Console } from './console/console.ts';
import { createApp } from './http/app.ts';
import { answerMalformedRequests } from './http/malformed-requests.ts';
import { limitReads } from './http/clickhouse.ts';
import { limitPipelining } from './http/pipelining.ts';
import { ROWS_PER_CORE } from './http/pacing.ts';
import { limitStatements } from './http/postgres.ts';
import { shareWithinTurn } from './http/share-within-turn.ts';
import { openCommandChannel } from '../infra/commands/channel.ts';
import type { HealthDeps } from './health/health.ts';
import { watchIndexedHeight } from './health/indexed-height.ts';
import type { IndexedHeight } from './health/indexed-height.ts';
import { createOpenStreams } from './stream/open-streams.ts';
import type { OpenStreams } from './stream/open-streams.ts';
import { createTail } from './stream/tail.ts';
import type { Tail } from './stream/tail.ts';
import { createLimits } from './limits/limits.ts';
import type { Limits } from './limits/limits.ts';
import { createPasswordChecker } from './auth/passwords.ts';
import { createReadiness } from './health/readiness.ts';
import { limitCommands } from './commands/command-queue.ts';
import type { CommandsFor } from './commands/command-queue.ts';
import { createRefreshBus } from './commands/refresh.ts';
import type { RefreshBus } from './commands/refresh.ts';
import type { RequestState } from './http/request-state.ts';
import type { ServedBuilds } from '../projections/served.ts';
import { apiRoutes } from './routes.ts';
import { createUsageCounter } from './auth/key-usage.ts';
import type { CheckUrl } from './webhooks/url-checks.ts';

export interface ApiOptions {
  readonly config: Config;
  /** Connects as the read-only role (`API_DATABASE_URL`). */
  readonly pool: Pool;
  /** Connects as the read-only user (`API_CLICKHOUSE_URL`). */
  readonly clickhouse: ClickHouse;
  readonly publisher: Publisher;
  /** For the ends of the topics in /readyz. */
  readonly kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>;
  /** `servedBuilds(pool)` of the projections. */
  readonly servedBuilds: () => Promise<ServedBuilds>;
  /** Checks a URL against the networks that webhooks may reach. */
  readonly checkUrl: CheckUrl;
  readonly operator: Operator;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly metricsText?: HealthDeps['metricsText'];
  /** Unix milliseconds; the system clock by default. */
  readonly now?: () => number;
}

/** What `npm run build -w console` writes. */
const CONSOLE_FOLDER = fileURLToPath(new URL('../console/dist', import.meta.url));
/** Longest wait for Redis at startup. */
const REDIS_WAIT_MS = 1000;

/** Serves the API; resolves when it listens. The caller closes the stores, after this. */
export async function startApi(given: ApiOptions): Promise<{ url: string; close(): Promise<void> }> {
  const options = { ...given, servedBuilds: shareWithinTurn(given.servedBuilds) };
  const { config, log } = options;
  const releasers = new Releasers((name, error) => log.error({ err: error, name }, 'release failed'));
  try {
    const { app, streams } = await composeApp(options, releasers);
    const server = createHttpServer(app);
    const address = { host: config.host, port: config.port, name: 'The API', settings: 'PORT or HOST' };
    const { url } = await listenTcp(server, address);
    releasers.push('http server', () => drain(server));
    releasers.push('streams', () => streams.close());
    return { url, close: () => releasers.releaseAll() };
  } catch (error) {
    await releasers.releaseAll();
    throw error;
  }
}

async function composeApp(
  options: ApiOptions,
  releasers: Releasers,
): Promise<{ app: Koa<RequestState>; streams: OpenStreams }> {
  const { config, pool, publisher, servedBuilds, log, metrics, now = Date.now } = options;
  const { height, tail, streams } = followIndex(options, releasers);
  const indexedHeight = () => height.current();
  const { limits, exports } = await openRedis(options, releasers);
  const usage = createUsageCounter({ publisher, now, log });
  releasers.push('usage', () => usage.close());
  const clickhouseFor = limitReads(options.clickhouse, {
    fileRowsPerSecond: config.exportRate ?? ROWS_PER_CORE * availableParallelism(),
  });
  const ipfsGateway = config.ipfsPublicGatewayUrl ?? config.ipfsGatewayUrl;
  const app = createApp({
    routes: apiRoutes({
      pool,
      clickhouseFor,
      servedBuilds,
      tail,
      streams,
      exports,
      log,
      ...openBuses(options, releasers),
      passwords: await createPasswordChecker(),
      logins: limits.logins,
      secretKey: required(config, 'secretKey'),
      sealing: createSealing(required(config, 'secretKey'), config.secretKeysPrevious),
      checkUrl: options.checkUrl,
      operator: options.operator,
      indexedHeight,
      areLimitsShared: () => limits.areShared(),
      ipfsGateway,
      exportFiles: config.exportFiles === null ? null : await openObjectStore(config.exportFiles),
      syncCallsPerMinute: config.syncCallsPerMinute,
      syncBytesPerHour: config.syncBytesPerHour,
      byteBudgets: limits.byteBudgets,
      sessionHours: config.sessionHours,
      now,
    }),
    // Unqueued reads: a long queue of requests does not make the API unready.
    readiness: createReadiness({
      ...options,
      stallSeconds: config.stallSeconds,
      adminUsername: config.adminUsername,
      indexedHeight,
      areLimitsShared: () => limits.areShared(),
    }),
    metricsText: options.metricsText,
    console: await openConsole(ipfsGateway, log),
    indexedHeight,
    reachesHeight: height.reaches,
    clickhouseFor,
    poolFor: limitStatements(pool),
    limits,
    usage,
    defaultCeiling: config.rateLimitPerHour,
    trustedProxies: config.trustedProxies,
    pool,
    findKey: shareWithinTurn((schema, keyHash) => keyByHash(pool, schema, keyHash)),
    servedBuilds,
    log,
    metrics,
    now,
  });
  return { app, streams };
}

/** Without the built console, the API serves its routes alone. */
async function openConsole(ipfsGateway: string, log: Logger): Promise<Console | null> {
  const built = await loadConsole(CONSOLE_FOLDER, ipfsGateway);
  if (built === null) log.info('console not built; its paths answer 404');
  return built;
}

/** Consumers of the notification that blocks were indexed. */
function followIndex(
  { config, pool, clickhouse, servedBuilds, log, metrics, now = Date.now }: ApiOptions,
  releasers: Releasers,
): { height: IndexedHeight; tail: Tail; streams: OpenStreams } {
  const height = watchIndexedHeight(
    async () => (await newestBlock(clickhouse, await servedBuilds()))?.height ?? null,
    log,
  );
  releasers.push('indexed height', () => height.close());
  const tail = createTail({ clickhouse, pool, servedBuilds, log });
  releasers.push('tail', () => tail.close());
  const listening = listen({
    url: required(config, 'apiDatabaseUrl'),
    channel: INDEXED_CHANNEL,
    applicationName: 'tds-indexed',
    log,
    onNotification: () => {
      height.notify();
      tail.notify();
    },
  });
  releasers.push('tds-indexed', () => listening.close());
  const streams = createOpenStreams({
    perCaller: config.streamsPerKey,
    perUser: Math.max(config.streamsPerUser, config.streamsPerKey),
    endedOf: async (callers) => {
      const schema = (await servedBuilds()).schema('accounts');
      const ids = [...new Set(callers.flatMap(({ id }) => id ?? []))];
      const hashes = [...new Set(callers.flatMap(({ tokenHash }) => tokenHash ?? []))];
      const [keys, sessions] = await Promise.all([
        usableKeys(pool, schema, ids, now()),
        usableSessions(pool, schema, hashes, now()),
      ]);
      return callers.filter((caller) =>
        caller.id === null ? !sessions.has(caller.tokenHash) : keys.get(caller.id) !== caller.restrictions,
      );
    },
    log,
    metrics,
  });
  return { height, tail, streams };
}

/** What is kept in Redis. */
async function openRedis(
  { config, log, metrics, now = Date.now }: ApiOptions,
  releasers: Releasers,
): Promise<{ limits: Limits; exports: ExportRecords }> {
  const counters = openCounters(required(config, 'redisUrl'), {
    keyPrefix: config.redisKeyPrefix,
    timeoutMs: config.redisTimeoutMs,
    log,
  });
  releasers.push('Redis', () => counters.close());
  const ipBlockWindowMs = config.ipBlockWindowSeconds * 1000;
  const limits = createLimits({ counters, ipBlockWindowMs, metrics, now });
  // So that the first requests are counted in Redis; the API starts without it too.
  await counters.settled(REDIS_WAIT_MS);
  return { limits, exports: createExportRecords(counters, now) };
}

/** The buses that append to the log, each notified by PostgreSQL when a projection has stored what it waits for. */
function openBuses(
  { config, pool, publisher, servedBuilds, log, now = Date.now }: ApiOptions,
  releasers: Releasers,
): { commandsFor: CommandsFor; refreshes: RefreshBus; adEvents: AdEvents } {
  const databaseUrl = required(config, 'apiDatabaseUrl');
  const timeoutMs = config.commandTimeoutMs;
  const commands = openCommandChannel({
    publisher,
    databaseUrl,
    findOutcomes: async (submitted) => await findOutcomes(pool, await servedBuilds(), submitted),
    timeoutMs,
    log,
  });
  releasers.push('command channel', () => commands.close());
  const refreshes = createRefreshBus({ publisher, log, now });
  const adEvents = createAdEvents({ publisher, timeoutMs, now });
  const notifiedBy = (channel: string, applicationName: string, onNotification: (name: string) => void) => {
    const listening = listen({ url: databaseUrl, channel, applicationName, log, onNotification });
    releasers.push(applicationName, () => listening.close());
  };
  notifiedBy(OBSERVED_CHANNEL, 'tds-observed', (subject) => refreshes.notify(subject));
  notifiedBy(AD_COUNTED_CHANNEL, 'tds-counted', (id) => adEvents.notify(id));
  return { commandsFor: limitCommands(commands, { timeoutMs }), refreshes, adEvents };
}

function createHttpServer(app: Koa<RequestState>): Server {
  const handle = app.callback();
  const server = createServer(
    { requestTimeout: 30_000, headersTimeout: 15_000 },
    limitPipelining((request, response) => void handle(request, response)),
  );
  answerMalformedRequests(server);
  // Longer than load balancers keep idle connections, so that they never send on one that is closing.
  server.keepAliveTimeout = 75_000;
  return server;
}

/** Takes no more connections, lets requests in flight end, and closes the rest after `REQUEST_DRAIN_MS`. */
async function drain(server: Server): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const isClosed = new AbortController();
  void closed.then(() => isClosed.abort());
  const deadline = performance.now() + REQUEST_DRAIN_MS;
  while (!isClosed.signal.aborted && performance.now() < deadline) {
    // A connection that has just answered is idle and would be kept alive.
    server.closeIdleConnections();
    await sleep(50, isClosed.signal);
  }
  server.closeAllConnections();
  await closed;
}
