import PQueue from 'p-queue';

import { isClickHouseUnavailable } from '../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { AppError } from '../../schemas/errors.ts';

/** Time for all reads of a request together; far more than any page takes. */
const READ_TIMEOUT_MS = 10_000;

/** Far more rows than any page has. */
const SMALL_RESULT = { max_result_rows: 10_000 } as const;

/** State shared by the reads of one request, keyed by its signal. */
interface RequestScope {
  /** Requests are numbered in order of arrival. */
  readonly number: number;
  readonly deadline: AbortSignal;
}
const scopes = new WeakMap<AbortSignal, RequestScope>();
let requests = 0;

interface ReadLimits {
  /** Below the client's connections, so that health checks never queue. */
  readonly concurrency?: number;
  /** Further reads are rejected at once. */
  readonly maxQueued?: number;
  /** For a read outside a request; includes the time in the queue. */
  readonly timeoutMs?: number;
}

/**
 * A client whose reads run a few at a time. Reads of the earliest request go first: with round-robin, only 4 of 100
 * concurrent portfolios finished before the timeout. A read whose client disconnected is dropped,
 * also from the queue. Errors say whether a retry can help: `QUERY_TIMEOUT`, `STORE_UNAVAILABLE`, or the error itself.
 */
export function limitReads(
  clickhouse: ClickHouse,
  { concurrency = 8, maxQueued = 2000, timeoutMs = READ_TIMEOUT_MS }: ReadLimits = {},
): ClickHouse {
  const queue = new PQueue({ concurrency });
  const unavailable = (why: string, cause?: unknown): AppError =>
    new AppError('STORE_UNAVAILABLE', `ClickHouse: ${why}`, { retryable: true, cause });
  return {
    ...clickhouse,
    async rows(query, params, options = {}) {
      if (queue.size >= maxQueued) throw unavailable(`the read queue is full (${maxQueued})`);
      const scope = options.signal === undefined ? undefined : scopes.get(options.signal);
      const deadline = scope?.deadline ?? AbortSignal.timeout(timeoutMs);
      const signal = options.signal === undefined ? deadline : AbortSignal.any([options.signal, deadline]);
      const settings = { ...SMALL_RESULT, ...options.settings };
      try {
        return await queue.add(() => clickhouse.rows(query, params, { ...options, settings, signal }), {
          signal,
          priority: -(scope?.number ?? requests),
        });
      } catch (cause) {
        if (deadline.aborted) {
          const message = `ClickHouse: ${query.name} timed out`;
          throw new AppError('QUERY_TIMEOUT', message, { retryable: true, cause });
        }
        if (options.signal?.aborted === true) throw unavailable('the client disconnected', cause);
        if (!isClickHouseUnavailable(cause)) throw cause;
        throw unavailable('read failed', cause);
      }
    },
  };
}

/** The client for one request: all its reads end when the client disconnects or the request's time is up. */
export function readsForRequest(
  disconnected: AbortSignal,
  clickhouse: ClickHouse,
  timeoutMs = READ_TIMEOUT_MS,
): ClickHouse {
  const deadline = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([disconnected, deadline]);
  requests += 1;
  scopes.set(signal, { number: requests, deadline });
  return {
    ...clickhouse,
    rows: (query, params, options) => clickhouse.rows(query, params, { ...options, signal }),
  };
}
