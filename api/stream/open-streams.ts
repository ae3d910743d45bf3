import type { Logger } from '../../infra/log.ts';
import { Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import { throttled, unavailable } from '../http/errors.ts';
import type { CallerKey } from '../http/route.ts';
import type { EndReason } from './follower.ts';

/** The open streams of this process. */
export interface OpenStreams {
  /** @throws 429 where the caller has as many as it may have, 503 while the service stops */
  open(caller: CallerKey): OpenStream;
  /** Ends all streams; resolves when they have sent their last message, or after two seconds. */
  close(): Promise<void>;
}

export interface OpenStream {
  /** Aborted when the service ends the stream, with the `EndReason`. */
  readonly ended: AbortSignal;
  release(): void;
}

export interface OpenStreamsOptions {
  /** Of a key, or of all sessions of a user. */
  readonly perCaller: number;
  /** Those of these callers whose key or session has ended, or whose key is restricted otherwise than at the call. */
  readonly endedOf: (callers: readonly CallerKey[]) => Promise<readonly CallerKey[]>;
  readonly log: Logger;
  readonly metrics: Registry;
}

interface Entry {
  readonly caller: CallerKey;
  readonly end: AbortController;
}

/** All sessions of a user count together. */
const nameOf = ({ id, userId }: CallerKey): string => (id === null ? `user ${userId}` : `key ${id}`);

const CHECK_MS = 15_000;
const CLOSE_MS = 2000;
const RETRY_SECONDS = 5;

/** Counts streams, and ends those of a key or session that was deleted or has expired, or of a key that was restricted. */
export function createOpenStreams({ perCaller, endedOf, log, metrics }: OpenStreamsOptions): OpenStreams {
  const entries = new Set<Entry>();
  const countByCaller = new Map<string, number>();
  let hasClosed = Promise.withResolvers<void>();
  let isClosing = false;
  new Gauge({
    name: 'tds_streams',
    help: 'Open streams of transfers',
    registers: [metrics],
    collect() {
      this.set(entries.size);
    },
  });
  const endAll = (reason: EndReason, which: (entry: Entry) => boolean): void => {
    for (const entry of entries) if (which(entry)) entry.end.abort(reason);
  };
  const checkCallers = async (): Promise<void> => {
    if (entries.size === 0) return;
    const ended = new Set(await endedOf([...entries].map(({ caller }) => caller)));
    endAll('limit', ({ caller }) => ended.has(caller));
  };
  const timer = setInterval(() => {
    checkCallers().catch((error: unknown) =>
      log.debug({ err: error }, 'could not check the callers of streams'),
    );
  }, CHECK_MS);
  timer.unref();

  return {
    open(caller) {
      const name = nameOf(caller);
      const own = countByCaller.get(name) ?? 0;
      if (isClosing) throw unavailable('stopping', 'The service is stopping.', RETRY_SECONDS);
      if (own >= perCaller) throw throttled(RETRY_SECONDS);
      const entry = { caller, end: new AbortController() };
      entries.add(entry);
      countByCaller.set(name, own + 1);
      return {
        ended: entry.end.signal,
        release() {
          if (!entries.delete(entry)) return;
          const left = (countByCaller.get(name) ?? 0) - 1;
          if (left > 0) countByCaller.set(name, left);
          else countByCaller.delete(name);
          if (entries.size === 0) hasClosed.resolve();
        },
      };
    },
    async close() {
      isClosing = true;
      clearInterval(timer);
      hasClosed = Promise.withResolvers();
      if (entries.size === 0) return;
      endAll('shutdown', () => true);
      const late = setTimeout(() => hasClosed.resolve(), CLOSE_MS);
      await hasClosed.promise;
      clearTimeout(late);
    },
  };
}
