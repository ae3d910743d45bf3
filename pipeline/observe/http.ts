import { Agent, request } from 'undici';

import type { Clock } from '../../infra/clock.ts';
import { retry } from '../../infra/retry.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';

/** Fetches text from price feeds and token lists, whose answers are untrusted. */
export interface TextReader {
  /** Returns the body of a 200. Retryable errors are thrown after the last attempt. */
  get(url: string, signal?: AbortSignal): Promise<string>;
  close(): Promise<void>;
}

export interface TextReaderOptions {
  /** For one exchange: connecting, waiting and reading the body. */
  readonly timeoutMs: number;
  readonly maxAnswerBytes: number;
  /** Upper bound of calls in flight. */
  readonly maxConcurrent: number;
  readonly maxAttempts?: number;
  readonly clock: Clock;
}

const BACKOFF = { baseMs: 500, maxMs: 4000 };
/** A longer Retry-After is left to the caller, who finds it with `retryAfterMs`. */
const MAX_RETRY_AFTER_HERE_MS = 5000;
const MAX_RETRY_AFTER_MS = 3_600_000;

/** GET with keep-alive and without redirects, with a timeout for the whole answer, a size limit and retries. */
export function createTextReader(options: TextReaderOptions): TextReader {
  const { timeoutMs, maxAnswerBytes, maxAttempts = 3, clock } = options;
  const agent = new Agent({ connections: options.maxConcurrent, pipelining: 1, keepAliveTimeout: 30_000 });
  let closed = false;

  const exchange = async (url: string, signal: AbortSignal | undefined): Promise<string> => {
    const timeout = AbortSignal.timeout(timeoutMs);
    const chunks: Buffer[] = [];
    let statusCode = 0;
    let retryAfter: string | string[] | undefined;
    try {
      const response = await request(url, {
        dispatcher: agent,
        headers: { accept: 'application/json' },
        signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
      });
      ({ statusCode } = response);
      retryAfter = response.headers['retry-after'];
      let bytes = 0;
      for await (const chunk of response.body as AsyncIterable<Buffer>) {
        bytes += chunk.length;
        // Leaving the loop destroys the body.
        if (bytes > maxAnswerBytes) throw invalidFeedAnswer(`answer larger than ${maxAnswerBytes} bytes`);
        chunks.push(chunk);
      }
    } catch (cause) {
      if (cause instanceof AppError) throw cause;
      if (signal?.aborted === true || closed) throw cancelled(cause);
      const why = timeout.aborted ? `no answer in ${timeoutMs} ms` : 'no answer';
      throw new AppError('FEED_UNREACHABLE', why, { retryable: true, cause });
    }
    if (statusCode === 408 || statusCode === 425 || statusCode === 429 || statusCode >= 500) {
      throw new AppError('FEED_UNREACHABLE', `HTTP ${statusCode}`, {
        retryable: true,
        details: { retryAfterMs: readRetryAfter(retryAfter, clock.now()) },
      });
    }
    if (statusCode !== 200) throw invalidFeedAnswer(`HTTP ${statusCode}`);
    return Buffer.concat(chunks).toString('utf8');
  };

  return {
    async get(url, signal) {
      if (signal?.aborted === true) throw cancelled(signal.reason);
      return await retry(() => exchange(url, signal), {
        isRetryable: (error) => isRetryable(error) && (retryAfterMs(error) ?? 0) <= MAX_RETRY_AFTER_HERE_MS,
        minDelayMs: (error) => retryAfterMs(error) ?? 0,
        maxAttempts,
        ...BACKOFF,
        clock,
        ...(signal === undefined ? {} : { signal }),
      }).catch((error: unknown) => {
        throw signal?.aborted === true ? cancelled(signal.reason) : error;
      });
    },
    async close() {
      closed = true;
      await agent.destroy();
    },
  };
}

/** The delay that the server asked for with Retry-After; null when it did not. */
export function retryAfterMs(error: unknown): number | null {
  const delayMs = error instanceof AppError ? error.details['retryAfterMs'] : null;
  return typeof delayMs === 'number' ? delayMs : null;
}

/** Not retryable: the same request gets the same answer. */
export function invalidFeedAnswer(message: string, cause?: unknown): AppError {
  return new AppError('FEED_ANSWER_INVALID', message, cause === undefined ? {} : { cause });
}

function cancelled(cause: unknown): AppError {
  return new AppError('FEED_UNREACHABLE', 'the call was cancelled', { cause });
}

function readRetryAfter(header: string | string[] | undefined, now: number): number | null {
  if (typeof header !== 'string') return null;
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isFinite(ms) && ms >= 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}
