import { REQUEST_TTL_MS } from './observer.ts';

/** A request for an observation. */
export interface CallerRequest {
  /** By the requester's clock. */
  readonly requestedAt: number;
  /** Absent in messages of earlier versions. */
  readonly caller?: string | undefined;
}

/** The requests for one observation. Times are unix milliseconds of the observer's clock. */
export type Pending<R extends CallerRequest> = R & {
  /** Of the newest request, by the requester's clock. */
  readonly requestedAt: number;
  /** When the newest request arrived. */
  readonly receivedAt: number;
  readonly dueAt: number;
  /** Most observations that are made together with it. */
  readonly batchLimit: number;
  /** Who waits for it. */
  readonly callers: ReadonlySet<string>;
};

/** Waiting requests of one caller; further ones are dropped, and the client repeats them. */
const MAX_WAITING_PER_CALLER = 2000;

/**
 * Requested observations, taken in turn from each caller. One that several callers wait for is made once, at the first of
 * their turns. They are in memory only: a client repeats a request that is lost.
 */
export function createPendingRequests<R extends CallerRequest>(options: {
  /** Equal for requests of the same observation. */
  readonly keyOf: (request: R) => string;
  /** Age of the newest request at which an observation is dropped. */
  readonly ttlMs?: number;
  /** Waiting observations of one caller; further requests are dropped. */
  readonly maxPerCaller?: number;
  readonly onExpired?: () => void;
  readonly onDropped?: () => void;
}) {
  const { keyOf, ttlMs = REQUEST_TTL_MS, maxPerCaller = MAX_WAITING_PER_CALLER } = options;
  const waiting = createWaiting<R>(keyOf);
  const inProgress = new Set<string>();
  /** Removes the next observation of a line that is due and has a wanted batch limit, and the expired ones before it. */
  const takeNext = (keys: Iterator<string>, now: number, isWanted: IsWanted): Pending<R> | null => {
    for (let turn = keys.next(); turn.done !== true; turn = keys.next()) {
      const key = turn.value;
      const next = waiting.get(key);
      if (next === undefined) continue;
      if (now - next.receivedAt > ttlMs) {
        waiting.remove(next);
        options.onExpired?.();
      } else if (isDue(next.dueAt, now, ttlMs) && isWanted(next.batchLimit) && !inProgress.has(key)) {
        waiting.remove(next);
        inProgress.add(key);
        return next;
      }
    }
    return null;
  };

  return {
    /** Adds a request. One observation answers every request that arrived before it began. */
    add(request: R, now: number, batchLimit = Infinity): void {
      const { requestedAt, caller = '' } = request;
      const existing = waiting.get(keyOf(request));
      const isFull = waiting.sizeOf(caller) >= maxPerCaller;
      if (existing === undefined && isFull) {
        options.onDropped?.();
        return;
      }
      const callers = existing?.callers ?? new Set<string>();
      waiting.put({
        ...request,
        requestedAt: Math.max(existing?.requestedAt ?? 0, requestedAt),
        receivedAt: now,
        dueAt: existing?.dueAt ?? now,
        batchLimit: existing?.batchLimit ?? batchLimit,
        callers: isFull ? callers : new Set([...callers, caller]),
      });
    },
    /** Takes a batch of due observations that are not in progress, one of each caller in turn; drops the expired ones. */
    take(limit: number, now: number, minBatchLimit = 0): Pending<R>[] {
      const taken: Pending<R>[] = [];
      const isWanted: IsWanted = (own) =>
        taken[0] === undefined ? own >= minBatchLimit : own === taken[0].batchLimit;
      const isFull = (): boolean => taken.length >= Math.min(limit, taken[0]?.batchLimit ?? limit);
      let turns = waiting.turns();
      while (turns.length > 0 && !isFull()) {
        turns = turns.filter(({ caller, keys }) => {
          if (isFull()) return false;
          const next = takeNext(keys, now, isWanted);
          if (next === null) return false;
          taken.push(next);
          waiting.endTurn(caller);
          return true;
        });
      }
      return taken;
    },
    /** Ends an observation; with `retryAt` it is pending again, for a batch of at most `batchLimit`. */
    end(ended: Pending<R>, retryAt: number | null, batchLimit = ended.batchLimit): void {
      const key = keyOf(ended);
      inProgress.delete(key);
      if (retryAt === null) return;
      const newer = waiting.get(key);
      waiting.put({
        ...ended,
        requestedAt: Math.max(ended.requestedAt, newer?.requestedAt ?? 0),
        // A request that arrived in the meantime expires later.
        receivedAt: newer?.receivedAt ?? ended.receivedAt,
        dueAt: retryAt,
        batchLimit,
        callers: new Set([...ended.callers, ...(newer?.callers ?? [])]),
      });
    },
    size: (): number => waiting.size() + inProgress.size,
  };
}

type IsWanted = (batchLimit: number) => boolean;

/** What is due later than it may wait was scheduled before the clock was set back. */
const isDue = (dueAt: number, now: number, ttlMs: number): boolean => dueAt <= now || dueAt > now + ttlMs;

/** Stores requests that are taken in turn; those that could not be stored are pending again. Null: none is due. */
export async function storePending<R extends CallerRequest, T>(
  pending: Pick<ReturnType<typeof createPendingRequests<R>>, 'take' | 'end'>,
  { limit, now }: { readonly limit: number; readonly now: number },
  store: (taken: readonly Pending<R>[]) => Promise<T>,
): Promise<T | null> {
  const taken = pending.take(limit, now);
  if (taken.length === 0) return null;
  let retryAt: number | null = now;
  try {
    const stored = await store(taken);
    retryAt = null;
    return stored;
  } finally {
    for (const request of taken) pending.end(request, retryAt);
  }
}

/** Waiting observations, each in the line of every caller that waits for it. */
function createWaiting<R extends CallerRequest>(keyOf: (request: R) => string) {
  const byKey = new Map<string, Pending<R>>();
  /** Keys by caller, in order of arrival; first the caller whose turn is next. */
  const lines = new Map<string, Set<string>>();
  return {
    get: (key: string): Pending<R> | undefined => byKey.get(key),
    put(pending: Pending<R>): void {
      const key = keyOf(pending);
      byKey.set(key, pending);
      for (const caller of pending.callers) lines.set(caller, (lines.get(caller) ?? new Set()).add(key));
    },
    remove(pending: Pending<R>): void {
      const key = keyOf(pending);
      byKey.delete(key);
      for (const caller of pending.callers) {
        const line = lines.get(caller);
        line?.delete(key);
        if (line?.size === 0) lines.delete(caller);
      }
    },
    turns: () => [...lines].map(([caller, line]) => ({ caller, keys: line.values() })),
    /** Moves a caller behind all others. */
    endTurn(caller: string): void {
      const line = lines.get(caller);
      if (line === undefined) return;
      lines.delete(caller);
      lines.set(caller, line);
    },
    size: (): number => byKey.size,
    sizeOf: (caller: string): number => lines.get(caller)?.size ?? 0,
  };
}
