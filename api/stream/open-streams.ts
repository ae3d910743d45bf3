import type { Logger } from '../../infra/log.ts';
import { Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import { throttled, unavailable } from '../http/errors.ts';
import type { EndReason } from './follower.ts';

/** The open streams of this process. */
export interface OpenStreams {
  /** @throws 429 where the key has as many as it may have, 503 while the service stops */
  open(keyId: number): OpenStream;
  /** Ends all streams; resolves when they have sent their last message, or after two seconds. */
  close(): Promise<void>;
}

export interface OpenStream {
  /** Aborted when the service ends the stream, with the `EndReason`. */
  readonly ended: AbortSignal;
  release(): void;
}

export interface OpenStreamsOptions {
  readonly perKey: number;
  /** Which of these keys may still be used. */
  readonly usableKeys: (ids: readonly number[]) => Promise<ReadonlySet<number>>;
  readonly log: Logger;
  readonly metrics: Registry;
}

interface Entry {
  readonly keyId: number;
  readonly end: AbortController;
}

const CHECK_MS = 15_000;
const CLOSE_MS = 2000;
const RETRY_SECONDS = 5;

/** Counts streams, and ends those of a key that was deleted or has expired. */
export function createOpenStreams({ perKey, usableKeys, log, metrics }: OpenStreamsOptions): OpenStreams {
  const entries = new Set<Entry>();
  const countByKey = new Map<number, number>();
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
  const checkKeys = async (): Promise<void> => {
    const ids = [...new Set([...entries].map(({ keyId }) => keyId))];
    if (ids.length === 0) return;
    const usable = await usableKeys(ids);
    endAll('limit', ({ keyId }) => ids.includes(keyId) && !usable.has(keyId));
  };
  const timer = setInterval(() => {
    checkKeys().catch((error: unknown) => log.debug({ err: error }, 'could not check the keys of streams'));
  }, CHECK_MS);
  timer.unref();

  return {
    open(keyId) {
      const own = countByKey.get(keyId) ?? 0;
      if (isClosing) throw unavailable('stopping', 'The service is stopping.', RETRY_SECONDS);
      if (own >= perKey) throw throttled(RETRY_SECONDS);
      const entry = { keyId, end: new AbortController() };
      entries.add(entry);
      countByKey.set(keyId, own + 1);
      return {
        ended: entry.end.signal,
        release() {
          if (!entries.delete(entry)) return;
          const left = (countByKey.get(keyId) ?? 0) - 1;
          if (left > 0) countByKey.set(keyId, left);
          else countByKey.delete(keyId);
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
