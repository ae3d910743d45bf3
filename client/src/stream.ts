import { ApiError } from './errors.ts';
import type { ListTransfersResponses } from './generated/types.gen.ts';
import { sleep } from './sleep.ts';

type TransferRow = ListTransfersResponses[200]['results'][number];

/** A message of the stream; its `cursor` is where a stream goes on after it. */
export type StreamMessage = { readonly cursor: string } & (
  | { readonly type: 'transfer'; readonly data: TransferRow & { readonly block_hash: string } }
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
  readonly headers: Readonly<Record<string, string>>;
  readonly fetch: typeof globalThis.fetch;
}

/** The service sends something at least every ten seconds. */
const SILENCE_MS = 30_000;
const FIRST_WAIT_MS = 500;
const MOST_WAIT_MS = 30_000;

/**
 * Follows the transfers, and goes on after a lost connection where it was: no message is lost or repeated. Ends when the
 * signal fires.
 *
 * @throws ApiError if the service refuses the stream, as an unknown cursor, a wrong key or too many streams
 */
export async function* streamTransfers(
  { baseUrl, headers, fetch }: StreamTransport,
  { signal, from, ...filters }: StreamOptions,
): AsyncGenerator<StreamMessage, void, void> {
  let cursor = from === undefined ? null : String(from);
  let waitMs = FIRST_WAIT_MS;
  const isAborted = (): boolean => signal?.aborted === true;
  while (!isAborted()) {
    const silence = new AbortController();
    const ended = signal === undefined ? silence.signal : AbortSignal.any([signal, silence.signal]);
    let timer = setTimeout(() => silence.abort(), SILENCE_MS);
    const onBytes = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
    };
    try {
      const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value !== undefined));
      if (cursor !== null) query.set('from', cursor);
      const answer = await fetch(`${baseUrl}/api/stream/transfers/?${query}`, {
        headers: { ...headers, accept: 'text/event-stream' },
        signal: ended,
      });
      if (answer.status !== 200) throw await refusalOf(answer);
      for await (const message of readEvents(answer, onBytes)) {
        ({ cursor } = message);
        waitMs = FIRST_WAIT_MS;
        if (message.type !== 'end') yield message;
        else if (message.data.reason === 'limit')
          throw new ApiError(403, { detail: 'The key may no longer be used.', code: 'limit' });
      }
    } catch (error) {
      if (isAborted()) return;
      if (error instanceof ApiError && error.status !== 503 && error.status !== 500) throw error;
    } finally {
      clearTimeout(timer);
      silence.abort();
    }
    await sleep(waitMs, signal).catch(() => {});
    waitMs = Math.min(2 * waitMs, MOST_WAIT_MS);
  }
}

async function refusalOf(answer: Response): Promise<ApiError> {
  const body: unknown = await answer.json().catch(() => null);
  return new ApiError(answer.status, body);
}

type AnyMessage =
  | StreamMessage
  | { readonly cursor: string; readonly type: 'end'; readonly data: { readonly reason: string } };

const TYPES = new Set(['transfer', 'block', 'undo', 'final', 'end']);

/** The events of Server-Sent Events, of known types. */
async function* readEvents(answer: Response, onBytes: () => void): AsyncGenerator<AnyMessage> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (reader === undefined) return;
  try {
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      const events = (rest + value).split('\n\n');
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
