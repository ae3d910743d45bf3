import type { Logger } from '../../infra/log.ts';
import { Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';
import { throttled, unavailable } from '../http/errors.ts';
import type { CallerKey } from '../http/route.ts';

export type EndReason = 'shutdown' | 'slow' | 'limit';

/** The open streams of this process. */
export interface OpenStreams {
  /** @throws 429 where the caller or its user has as many as it may have, 503 while the service stops */
  open(caller: CallerKey): OpenStream;
  /** Ends all streams; resolves when they have sent their last message, or after two seconds. */
  close(): Promise<void>;
}

export interface OpenStream {
  /** Aborted when the service ends the stream, with the `EndReason`. */
  readonly ended: AbortSignal;
  /**
   * Called before each window of history; resolves when this stream may read it: few of a user do at a time, as each holds what it
   * has read. Those that wait take turns with those that read.
   */
  enterHistory(): Promise<void>;
  /** Called once the stream has reached the newest blocks, which all streams share. */
  leaveHistory(): void;
  release(): void;
}

export interface OpenStreamsOptions {
  /** Of a key, or of all sessions of a user. */
  readonly perCaller: number;
  /** Of all keys and sessions of a user. */
  readonly perUser: number;
  /** Returns the callers whose key or session has ended, or whose key's restrictions have changed since the call. */
  readonly endedOf: (callers: readonly CallerKey[]) => Promise<readonly CallerKey[]>;
  readonly log: Logger;
  readonly metrics: Registry;
}

interface Entry {
  readonly caller: CallerKey;
  readonly end: AbortController;
}

/** The streams of one user, whose keys are unlimited. */
interface UserStreams {
  open: number;
  readonly openByCaller: Map<string, number>;
  inHistory: number;
  /** Those that wait to read history, in the order in which they came. */
  readonly waiting: Set<() => void>;
}

/** More would read no faster: a user has two places for reads of history. */
export const MAX_IN_HISTORY = 8;

/** All sessions of a user count together. */
const nameOf = ({ id, userId }: CallerKey): string => (id === null ? `user ${userId}` : `key ${id}`);

const CHECK_MS = 15_000;
const CLOSE_MS = 2000;
const RETRY_SECONDS = 5;

/** Counts streams, and ends those of a key or session that was deleted or has expired, or of a key that was restricted. */
export function createOpenStreams({
  perCaller,
  perUser,
  endedOf,
  log,
  metrics,
}: OpenStreamsOptions): OpenStreams {
  const entries = new Set<Entry>();
  const users = new Map<number, UserStreams>();
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
      const own = users.get(caller.userId) ?? newUser();
      const ofCaller = (): number => own.openByCaller.get(name) ?? 0;
      if (isClosing) throw unavailable('stopping', 'The service is stopping.', RETRY_SECONDS);
      if (ofCaller() >= perCaller || own.open >= perUser) throw throttled(RETRY_SECONDS);
      const entry = { caller, end: new AbortController() };
      entries.add(entry);
      users.set(caller.userId, own);
      own.open += 1;
      own.openByCaller.set(name, ofCaller() + 1);
      const history = createHistoryPlace(own);
      return {
        ended: entry.end.signal,
        enterHistory: history.enter,
        leaveHistory: history.leave,
        release() {
          if (!entries.delete(entry)) return;
          history.close();
          own.open -= 1;
          if (ofCaller() > 1) own.openByCaller.set(name, ofCaller() - 1);
          else own.openByCaller.delete(name);
          if (own.open === 0) users.delete(caller.userId);
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

const newUser = (): UserStreams => ({ open: 0, openByCaller: new Map(), inHistory: 0, waiting: new Set() });

/** The place of one stream among those of its user that read history. */
function createHistoryPlace(own: UserStreams) {
  let isIn = false;
  let isClosed = false;
  let resume: (() => void) | null = null;
  const take = (): void => {
    isIn = true;
    own.inHistory += 1;
  };
  const leave = (): void => {
    if (resume !== null) own.waiting.delete(resume);
    if (!isIn) return;
    isIn = false;
    own.inHistory -= 1;
    const [next] = own.waiting;
    if (next === undefined) return;
    own.waiting.delete(next);
    next();
  };
  return {
    enter: async (): Promise<void> => {
      // A read may end a moment after its stream.
      if (isClosed || (isIn && own.waiting.size === 0)) return;
      leave();
      if (own.inHistory < MAX_IN_HISTORY) return take();
      const entered = Promise.withResolvers<void>();
      resume = () => {
        take();
        entered.resolve();
      };
      own.waiting.add(resume);
      await entered.promise;
    },
    leave,
    close: (): void => {
      isClosed = true;
      leave();
    },
  };
}
