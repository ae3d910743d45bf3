import type { Readable } from 'node:stream';

import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Logger } from '../../infra/log.ts';
import { sleep, withTimeout } from '../../infra/lifecycle.ts';
import { MAX_HEIGHT } from '../../projections/transfers/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { acceptedWeights } from '../http/accept.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { behind, invalidInput, unavailable } from '../http/errors.ts';
import { integer, limit } from '../http/params.ts';
import { StreamedAnswer, defineRoute } from '../http/route.ts';
import type { CallerKey, Route } from '../http/route.ts';
import { resolveSearch, transfersQuery } from '../transfers/filters.ts';
import { versionedSourceOf } from '../transfers/versioned-source.ts';
import type { BlockReading, StreamFilter } from './blocks.ts';
import { CURSOR_HEADER, NEWEST_POSITION, decodeCursor, streamDigest } from './cursor.ts';
import { createFollower } from './follower.ts';
import type { Follower, StreamStart } from './follower.ts';
import type { Message } from './messages.ts';
import { MAX_IN_HISTORY } from './open-streams.ts';
import type { OpenStream, OpenStreams } from './open-streams.ts';
import { eventStream, lines, sendStream } from './send.ts';
import type { StreamFormat } from './send.ts';
import type { Tail } from './tail.ts';
import { findUndo } from './undo.ts';

export interface StreamRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly tail: Tail;
  readonly streams: OpenStreams;
  readonly log: Logger;
}

const MESSAGES = { fallback: 1000, max: 10_000 };
const WAIT_SECONDS = { fallback: 20, max: 60 };
/** A cursor of another process may be of a block that this one does not know yet. */
const UNKNOWN_POLLS = 6;
const POLL_MS = 500;
/** Other streams of the caller may read history first. */
const FIRST_READ_MS = 20_000;

const filters = {
  token: true,
  token_address: true,
  account: true,
  account_address: true,
  from_account: true,
  from_address: true,
  to_account: true,
  to_address: true,
} as const;
const streamQuery = transfersQuery.pick(filters).extend({
  from: z.string().optional().meta({
    description:
      'A cursor of a stream with the same filters and `finality`, to go on after its message; or a height, to begin with the messages of that block. Without it, the stream begins after the newest block',
  }),
  finality: z
    .enum(['l2', 'l1'], { error: 'Must be l2 or l1.' })
    .optional()
    .meta({ description: '`l2`, the default, or `l1`: only blocks accepted on L1, which are never undone' }),
  limit: limit(MESSAGES).meta({
    description: `Messages of an answer in NDJSON, at most ${MESSAGES.max}`,
    override: { type: 'integer', minimum: 1, maximum: MESSAGES.max, default: MESSAGES.fallback },
  }),
  wait: integer({
    min: 0,
    max: WAIT_SECONDS.max,
    description: `Seconds that an answer in NDJSON waits for a first message, at most ${WAIT_SECONDS.max}; ${WAIT_SECONDS.fallback} by default`,
  }).optional(),
});

const streamAnswer = new StreamedAnswer(
  {
    'text/event-stream': 'Events with `id` (the cursor), `event` (the type) and `data` (JSON)',
    'application/x-ndjson': 'Lines `{"type": …, "cursor": …, "data": …}`',
  },
  {
    request: {
      'Last-Event-ID':
        'Cursor of the last event received, to resume after it; takes precedence over `from`. For Server-Sent Events only',
    },
    response: {
      [CURSOR_HEADER]:
        'Cursor before the first message; absent on Server-Sent Events with `from` or `Last-Event-ID`',
    },
  },
);

export function streamRoutes(deps: StreamRouteDeps): Route[] {
  return [transferStreamRoute(deps)];
}

function transferStreamRoute(deps: StreamRouteDeps): Route {
  return defineRoute({
    id: 'streamTransfers',
    method: 'GET',
    path: '/api/stream/transfers/',
    summary: 'Follow transfers live',
    description: [
      'Sends the transfers that match all filters in chain order: with `from`, first past ones, then new ones as they',
      'are indexed. Types of message: `transfer`; `block`, after the last transfer of every block; `undo`, when',
      'blocks no longer count: drop every transfer above `last_valid.height`, or all if `last_valid` is null; `final`, when a',
      'height is accepted on L1; `end`, before the service closes the stream. With `Accept: text/event-stream` the answer',
      'is a stream of Server-Sent Events, and `Last-Event-ID` resumes after that event. Otherwise it is NDJSON: it ends after',
      `\`limit\` messages or when there are no more; the \`cursor\` of its last line is the next \`from\`. If an answer has no message,`,
      `the next \`from\` is \`${CURSOR_HEADER}\`, a cursor before the first message; Server-Sent Events with \`from\` or \`Last-Event-ID\``,
      'do not have this header. The `EventSource` of browsers cannot send a key: use `fetch`, as the client library does.',
    ].join(' '),
    tag: 'Transfers',
    auth: 'key',
    asOf: 'A stream follows the chain; `from` sets where it begins.',
    query: streamQuery,
    limits: [
      'Open streams of a key, or of all sessions of a user, in an API process: `STREAMS_PER_KEY` of the operator, by default 2,500 (429)',
      'Open streams of all keys and sessions of a user, in an API process: `STREAMS_PER_USER` of the operator, by default 5,000 (429)',
      `Streams of a user that read history at a time: ${MAX_IN_HISTORY}; others wait`,
      'Seconds until a client that takes nothing is disconnected: 20',
    ],
    response: {
      200: streamAnswer,
    },
    async handler({ input: { query }, served, request, key, pool }) {
      const subject = subjectOf(query);
      const { digest } = subject;
      const isEvents = isEventStream(request.header('accept'));
      const format = isEvents ? eventStream : lines;
      const lastEventId = isEvents ? request.header('last-event-id') : '';
      const start =
        lastEventId === '' ? startOf(query.from, digest) : positionOf('Last-Event-ID', lastEventId, digest);
      if (request.isHead) return answerOf(format, null);
      const clickhouse = (): ClickHouse => deps.clickhouseFor(request, { readClass: 'stream' });
      const source = await versionedSourceOf(clickhouse(), served, subject.filter);
      const reading = async (): Promise<BlockReading> => ({
        clickhouse: clickhouse(),
        pool,
        served: await deps.servedBuilds(),
      });
      const { tail, log } = deps;
      const stream = openStream(deps, key);
      const from = { reading, source, start, isEndless: isEvents };
      const follower = createFollower({ ...subject, ...from, tail, stream });
      try {
        await refuseUnknown(deps, clickhouse(), start, {
          name: lastEventId === '' ? 'from' : 'Last-Event-ID',
          signal: request.signal,
        });
        // Read before the status is sent, so that a stream of lines answers 503 if nothing can be read. Without `from`,
        // this read also determines where the stream begins.
        const first = isEvents && start !== null ? null : await firstOf(follower, request.signal);
        const waitMs = 1000 * (query.wait ?? WAIT_SECONDS.fallback);
        const until = isEvents ? null : { messages: query.limit, waitMs };
        const body = sendStream({
          follower,
          first,
          stream,
          disconnected: request.signal,
          format,
          until,
          log,
        });
        return answerOf(format, body, first === null ? {} : { [CURSOR_HEADER]: follower.start() });
      } catch (error) {
        stream.release();
        throw error;
      }
    },
  });
}

/** @throws 503 if the first messages cannot be read in time */
async function firstOf(follower: Follower, signal: AbortSignal): Promise<readonly Message[]> {
  const messages = await withTimeout(follower.read(), FIRST_READ_MS, null, signal);
  signal.throwIfAborted();
  if (messages !== null) return messages;
  throw unavailable('overloaded', 'Too many other streams of this user read history.', 5);
}

const answerOf = (
  { mediaType }: StreamFormat,
  stream: Readable | null,
  headers: Readonly<Record<string, string>> = {},
) => ({
  status: 200 as const,
  // Proxies would otherwise hold messages back.
  headers: { 'X-Accel-Buffering': 'no', ...headers },
  body: { mediaType, stream },
});

/** What a stream has; cursors are bound to it. */
function subjectOf(query: z.output<typeof streamQuery>): {
  filter: StreamFilter;
  isFinal: boolean;
  digest: Buffer;
} {
  const { felts: filter } = resolveSearch(query, () => {});
  const isFinal = query.finality === 'l1';
  return { filter, isFinal, digest: streamDigest(filter, isFinal) };
}

/** @throws 400 if `from` is neither a height nor a cursor of this stream */
function startOf(from: string | undefined, digest: Buffer): StreamStart {
  if (from === undefined) return null;
  if (/^\s*[0-9]{1,10}\s*$/.test(from) && Number(from) <= MAX_HEIGHT) {
    const next = Number(from);
    return { last: null, within: null, next, final: null, floor: next };
  }
  return positionOf('from', from, digest);
}

/** @throws 400 if the parameter of that name is not a cursor of this stream */
function positionOf(name: 'from' | 'Last-Event-ID', cursor: string, digest: Buffer): StreamStart {
  const position = decodeCursor(cursor, digest);
  if (position === null) {
    const what = name === 'from' ? 'Neither a height nor a cursor' : 'Not a cursor';
    throw invalidInput({ [name]: [`${what} of a stream with these filters.`] });
  }
  return position.next === NEWEST_POSITION.next ? null : position;
}

/** Whether a client prefers events: `*`, which some send by default, asks for neither. */
function isEventStream(accept: string): boolean {
  const weightOf = acceptedWeights(accept);
  return (weightOf('text/event-stream') ?? 0) > (weightOf('application/x-ndjson') ?? 0);
}

/** A place among the open streams, and in the tail. */
function openStream({ streams, tail }: StreamRouteDeps, caller: CallerKey): OpenStream {
  const stream = streams.open(caller);
  const leave = tail.join();
  return {
    ...stream,
    release() {
      leave();
      stream.release();
    },
  };
}

/** @throws 400 if the index neither has nor had the block of a cursor, 503 if it has not reached it */
async function refuseUnknown(
  { tail, servedBuilds }: StreamRouteDeps,
  clickhouse: ClickHouse,
  start: StreamStart,
  { name, signal }: { readonly name: string; readonly signal: AbortSignal },
): Promise<void> {
  const block = start?.last ?? null;
  if (block === null) return;
  const first = (await tail.view()).first ?? 0;
  for (let polls = 0; polls < UNKNOWN_POLLS; polls += 1) {
    if ((await findUndo(clickhouse, await servedBuilds(), block, first)) !== 'unknown') return;
    await sleep(POLL_MS, signal);
    signal.throwIfAborted();
  }
  const newest = (await tail.view()).blocks.at(-1)?.block.height ?? -1;
  if (block.height > newest) throw behind('The block of this cursor is not indexed yet.');
  throw invalidInput({ [name]: ['The index has never had the block of this cursor.'] });
}
