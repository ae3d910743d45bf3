import { unescape } from 'node:querystring';

import { Agent, request } from 'undici';

import type { Clock } from '../infra/clock.ts';
import { errorCode } from '../infra/error-code.ts';
import { AppError } from '../schemas/errors.ts';
import type { ErrorCode } from '../schemas/errors.ts';

export interface HttpClientOptions {
  /** For one exchange: connecting, waiting and reading the body. */
  readonly timeoutMs: number;
  readonly maxAnswerBytes: number;
  /** Upper bound of connections. */
  readonly maxConcurrent: number;
  readonly clock: Clock;
  /** Code of the errors of a server that does not answer, and of an answer that is too large. */
  readonly unreachable: ErrorCode;
  readonly invalid: ErrorCode;
  /** Begins the message of an error. */
  readonly errorPrefix?: string;
}

export interface HttpAnswer {
  /** Below 500, and none that asks for another attempt, unless `isAnswer` accepts the body. */
  readonly status: number;
  readonly body: Buffer;
}

export interface HttpClient {
  /** GET, or POST with a body. @throws AppError, retryable where another attempt may succeed */
  exchange(
    url: string,
    options: {
      readonly json?: string;
      readonly signal?: AbortSignal | undefined;
      /** Whether the body is an answer although its status asks for another attempt. */
      readonly isAnswer?: ((body: Buffer) => boolean) | undefined;
      /** What to add to the message of an error about the status. */
      readonly describe?: (body: Buffer) => string;
    },
  ): Promise<HttpAnswer>;
  close(): Promise<void>;
}

/** Upper bound of `retryAfterMs`. */
export const MAX_RETRY_AFTER_MS = 3_600_000;

/** Talks JSON over HTTP with keep-alive and without redirects, to servers whose answers are untrusted. */
export function createHttpClient(options: HttpClientOptions): HttpClient {
  const { timeoutMs, maxAnswerBytes, clock, unreachable, errorPrefix = '' } = options;
  const agent = new Agent({ connections: options.maxConcurrent, pipelining: 1, keepAliveTimeout: 30_000 });
  let closed = false;
  return {
    async exchange(url, { json, signal, isAnswer, describe = () => '' }) {
      const timeout = AbortSignal.timeout(timeoutMs);
      try {
        const response = await request(url, {
          dispatcher: agent,
          method: json === undefined ? 'GET' : 'POST',
          headers: {
            accept: 'application/json',
            // Without it, a server may send any encoding.
            'accept-encoding': 'identity',
            ...authorization(url),
            ...(json === undefined ? {} : { 'content-type': 'application/json' }),
          },
          body: json ?? null,
          signal: signal === undefined ? timeout : AbortSignal.any([timeout, signal]),
        });
        const chunks: Buffer[] = [];
        let bytes = 0;
        for await (const chunk of response.body as AsyncIterable<Buffer>) {
          bytes += chunk.length;
          // Leaving the loop destroys the body.
          if (bytes > maxAnswerBytes)
            throw new AppError(options.invalid, `answer larger than ${maxAnswerBytes} bytes`);
          chunks.push(chunk);
        }
        const status = response.statusCode;
        const body = Buffer.concat(chunks);
        const isFailure = status === 408 || status === 425 || status === 429 || status >= 500;
        if (isFailure && isAnswer?.(body) !== true) {
          throw new AppError(unreachable, `${errorPrefix}HTTP ${status}${describe(body)}`, {
            retryable: true,
            details: { retryAfterMs: readRetryAfter(response.headers['retry-after'], clock.wallTime()) },
          });
        }
        return { status, body };
      } catch (cause) {
        if (cause instanceof AppError) throw cause;
        if (signal?.aborted === true || closed)
          throw new AppError(unreachable, `${errorPrefix}call aborted`, { cause });
        const failure = errorCode(cause);
        const failed = failure === null ? 'connection failed' : `connection failed (${failure})`;
        const why = timeout.aborted ? `no answer within ${timeoutMs} ms` : failed;
        throw new AppError(unreachable, errorPrefix + why, { retryable: true, cause });
      }
    },
    async close() {
      closed = true;
      await agent.destroy();
    },
  };
}

/** The user and password in a URL, which undici leaves out; a `%` that escapes nothing stands for itself. */
function authorization(url: string): { authorization?: string } {
  const { username, password } = new URL(url);
  if (username === '' && password === '') return {};
  const credentials = `${unescape(username)}:${unescape(password)}`;
  return { authorization: `Basic ${Buffer.from(credentials).toString('base64')}` };
}

/** The delay that the server asked for with Retry-After; null when it did not. */
export function retryAfterMs(error: unknown): number | null {
  const delayMs = error instanceof AppError ? error.details['retryAfterMs'] : null;
  return typeof delayMs === 'number' ? delayMs : null;
}

function readRetryAfter(header: string | string[] | undefined, now: number): number | null {
  if (typeof header !== 'string') return null;
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - now;
  return Number.isFinite(ms) && ms >= 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}
