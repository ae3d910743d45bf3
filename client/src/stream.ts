import { ApiError } from './errors.ts';
import { retryingFetch } from './retry.ts';
import type { RetryOptions } from './retry.ts';
import { sleep } from './sleep.ts';
import { withAmounts } from './transfer.ts';
import type { Transfer, TransferRow } from './transfer.ts';

/** A message of the stream; a stream from its `cursor` continues after it. */
export type StreamMessage = { readonly cursor: string } & (
  | { readonly type: 'transfer'; readonly data: Transfer & { readonly block_hash: string } }
  | {
      readonly type: 'block';
      readonly data: {
        readonly height: number;
        readonly hash: string;
        readonly timestamp: string;
        readonly finality: 'ACCEPTED_ON_L2' | 'ACCEPTED_ON_L1';
      };
    }
  | {
      /** The blocks `from` to `to` no longer count: drop every transfer above `last_valid.height`, all where it is null. */
      readonly type: 'undo';
      readonly data: {
        readonly last_valid: { readonly height: number; readonly hash: string } | null;
        readonly last_valid_cursor: string;
        readonly from: number;
        readonly to: number;
        readonly hashes: readonly string[];
      };
    }
  | { readonly type: 'final'; readonly data: { readonly height: number } }
);

export interface StreamOptions {
  readonly token?: string;
  readonly account?: string;
  readonly from_account?: string;
  readonly to_account?: string;
  /** A cursor, or a height; absent: only what is new. */
  readonly from?: string | number;
  readonly finality?: 'l2' | 'l1';
  readonly signal?: AbortSignal;
}

export interface StreamTransport {
  readonly baseUrl: string;
  readonly apiKey: string | undefined;
  /** Of a user, instead of a key. */
  readonly session: string | undefined;
  readonly retry: RetryOptions | undefined;
  readonly fetch: typeof globalThis.fetch;
  /** Default 30,000; the service sends something at least every ten seconds. */
  readonly silenceMs?: number;
}

const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 30_000;

/**
 * Follows the transfers, and resumes after a lost connection where it was: no message is lost or repeated. A service that is busy
 * or unavailable is retried without end. Where the service ends the stream because of its key or session, one more connection
 * finds out why, or resumes. Ends when the signal fires.
 *
 * @throws ApiError if the service refuses the stream, as for an unknown cursor, a wrong key or an expired session
 * @throws TypeError if `baseUrl`, the key or the session cannot be part of a request
 */
export async function* streamTransfers(
  transport: StreamTransport,
  { signal, from, ...filters }: StreamOptions,
): AsyncGenerator<StreamMessage, void, void> {
  const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value !== undefined));
  if (from !== undefined) query.set('from', String(from));
  const { headers } = new Request(urlOf(transport.baseUrl, query), {
    headers: { accept: 'text/event-stream', ...credentialOf(transport) },
  });
  let waitMs = FIRST_WAIT_MS;
  let isLimited = false;
  const isAborted = (): boolean => signal?.aborted === true;
  while (!isAborted()) {
    try {
      for await (const sent of connection(transport, headers, query, signal)) {
        const message = sent.type === 'transfer' ? { ...sent, data: withAmounts(sent.data) } : sent;
        query.set('from', message.cursor);
        waitMs = FIRST_WAIT_MS;
        const isLimit = message.type === 'end' && message.data.reason === 'limit';
        if (isLimit && isLimited)
          throw new ApiError(403, {
            detail: 'The key or session may no longer be used for streams.',
            code: 'limit',
          });
        isLimited = isLimit;
        if (message.type !== 'end') yield message;
      }
    } catch (error) {
      if (isAborted()) return;
      // 429 and 503 arrive here if their Retry-After is longer than `maxDelayMs`; a proxy answers 502 or 504 during a restart.
      const isTemporary = error instanceof ApiError && (error.status >= 500 || error.status === 429);
      if (!isTemporary) throw error;
    }
    await sleep(waitMs, signal).catch(() => {});
    waitMs = Math.min(2 * waitMs, MAX_WAIT_MS);
  }
}

const urlOf = (baseUrl: string, query: URLSearchParams): string =>
  `${baseUrl}/api/stream/transfers/?${query}`;

/** The messages of one connection until it is lost, or given up because nothing has arrived for too long. */
async function* connection(
  { baseUrl, retry, fetch, silenceMs = 30_000 }: StreamTransport,
  headers: Headers,
  query: URLSearchParams,
  signal: AbortSignal | undefined,
): AsyncGenerator<AnyMessage, void, void> {
  // `AbortSignal.any` keeps what it made for as long as `signal` lives.
  const ended = new AbortController();
  const end = (): void => ended.abort(signal?.reason);
  signal?.addEventListener('abort', end, { once: true });
  const orSilence = async <T>(arriving: Promise<T>): Promise<T> => {
    const timer = setTimeout(end, silenceMs);
    // A promise for each wait: one for all of them would keep whatever has arrived.
    let fail = (): void => {};
    const hasEnded = new Promise<never>((_, reject) => {
      fail = () => reject(ended.signal.reason);
      if (ended.signal.aborted) fail();
      else ended.signal.addEventListener('abort', fail, { once: true });
    });
    return await Promise.race([arriving, hasEnded]).finally(() => {
      clearTimeout(timer);
      ended.signal.removeEventListener('abort', fail);
    });
  };
  const connect = retryingFetch((input, init) => orSilence(fetch(input, init)), {
    ...retry,
    attempts: Infinity,
  });
  try {
    const answer = await connect(urlOf(baseUrl, query), { headers, signal: ended.signal }).catch(() => null);
    if (answer === null) return;
    if (answer.status !== 200)
      throw new ApiError(answer.status, await answer.json().catch((): unknown => null), answer.headers);
    // After a connection that is lost before its first message, the next one begins where it began.
    const beginning = answer.headers.get('x-stream-cursor');
    if (beginning !== null && !query.has('from')) query.set('from', beginning);
    yield* readEvents(answer, orSilence);
  } finally {
    signal?.removeEventListener('abort', end);
    end();
  }
}

/** As `api-key`, it has the service take the session of the call. */
const SESSION_AS_KEY = 'session';

/** What is sent as `api-key`. */
export function keyOf(apiKey: string | undefined, session: string | undefined): string | undefined {
  return apiKey ?? (session === undefined ? undefined : SESSION_AS_KEY);
}

/** A key takes precedence, as at the service. */
function credentialOf({ apiKey, session }: StreamTransport): Record<string, string> {
  if (apiKey !== undefined) return { 'api-key': apiKey };
  return session === undefined ? {} : { 'api-key': SESSION_AS_KEY, authorization: `Bearer ${session}` };
}

/** As the service sends them. */
type AnyMessage =
  | Exclude<StreamMessage, { type: 'transfer' }>
  | {
      readonly cursor: string;
      readonly type: 'transfer';
      readonly data: TransferRow & { readonly block_hash: string };
    }
  | { readonly cursor: string; readonly type: 'end'; readonly data: { readonly reason: string } };

const TYPES = new Set(['transfer', 'block', 'undo', 'final', 'end']);

/** The events of Server-Sent Events, of known types, until the connection is lost. */
async function* readEvents(
  answer: Response,
  orSilence: <T>(arriving: Promise<T>) => Promise<T>,
): AsyncGenerator<AnyMessage, void, void> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  try {
    let rest = '';
    for (;;) {
      const read = await orSilence(reader.read()).catch(() => null);
      if (read === null || read.done) return;
      const events = (rest + read.value).split('\n\n');
      rest = events.pop() ?? '';
      for (const event of events) {
        const fields = new Map(event.split('\n').map((line) => line.split(/: (.*)/s, 2) as [string, string]));
        const type = fields.get('event') ?? '';
        if (!TYPES.has(type)) continue;
        yield {
          cursor: fields.get('id'),
          type,
          data: JSON.parse(fields.get('data') ?? 'null'),
        } as AnyMessage;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
