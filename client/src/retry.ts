import { sleep } from './sleep.ts';

export interface RetryOptions {
  /** Attempts of a request that may be repeated; default 5. */
  readonly attempts?: number;
  /** Before the second attempt, doubled before each further one, where the answer names no time; default 500, at most `maxDelayMs`. */
  readonly delayMs?: number;
  /** Longest wait that `Retry-After` may ask for; an answer that asks for more is returned. Default 60,000. */
  readonly maxDelayMs?: number;
}

const RETRIED = new Set([429, 503]);

/**
 * The requests of answers whose bodies are still read. In Node, a signal reaches an answer only as long as the request lives that
 * follows the signal.
 */
const followers = new WeakMap<object, readonly unknown[]>();

/**
 * A `fetch` that repeats a request which is answered 429 or 503, or not at all, after the time that `Retry-After` names. A
 * write is repeated only if it has an `Idempotency-Key`: without one, the service may have done it.
 */
export function retryingFetch(
  fetch: typeof globalThis.fetch,
  { attempts = 5, delayMs = 500, maxDelayMs = 60_000 }: RetryOptions = {},
): typeof globalThis.fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    const mayRepeat =
      request.method === 'GET' || request.method === 'HEAD' || request.headers.has('idempotency-key');
    for (let attempt = 1; ; attempt += 1) {
      const isLast = !mayRepeat || attempt >= attempts;
      // A body can be read once.
      const sent = isLast ? request : request.clone();
      const answer = await fetch(sent, { signal: request.signal }).catch((error: unknown) => {
        if (isLast || request.signal.aborted) throw error;
        return null;
      });
      if (answer?.body != null) followers.set(answer.body, [input, request, sent]);
      if (answer !== null && (isLast || !RETRIED.has(answer.status))) return answer;
      const backoff = Math.min(maxDelayMs, delayMs * 2 ** (attempt - 1) * (1 + Math.random() / 4));
      const wait = (answer === null ? null : retryAfterMs(answer.headers)) ?? backoff;
      if (answer !== null && wait > maxDelayMs) return answer;
      await answer?.body?.cancel().catch(() => {});
      await sleep(wait, request.signal);
    }
  };
}

/** Of seconds or a date; null without either. */
export function retryAfterMs(headers: Headers): number | null {
  const text = headers.get('retry-after') ?? '';
  if (/^\d+$/.test(text)) return Number(text) * 1000;
  const time = Date.parse(text);
  return Number.isNaN(time) ? null : Math.max(0, time - Date.now());
}
