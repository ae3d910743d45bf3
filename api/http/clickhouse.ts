import PQueue from 'p-queue';

import { isClickHouseUnavailable } from '../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { AppError } from '../../schemas/errors.ts';

/** What a client waits for at most; far more than any page takes. */
const PATIENCE_MS = 10_000;

/** No page comes near; a server that knows an answer to be small need not stream it. */
const SMALL_ANSWER = { max_result_rows: 10_000 } as const;

/**
 * Which request a read is of, by its signal, in the order they came. The reads of the earliest go first: taken in turns,
 * 100 portfolios at once were all nearly done when their time was up, and 4 of them were answered.
 */
const turns = new WeakMap<AbortSignal, number>();
let requests = 0;

interface GateOptions {
  /** Reads that run at once. The client has some connections more, so that looks at its health never wait in line. */
  readonly sideBySide?: number;
  /** Reads that may wait; more are refused at once. */
  readonly waiting?: number;
  /** A read that is not done by then, waiting included, is given up. */
  readonly patienceMs?: number;
}

/**
 * The same client for requests: what it cannot do in time is refused instead of piling up, a read whose client has gone
 * away is dropped, also out of the line, and errors say whether trying again can help.
 */
export function guardClickHouse(
  clickhouse: ClickHouse,
  { sideBySide = 8, waiting = 2000, patienceMs = PATIENCE_MS }: GateOptions = {},
): ClickHouse {
  const line = new PQueue({ concurrency: sideBySide });
  const unavailable = (why: string, cause?: unknown): AppError =>
    new AppError('STORE_UNAVAILABLE', `ClickHouse ${why}`, { retryable: true, cause });
  return {
    ...clickhouse,
    async rows(query, params, options = {}) {
      if (line.size >= waiting) throw unavailable('has too much to do');
      const deadline = AbortSignal.timeout(patienceMs);
      const signal = options.signal === undefined ? deadline : AbortSignal.any([options.signal, deadline]);
      try {
        const settings = { ...SMALL_ANSWER, ...options.settings };
        const turn = (options.signal === undefined ? undefined : turns.get(options.signal)) ?? requests;
        return await line.add(() => clickhouse.rows(query, params, { ...options, settings, signal }), {
          signal,
          priority: -turn,
        });
      } catch (cause) {
        if (options.signal?.aborted === true) throw unavailable('was not waited for', cause);
        if (deadline.aborted) throw unavailable(`did not answer within ${patienceMs} ms`, cause);
        if (!isClickHouseUnavailable(cause)) throw cause;
        throw unavailable('did not answer', cause);
      }
    },
  };
}

/** The same client for one request: all that it reads ends with the signal, or when the request takes too long. */
export function endingWith(gone: AbortSignal, clickhouse: ClickHouse): ClickHouse {
  const signal = AbortSignal.any([gone, AbortSignal.timeout(PATIENCE_MS)]);
  requests += 1;
  turns.set(signal, requests);
  return {
    ...clickhouse,
    rows: (query, params, options) => clickhouse.rows(query, params, { ...options, signal }),
  };
}
