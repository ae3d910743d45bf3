import type { Config } from '../../infra/config.ts';
import type { Registry } from '../../infra/metrics.ts';
import { isStoreUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { Sealing } from '../../infra/sealing.ts';
import { oldestWebhookAt } from '../../projections/webhooks/queries.ts';
import type { Egress } from '../egress/egress.ts';
import { createLogReaderRetry } from '../log-reading.ts';
import type { Loop } from '../../infra/loop.ts';
import { startCleanup } from './cleanup.ts';
import { listenForCommands } from './command-wakes.ts';
import { startQuota } from './quota.ts';
import { startMaintenance } from './maintenance.ts';
import { balanceMatcher } from './match/balances.ts';
import type { DispatchDeps, MatchDeps } from './deps.ts';
import { launchMatcher } from './match/launches.ts';
import { runMatcher } from './match/matcher.ts';
import type { MatcherDeps } from './match/matcher.ts';
import { priceMatcher } from './match/prices.ts';
import { transferMatcher } from './match/transfers.ts';
import { createDispatchMetrics } from './metrics.ts';
import type { DispatchMetrics } from './metrics.ts';
import { startReadableSecretsCheck } from './readable-secrets.ts';
import { runRequests } from './requests.ts';
import { createSend } from './send/attempt.ts';
import { startSender } from './send/sender.ts';
import type { Sender } from './send/sender.ts';

export interface DispatcherOptions extends Omit<
  DispatchDeps,
  'metrics' | 'retryWhileUnavailable' | 'signal'
> {
  readonly config: Pick<
    Config,
    | 'webhookRetryDelays'
    | 'webhookTimeoutMs'
    | 'webhookDisableAfter'
    | 'webhookConcurrency'
    | 'webhookEndpointConcurrency'
    | 'webhookHistoryDays'
    | 'webhookMaxDeliveries'
    | 'webhookMaxDeliveriesPerUser'
  >;
  /** One connection listens there for decided commands. */
  readonly databaseUrl: string;
  readonly egress: Egress;
  readonly sealing: Sealing;
  readonly metrics: Registry;
}

export interface Dispatcher {
  /** Rejects with the error that ends the dispatcher. */
  readonly done: Promise<void>;
  /** Begins to read the log. Rejects also where the dispatcher is stopped meanwhile; where it rejects, stop the dispatcher. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Sends webhooks: matchers read topics and store deliveries, a sender makes the attempts. Several dispatchers share the
 * partitions and the due deliveries. The sender works from the beginning, also while `start` waits for Kafka.
 */
export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { config, databaseUrl, kafka, publisher, pool, webhooks, clock, log } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const metrics = createDispatchMetrics(options.metrics);
  const retryWhileUnavailable = createLogReaderRetry('dispatcher', log, signal);
  const onFatal = (error: unknown): void => {
    if (!signal.aborted) ending.reject(error);
    // What a stop gives up is no failure.
    else if (error !== signal.reason && !isStoreUnavailable(error))
      log.error({ err: error }, 'failed while stopping');
  };
  const common = { pool, webhooks, clock, log, metrics, retryWhileUnavailable };

  const sender = startConfiguredSender(options, metrics, retryWhileUnavailable, onFatal);
  const onMatched = (): void => sender.wake();
  const onDue = (): void => {
    sender.wake();
    cleanup.wake();
  };
  const settings = { deadLimit: config.webhookDisableAfter };
  const maintenance = startMaintenance({ ...common, publisher, onDue, settings }, onFatal);
  const cleanup = startCleanup({ ...common, settings: { historyDays: config.webhookHistoryDays } }, onFatal);
  const { webhookMaxDeliveries: perWebhook, webhookMaxDeliveriesPerUser: perUser } = config;
  const quota = startQuota({ ...common, publisher, settings: { perWebhook, perUser } }, onFatal);
  const secrets = startReadableSecretsCheck({ ...common, sealing: options.sealing }, onFatal);
  /** Woken by decided commands. */
  const loops = [maintenance];
  const listener = listenForCommands(databaseUrl, log, () => {
    for (const loop of loops) loop.wake();
  });
  const stops = [sender, maintenance, cleanup, quota, secrets].map((one) => () => one.stop());
  stops.push(() => listener.close());
  const begin = async (loop: Loop): Promise<void> => {
    loops.push(loop);
    stops.push(() => loop.stop());
    if (signal.aborted) await loop.stop();
    signal.throwIfAborted();
  };
  return {
    done: ending.promise,
    async start() {
      await begin(await runRequests({ ...common, kafka, onDue }, onFatal));
      const starting = startMatchers(options, { ...common, kafka, signal, onMatched }, onFatal);
      const started = await Promise.allSettled(starting.map(async (one) => await begin(await one)));
      const failed = started.find((one) => one.status === 'rejected');
      if (failed !== undefined) throw failed.reason;
    },
    async stop() {
      stopping.abort();
      await Promise.all(stops.map((each) => each()));
      ending.resolve();
    },
  };
}

function startConfiguredSender(
  { config, pool, webhooks, egress, sealing, clock, log }: DispatcherOptions,
  metrics: DispatchMetrics,
  retryWhileUnavailable: RetryWhileUnavailable,
  onFatal: (error: unknown) => void,
): Sender {
  const timeoutMs = config.webhookTimeoutMs;
  const send = createSend({ egress, sealing, clock, log, timeoutMs });
  const settings = {
    deadLimit: config.webhookDisableAfter,
    delaysMs: config.webhookRetryDelays.map((seconds) => seconds * 1000),
    timeoutMs,
    concurrency: config.webhookConcurrency,
    endpointConcurrency: config.webhookEndpointConcurrency,
  };
  return startSender(
    { pool, schema: webhooks, send, clock, retryWhileUnavailable, metrics, settings },
    onFatal,
  );
}

function startMatchers(
  { pool, clickhouse, publisher, webhooks, readServed }: DispatcherOptions,
  deps: MatcherDeps,
  onFatal: (error: unknown) => void,
): Promise<Loop>[] {
  const since = async (): Promise<number | null> => {
    const schema = await webhooks();
    return schema === null ? null : await oldestWebhookAt(pool, schema);
  };
  const matching: MatchDeps = { ...deps, clickhouse, webhooks, readServed, since };
  return [
    runMatcher(transferMatcher(matching), deps, onFatal),
    runMatcher(balanceMatcher({ ...matching, publisher }), deps, onFatal),
    runMatcher(launchMatcher(matching), deps, onFatal),
    runMatcher(priceMatcher(matching), deps, onFatal),
  ];
}
