import { retry } from '../../infra/retry.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';
import { createHttpClient, retryAfterMs } from '../http.ts';
import type { HttpClientOptions } from '../http.ts';

/** Fetches text from price feeds and token lists, whose answers are untrusted. */
export interface TextReader {
  /** Returns the body of a 200. Retryable errors are thrown after the last attempt. */
  get(url: string, signal?: AbortSignal): Promise<string>;
  close(): Promise<void>;
}

export interface TextReaderOptions extends Pick<
  HttpClientOptions,
  'timeoutMs' | 'maxAnswerBytes' | 'maxConcurrent' | 'clock'
> {
  readonly maxAttempts?: number;
}

const BACKOFF = { baseMs: 500, maxMs: 4000 };
/** A longer Retry-After is left to the caller, who finds it with `retryAfterMs`. */
const MAX_RETRY_AFTER_HERE_MS = 5000;

/** GET with retries. */
export function createTextReader({ maxAttempts = 3, ...options }: TextReaderOptions): TextReader {
  const http = createHttpClient({
    ...options,
    unreachable: 'FEED_UNREACHABLE',
    invalid: 'FEED_ANSWER_INVALID',
  });
  return {
    async get(url, signal) {
      const attempt = async (): Promise<string> => {
        const { status, body } = await http.exchange(url, { signal });
        if (status !== 200) throw invalidFeedAnswer(`HTTP ${status}`);
        return body.toString('utf8');
      };
      return await retry(attempt, {
        isRetryable: (error) => isRetryable(error) && (retryAfterMs(error) ?? 0) <= MAX_RETRY_AFTER_HERE_MS,
        minDelayMs: (error) => retryAfterMs(error) ?? 0,
        maxAttempts,
        ...BACKOFF,
        clock: options.clock,
        ...(signal === undefined ? {} : { signal }),
      }).catch((error: unknown) => {
        if (signal?.aborted !== true) throw error;
        throw new AppError('FEED_UNREACHABLE', 'call aborted', { cause: signal.reason });
      });
    },
    close: () => http.close(),
  };
}

/** Not retryable: the same request gets the same answer. */
export function invalidFeedAnswer(message: string, cause?: unknown): AppError {
  return new AppError('FEED_ANSWER_INVALID', message, cause === undefined ? {} : { cause });
}
