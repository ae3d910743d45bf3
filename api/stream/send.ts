import { Readable } from 'node:stream';

import { sleep, withTimeout } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { toHttpError } from '../http/errors.ts';
import type { Follower } from './follower.ts';
import type { Message } from './messages.ts';
import type { EndReason, OpenStream } from './open-streams.ts';

/** How messages are written. */
export interface StreamFormat {
  readonly mediaType: string;
  /** Before the messages; `cursor` is where they begin, null where the client knows it. */
  first(cursor: string | null): string;
  readonly heartbeat: string | null;
  text(message: Message): string;
}

/** Server-Sent Events. */
export const eventStream: StreamFormat = {
  mediaType: 'text/event-stream',
  // An event without data is not shown to a page, but its id is kept.
  first: (cursor) => `retry: 1000\n${cursor === null ? '' : `id: ${cursor}\n`}\n`,
  heartbeat: ':\n\n',
  text: ({ type, cursor, data }) => `id: ${cursor}\nevent: ${type}\ndata: ${data}\n\n`,
};

/** A message a line. */
export const lines: StreamFormat = {
  mediaType: 'application/x-ndjson',
  first: () => '',
  heartbeat: null,
  text: ({ type, cursor, data }) => `{"type":"${type}","cursor":"${cursor}","data":${data}}\n`,
};

export interface SendOptions {
  readonly follower: Follower;
  /** What was read of it already; null: nothing was. */
  readonly first: readonly Message[] | null;
  readonly stream: Pick<OpenStream, 'ended' | 'release'>;
  /** Aborted when the client disconnects. */
  readonly disconnected: AbortSignal;
  readonly format: StreamFormat;
  /**
   * Ends the answer after this many messages; before that when it has some and no more are new, or when it has none after `waitMs`.
   * null: it never ends.
   */
  readonly until: { readonly messages: number; readonly waitMs: number } | null;
  readonly log: Logger;
}

/** Characters written at a time, and bytes that wait for a client. */
const PART_CHARS = 16_384;
const HEARTBEAT_MS = 5000;
/** A client that takes nothing for so long is dropped. */
const SLOW_MS = 20_000;
/** What a slow client has not read yet is kept for so long. */
const GRACE_MS = 30_000;
const RETRY_MS = 500;

/** The body of a stream's answer. It ends with an `end` message if the service ends it. */
export function sendStream(options: SendOptions): Readable {
  const { stream, disconnected, log } = options;
  const room = createRoom();
  const body = new Readable({
    highWaterMark: PART_CHARS,
    read: () => room.open(),
    destroy(error, done) {
      stream.release();
      done(error);
    },
  });
  // Not in `send`, which would keep what it has read.
  const drop = async (isSlow: boolean): Promise<void> => {
    if (!isSlow) return;
    await sleep(GRACE_MS, disconnected);
    body.destroy();
  };
  send(options, body, room)
    .then(drop)
    .catch((error: unknown) => {
      log.error({ err: error }, 'a stream failed');
      body.destroy(error instanceof Error ? error : new Error(String(error)));
    });
  return body;
}

/** Resolves with whether the stream has ended because its client is slow. */
async function send(options: SendOptions, body: Readable, room: Room): Promise<boolean> {
  const { follower, stream, disconnected, format, until } = options;
  const stopped = AbortSignal.any([stream.ended, disconnected]);
  const deadline = until === null ? Infinity : performance.now() + until.waitMs;
  let cursor: string | null = null;
  let sent = 0;
  const left = (): number => (until === null ? Infinity : until.messages - sent);
  let wroteAt = performance.now();
  let isSlow = false;
  /** False when the client takes nothing for too long. */
  const write = async (bytes: string | Buffer): Promise<boolean> => {
    wroteAt = performance.now();
    return body.push(bytes) || (await room.isOpen(SLOW_MS, stopped)) || stopped.aborted;
  };
  const writeHeartbeat = async (): Promise<void> => {
    if (format.heartbeat !== null) isSlow = !(await write(format.heartbeat));
  };
  /** Only an answer without messages has a deadline; any other ends when no more are new. */
  const waitLeftMs = (): number => (sent === 0 ? deadline - performance.now() : Infinity);
  /** The next messages; none where the stream ends before they are read. A read may wait long for its place. */
  const next = async (): Promise<readonly Message[]> => {
    const held = follower.held();
    if (held !== null) return held;
    const reading = readOrRetry(options, stopped);
    for (;;) {
      const messages = await withTimeout(reading, Math.min(HEARTBEAT_MS, waitLeftMs()), null, stopped);
      if (messages !== null) return messages;
      if (stopped.aborted || isSlow || waitLeftMs() <= 0) return [];
      await writeHeartbeat();
    }
  };
  const opening = format.first(options.first === null ? null : follower.start());
  if (opening !== '') await write(opening);
  for (let ready = options.first; !stopped.aborted && !isSlow; ready = null) {
    const found = ready ?? (await next());
    const messages = until === null ? found : found.slice(0, left());
    for (const part of partsOf(messages, format)) {
      cursor = part.cursor;
      sent += part.messages;
      isSlow = !(await write(part.bytes));
      if (isSlow || stopped.aborted) break;
    }
    if (until !== null && (left() <= 0 || (messages.length === 0 && (sent > 0 || waitLeftMs() <= 0)))) break;
    if (messages.length > 0) continue;
    // Rounded, so that the timers of many streams have few different durations: Node keeps a list for each.
    const idleMs = Math.ceil((HEARTBEAT_MS - (performance.now() - wroteAt)) / 100) * 100;
    await follower.wait(Math.max(1, Math.min(idleMs, deadline - performance.now())), stopped);
    if (performance.now() - wroteAt >= HEARTBEAT_MS) await writeHeartbeat();
  }
  if (disconnected.aborted) {
    body.destroy();
    return false;
  }
  const reason = isSlow ? 'slow' : (stream.ended.reason as EndReason | undefined);
  if (reason !== undefined && left() > 0) body.push(format.text(follower.end(reason, cursor)));
  body.push(null);
  return isSlow;
}

/** Stores that cannot be read now are read again. */
async function readOrRetry(
  { follower, log }: SendOptions,
  stopped: AbortSignal,
): Promise<readonly Message[]> {
  try {
    return await follower.read();
  } catch (error) {
    if (stopped.aborted) return [];
    if (toHttpError(error).status !== 503) throw error;
    log.debug({ err: error }, 'a stream could not be read');
    await sleep(RETRY_MS, stopped);
    return [];
  }
}

interface Part {
  readonly bytes: Buffer;
  readonly cursor: string;
  readonly messages: number;
}

const madeParts = new WeakMap<readonly Message[], Map<StreamFormat, Part[]>>();

/** The bytes of messages, made when they are sent, and once for all streams that have the same ones. */
function* partsOf(messages: readonly Message[], format: StreamFormat): Generator<Part> {
  const made = madeParts.get(messages) ?? new Map<StreamFormat, Part[]>();
  madeParts.set(messages, made);
  const parts = made.get(format) ?? [];
  made.set(format, parts);
  for (let [next, from] = [0, 0]; from < messages.length; next += 1) {
    const part = (parts[next] ??= makePart(messages, from, format));
    from += part.messages;
    yield part;
  }
}

function makePart(messages: readonly Message[], from: number, format: StreamFormat): Part {
  let [text, cursor, count] = ['', '', 0];
  for (let at = from; at < messages.length && text.length < PART_CHARS; at += 1) {
    const message = messages[at];
    if (message === undefined) break;
    text += format.text(message);
    ({ cursor } = message);
    count += 1;
  }
  return { bytes: Buffer.from(text), cursor, messages: count };
}

/** Whether the body takes more. */
interface Room {
  open(): void;
  /** True as soon as it does; false after `ms`, or when the signal fires. */
  isOpen(ms: number, signal: AbortSignal): Promise<boolean>;
}

function createRoom(): Room {
  let isOpened = false;
  let resume: (() => void) | null = null;
  return {
    open() {
      isOpened = true;
      resume?.();
    },
    async isOpen(ms, signal) {
      if (!isOpened && !signal.aborted) {
        const opened = Promise.withResolvers<void>();
        resume = () => opened.resolve();
        const timer = setTimeout(resume, ms);
        signal.addEventListener('abort', resume, { once: true });
        await opened.promise;
        clearTimeout(timer);
        signal.removeEventListener('abort', resume);
        resume = null;
      }
      const wasOpened = isOpened;
      isOpened = false;
      return wasOpened;
    },
  };
}
