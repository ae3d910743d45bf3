import { Agent, request } from 'undici';

import type { Clock } from '../../infra/clock.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';

/** Reads texts over HTTP for observers: prices, token lists. What answers is untrusted. */
export interface TextReader {
  /** The body of a 200. Retryable errors have been tried again before they are thrown. */
  get(url: string, signal?: AbortSignal): Promise<string>;
  close(): Promise<void>;
}

export interface TextReaderOptions {
  /** For one whole exchange: connecting, waiting and reading. */
  readonly timeoutMs: number;
  readonly maxAnswerBytes: number;
  /** Calls in flight. */
  readonly maxConcurrent: number;
  /** Attempts in all before a retryable error is handed on; callers come back at their own pace. */
  readonly attempts?: number;
  readonly clock: Clock;
}

const BASE_DELAY_MS = 250;
const MAX_DELAY_MS = 4000;
/** A longer wait than this that is asked for with Retry-After is the caller's: `retryAfterMs` of the error says how long. */
const MAX_WAIT_HERE_MS = 5000;
const MAX_RETRY_AFTER_MS = 3_600_000;

/** GET with keep-alive, without redirects: a time-out for the whole answer, a size cap, retries with full jitter. */
export function createTextReader(options: TextReaderOptions): TextReader {
  const { timeoutMs, maxAnswerBytes, attempts = 3, clock } = options;
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
        if (bytes > maxAnswerBytes)
          throw invalidFeedAnswer(`the answer is larger than ${maxAnswerBytes} bytes`);
        chunks.push(chunk);
      }
    } catch (cause) {
      if (cause instanceof AppError) throw cause;
      if (signal?.aborted === true || closed) throw givenUp(cause);
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
      for (let tries = 1; ; tries += 1) {
        if (signal?.aborted === true) throw givenUp(signal.reason);
        try {
          return await exchange(url, signal);
        } catch (error) {
          const asked = retryAfterMs(error) ?? 0;
          if (!isRetryable(error) || tries >= attempts || asked > MAX_WAIT_HERE_MS) throw error;
          // Full jitter; never sooner than was asked for.
          const jitter = clock.random() * Math.min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** tries);
          await clock.sleep(asked + jitter, signal);
        }
      }
    },
    async close() {
      closed = true;
      await agent.destroy();
    },
  };
}

/** How long the server asked to be left alone; null when it did not. */
export function retryAfterMs(error: unknown): number | null {
  const asked = error instanceof AppError ? error.details['retryAfterMs'] : null;
  return typeof asked === 'number' ? asked : null;
}

/** Not worth trying again at once: the same question gets the same answer. */
export function invalidFeedAnswer(message: string, cause?: unknown): AppError {
  return new AppError('FEED_ANSWER_INVALID', message, cause === undefined ? {} : { cause });
}

function givenUp(cause: unknown): AppError {
  return new AppError('FEED_UNREACHABLE', 'the call was given up', { cause });
}

function readRetryAfter(header: string | string[] | undefined, now: number): number | null {
  if (typeof header !== 'string') return null;
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isFinite(ms) && ms >= 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}
