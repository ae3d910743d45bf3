import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Clock } from '../../infra/clock.ts';
import type { Config } from '../../infra/config.ts';
import type { Kafka, Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Registry } from '../../infra/metrics.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { Sealing } from '../../infra/sealing.ts';
import { oldestWebhook } from '../../projections/webhooks/queries.ts';
import type { Egress } from '../egress/egress.ts';
import { createLogReaderRetry } from '../log-reading.ts';
import { balanceMatcher } from './match/balances.ts';
import type { MatchDeps } from './match/deps.ts';
import { launchMatcher } from './match/launches.ts';
import { runMatcher } from './match/matcher.ts';
import type { MatcherDeps } from './match/matcher.ts';
import { priceMatcher } from './match/prices.ts';
import { transferMatcher } from './match/transfers.ts';
import { createDispatchMetrics } from './metrics.ts';
import { runRequests } from './requests.ts';
import { createSend } from './send/attempt.ts';
import { startSender } from './send/sender.ts';
import { startUpkeep } from './upkeep.ts';

export interface DispatcherOptions {
  readonly config: Pick<
    Config,
    | 'webhookRetryDelays'
    | 'webhookTimeoutMs'
    | 'webhookDisableAfter'
    | 'webhookConcurrency'
    | 'webhookEndpointConcurrency'
    | 'webhookHistoryDays'
  >;
  readonly kafka: Kafka;
  readonly publisher: Publisher;
  readonly pool: Pool;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  readonly egress: Egress;
  readonly sealing: Sealing;
  readonly webhooks: MatchDeps['webhooks'];
  readonly whereServed: MatchDeps['whereServed'];
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Registry;
}

export interface Dispatcher {
  /** Rejects when it cannot go on. */
  readonly done: Promise<void>;
  stop(): Promise<void>;
}

const POLL_MS = 250;

/**
 * Sends webhooks: matchers make deliveries of what the log says, a sender makes the attempts. Several dispatchers side by
 * side share the partitions of the log, and what is due.
 */
export async function startDispatcher(options: DispatcherOptions): Promise<Dispatcher> {
  const { config, kafka, publisher, pool, clickhouse, egress, sealing, clock, log } = options;
  const stopping = new AbortController();
  const { signal } = stopping;
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const fail = ending.reject;
  const metrics = createDispatchMetrics(options.metrics);
  const retryWhileUnavailable = createLogReaderRetry('dispatcher', log, signal);
  const { whereServed, webhooks } = options;
  const since = async (): Promise<number | null> => {
    const schema = await webhooks();
    return schema === null ? null : await oldestWebhook(pool, schema);
  };
  const stops: (() => Promise<void>)[] = [];
  const running = { deadLimit: config.webhookDisableAfter };

  const sender = startSender(
    {
      pool,
      schema: webhooks,
      send: createSend({ egress, sealing, clock, log, timeoutMs: config.webhookTimeoutMs }),
      clock,
      retryWhileUnavailable,
      metrics,
      settings: {
        ...running,
        delaysMs: config.webhookRetryDelays.map((seconds) => seconds * 1000),
        timeoutMs: config.webhookTimeoutMs,
        concurrency: config.webhookConcurrency,
        endpointConcurrency: config.webhookEndpointConcurrency,
        pollMs: POLL_MS,
      },
    },
    fail,
  );
  stops.push(() => sender.stop());
  const wake = (): void => sender.wake();
  const upkeep = startUpkeep(
    {
      pool,
      publisher,
      webhooks,
      clock,
      log,
      metrics,
      retryWhileUnavailable,
      onReopened: wake,
      settings: { ...running, historyDays: config.webhookHistoryDays },
    },
    fail,
  );
  stops.push(() => upkeep.stop());

  const stop = async (): Promise<void> => {
    stopping.abort();
    await Promise.all(stops.map((each) => each()));
    ending.resolve();
  };
  try {
    const requests = await runRequests(
      { kafka, pool, webhooks, clock, retryWhileUnavailable, onDone: wake },
      fail,
    );
    stops.push(() => requests.stop());
    const stores = { pool, clickhouse, kafka };
    const matching: MatchDeps = { ...stores, webhooks, whereServed, since, clock, metrics, log, signal };
    const reading: MatcherDeps = {
      kafka,
      pool,
      log,
      metrics,
      clock,
      retryWhileUnavailable,
      signal,
      onMatched: wake,
    };
    const started = await Promise.allSettled([
      runMatcher(transferMatcher(matching), reading, fail),
      runMatcher(balanceMatcher({ ...matching, publisher }), reading, fail),
      runMatcher(launchMatcher(matching), reading, fail),
      runMatcher(priceMatcher(matching), reading, fail),
    ]);
    for (const one of started) if (one.status === 'fulfilled') stops.push(() => one.value.stop());
    const failed = started.find((one) => one.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  } catch (error) {
    await stop();
    throw error;
  }
  return { done: ending.promise, stop };
}
