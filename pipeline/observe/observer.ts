import { jsonOf } from '../../infra/json.ts';
import { startCheckpointedConsumer } from '../../infra/kafka/checkpointed-consumer.ts';
import type { Kafka, LogBatch, Publisher } from '../../infra/kafka/client.ts';
import { Releasers, sleep } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { withFreeAdvisoryLock } from '../../infra/postgres/advisory-lock.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { retry } from '../../infra/retry.ts';
import { isStoreUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import { requestsMessage } from '../../schemas/messages/requests.ts';
import type { RequestsMessage } from '../../schemas/messages/requests.ts';
import type { Topic } from '../../schemas/topics.ts';
import { createLogReaderRetry } from '../log-reading.ts';
import { startLoop } from '../../infra/loop.ts';
import type { Loop } from '../../infra/loop.ts';
import { retryAfterMs } from '../http.ts';

/** Backoff after a failed observation: from a second to five minutes. */
export const OBSERVER_BACKOFF = { baseMs: 1000, maxMs: 300_000 };

/** The API stops waiting long before; a client repeats its request. */
export const REQUEST_TTL_MS = 60_000;

/** What every observer works with. */
export interface ObserverOptions {
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: Logger;
  /** Ends the observer. */
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Upper bound of the delay until something due is noticed. Default 1000. */
  readonly pollMs?: number;
}

/** An observer while it runs: what it starts ends with it, in reverse order. */
export interface Observer {
  readonly name: string;
  readonly pool: Pool;
  readonly log: Logger;
  readonly publisher: Publisher;
  readonly now: () => number;
  readonly pollMs: number;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  /** Fires when the observer begins to stop. */
  readonly signal: AbortSignal;
  /** Ends the run with an error. */
  readonly fail: (error: unknown) => void;
  readonly releasers: Releasers;
  /**
   * Starts a consumer. `handle` is idempotent, because the checkpoint moves after it. Without a valid checkpoint reading
   * begins with the first offset.
   */
  consume(
    topics: readonly Topic<unknown>[],
    handle: (batch: LogBatch) => Promise<void>,
    options?: { readonly groupId?: string },
  ): Promise<void>;
  /** Starts a loop. A round returns true where there may be more to do at once. */
  loop(round: () => Promise<boolean>): Loop;
}

export interface ObserverRun {
  /** Rejects with the error that ended the run. */
  readonly done: Promise<void>;
  stop(): Promise<void>;
}

export async function startObserver(
  name: string,
  { pool, kafka, log, signal: outer, now = Date.now, pollMs = 1000 }: ObserverOptions,
  start: (observer: Observer) => Promise<void> | void,
): Promise<ObserverRun> {
  const stopping = new AbortController();
  // The start waits for consumers to join: meanwhile, too, tasks that a stop interrupts must not count as failed.
  const signal = AbortSignal.any([stopping.signal, ...(outer === undefined ? [] : [outer])]);
  const { promise: done, resolve, reject } = Promise.withResolvers<void>();
  done.catch(() => {}); // a caller may never look at it
  const fail = (error: unknown): void => {
    if (!signal.aborted) reject(error);
  };
  const releasers = new Releasers((_, error) => reject(error));
  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      await releasers.releaseAll();
      resolve();
    })());
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const retryWhileUnavailable = createLogReaderRetry(name, log, signal);
  const context = { name, pool, log, publisher, now, pollMs, retryWhileUnavailable, signal, fail, releasers };
  try {
    await start({
      ...context,
      async consume(topics, handle, options = {}) {
        const consumer = await startCheckpointedConsumer({
          ...options,
          kafka,
          pool,
          log,
          name: `observe-${name}`,
          topics,
          outsideLog: 'restart',
          retryWhileUnavailable,
          signal,
          onError: fail,
          async handle(batch) {
            await handle(batch);
            return 'done';
          },
        });
        releasers.push('consumer', () => consumer.stop());
      },
      loop(round) {
        const delayMs = async (): Promise<number> => (!signal.aborted && (await round()) ? 0 : pollMs);
        const loop = startLoop({ round: delayMs, retryWhileUnavailable, onFatal: fail });
        releasers.push('loop', () => loop.stop());
        return loop;
      },
    });
  } catch (error) {
    await stop();
    throw error;
  }
  if (outer?.aborted === true) await stop();
  outer?.addEventListener('abort', () => void stop(), { once: true });
  return { done, stop };
}

/** Requests of one type in a batch of `requests` that clients may still wait for; skips invalid messages. */
export function readRequests<T extends RequestsMessage['type']>(
  { now, log }: Pick<Observer, 'now' | 'log'>,
  { topic, partition, messages }: LogBatch,
  type: T,
): Extract<RequestsMessage, { type: T }>[] {
  const isOfType = (request: RequestsMessage): request is Extract<RequestsMessage, { type: T }> =>
    request.type === type;
  const requests = messages.flatMap(({ offset, value }) => {
    const { data: request } = requestsMessage.safeParse(jsonOf(value));
    if (request === undefined) log.warn({ topic, partition, offset }, 'invalid message skipped');
    return request !== undefined && isOfType(request) ? [request] : [];
  });
  const since = now() - REQUEST_TTL_MS;
  const wanted = requests.filter(({ requested_at: at }) => at > since);
  const dropped = requests.length - wanted.length;
  if (dropped > 0)
    log.warn(
      { topic, partition, type, dropped },
      'old requests dropped; if this continues, the clock of an API host is behind',
    );
  return wanted;
}

export interface PeriodicJob {
  /** The advisory lock's name, and the component in log lines. */
  readonly name: string;
  readonly everyMs: number;
  readonly run: (signal: AbortSignal) => Promise<void>;
  /** True for an error, besides outages of stores, after which the job is tried again. */
  readonly isExpected?: (error: unknown) => boolean;
  readonly onFailure?: (error: unknown) => void;
}

/** Runs a job periodically in one process of many, whichever holds the advisory lock at the time. */
export function startPeriodicJob(
  { pool, log, signal, fail, releasers }: Pick<Observer, 'pool' | 'log' | 'signal' | 'fail' | 'releasers'>,
  { name, everyMs, run, isExpected = () => false, onFailure }: PeriodicJob,
): void {
  const runAlone = (): Promise<void> => withFreeAdvisoryLock(pool, name, () => run(signal));
  const repeat = async (): Promise<void> => {
    while (!signal.aborted) {
      await retry(runAlone, {
        isRetryable: (error) => isExpected(error) || isStoreUnavailable(error),
        baseMs: OBSERVER_BACKOFF.baseMs,
        maxMs: Math.min(everyMs, OBSERVER_BACKOFF.maxMs),
        minDelayMs: (error) => retryAfterMs(error) ?? 0,
        signal,
        onRetry(error, { delayMs }) {
          log.warn({ err: error, component: name, delayMs }, 'periodic job failed, retrying');
          onFailure?.(error);
        },
      });
      await sleep(everyMs, signal);
    }
  };
  const repeating = repeat().catch(fail);
  releasers.push(name, () => repeating);
}
