import type { Config } from '../../../infra/config.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Registry } from '../../../infra/metrics.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { topics } from '../../../schemas/topics.ts';
import { createLogReaderRetry, jsonOf } from '../../log-reading.ts';
import type { Node } from '../../node/types.ts';
import { consumeTopics } from '../consume.ts';
import { startObserver } from '../loops.ts';
import type { ObserverRun } from '../loops.ts';
import { REQUEST_TTL_MS, startBalanceReader } from './reader.ts';
import type { BalanceReaderOptions } from './reader.ts';

export interface BalanceObserverOptions extends Pick<BalanceReaderOptions, 'newestBlock' | 'l1Height'> {
  readonly config: Pick<Config, 'observerCallsPerSecond'>;
  readonly node: Pick<Node, 'callMany'>;
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Upper bound of the delay until a pair is retried. */
  readonly pollMs?: number;
}

const OBSERVER = 'balances';

/** Publishes `balance.observed` for requested pairs of account and token, read at the newest indexed block. */
export async function runBalanceObserver(options: BalanceObserverOptions): Promise<ObserverRun> {
  const { config, node, pool, kafka, log, now = Date.now, pollMs = 250 } = options;
  return await startObserver(options.signal, async (context) => {
    const { signal, releasers, fail } = context;
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const reader = startBalanceReader({
      node,
      callsPerSecond: config.observerCallsPerSecond,
      publisher,
      newestBlock: options.newestBlock,
      l1Height: options.l1Height,
      log,
      metrics: options.metrics,
      signal,
      now,
      pollMs,
      onFatal: fail,
    });
    releasers.push('reader', () => reader.finished());

    await consumeTopics(
      {
        kafka,
        pool,
        log,
        observer: OBSERVER,
        topics: [topics.requests],
        async handle({ partition, messages }) {
          for (const { value, timestamp, offset } of messages) {
            const { data: request } = requestsMessage.safeParse(jsonOf(value));
            if (request === undefined) log.warn({ partition, offset }, 'invalid message skipped');
            if (request?.type !== 'balance.requested' || now() - timestamp > REQUEST_TTL_MS) continue;
            const { account, token, requested_at } = request;
            reader.request({ account, token, requestedAt: requested_at });
          }
          reader.wake();
        },
        retryWhileUnavailable: createLogReaderRetry(OBSERVER, log, signal),
      },
      context,
    );
  });
}
