import type { Felt } from '../../../schemas/felt.ts';

/** A balance to be read. Times are unix milliseconds of the observer's clock, except `requestedAt`. */
export interface PendingRead {
  readonly account: Felt;
  readonly token: Felt;
  /** Of the newest request, by the requester's clock. */
  readonly requestedAt: number;
  /** When the newest request arrived. */
  readonly receivedAt: number;
  readonly dueAt: number;
  /** Who waits for it. */
  readonly callers: ReadonlySet<string>;
}

export type BalanceRequest = Pick<PendingRead, 'account' | 'token' | 'requestedAt'> & {
  /** Absent in messages of earlier versions. */
  readonly caller?: string | undefined;
};

export const pairKey = ({ account, token }: { account: Felt; token: Felt }): string => `${account}:${token}`;

/**
 * Pairs to be read, taken in turn from each caller. A pair that several callers wait for is read once, at the first of
 * their turns. They are in memory only: a client repeats a request that is lost.
 */
export function createPendingReads(options: {
  /** Age of the newest request at which a pair is dropped. */
  readonly ttlMs: number;
  /** Waiting pairs of one caller; further requests are dropped. */
  readonly maxPerCaller: number;
  readonly onExpired: () => void;
  readonly onDropped: () => void;
}) {
  const waiting = createWaiting();
  const reading = new Set<string>();
  /** Removes the next due pair of a line, and the expired ones before it. */
  const takeNext = (keys: Iterator<string>, now: number): PendingRead | null => {
    for (let next = keys.next(); next.done !== true; next = keys.next()) {
      const key = next.value;
      const read = waiting.get(key);
      if (read === undefined) continue;
      if (now - read.receivedAt > options.ttlMs) {
        waiting.remove(read);
        options.onExpired();
      } else if (read.dueAt <= now && !reading.has(key)) {
        waiting.remove(read);
        reading.add(key);
        return read;
      }
    }
    return null;
  };

  return {
    /** Adds a request. One read answers every request that arrived before it began. */
    add({ account, token, requestedAt, caller = '' }: BalanceRequest, now: number): void {
      const key = pairKey({ account, token });
      const existing = waiting.get(key);
      const isFull = waiting.sizeOf(caller) >= options.maxPerCaller;
      if (existing === undefined && isFull) {
        options.onDropped();
        return;
      }
      const callers = existing?.callers ?? new Set<string>();
      waiting.put({
        account,
        token,
        requestedAt: Math.max(existing?.requestedAt ?? 0, requestedAt),
        receivedAt: now,
        dueAt: existing?.dueAt ?? now,
        callers: isFull ? callers : new Set([...callers, caller]),
      });
    },
    /** Takes due pairs that are not being read, one of each caller in turn; drops the expired ones. */
    take(limit: number, now: number): PendingRead[] {
      const taken: PendingRead[] = [];
      let turns = waiting.turns();
      while (turns.length > 0 && taken.length < limit) {
        turns = turns.filter(({ caller, keys }) => {
          if (taken.length >= limit) return false;
          const read = takeNext(keys, now);
          if (read === null) return false;
          taken.push(read);
          waiting.endTurn(caller);
          return true;
        });
      }
      return taken;
    },
    /** Ends the read of a pair; with `retryAt` the pair is pending again. */
    end(read: PendingRead, retryAt: number | null): void {
      const key = pairKey(read);
      reading.delete(key);
      if (retryAt === null) return;
      const newer = waiting.get(key);
      waiting.put({
        ...read,
        requestedAt: Math.max(read.requestedAt, newer?.requestedAt ?? 0),
        // A request that arrived during the read expires later.
        receivedAt: newer?.receivedAt ?? read.receivedAt,
        dueAt: retryAt,
        callers: new Set([...read.callers, ...(newer?.callers ?? [])]),
      });
    },
    size: (): number => waiting.size() + reading.size,
  };
}

/** Waiting pairs, each in the line of every caller that waits for it. */
function createWaiting() {
  const reads = new Map<string, PendingRead>();
  /** Keys by caller, in order of arrival; first the caller whose turn is next. */
  const lines = new Map<string, Set<string>>();
  return {
    get: (key: string): PendingRead | undefined => reads.get(key),
    put(read: PendingRead): void {
      const key = pairKey(read);
      reads.set(key, read);
      for (const caller of read.callers) lines.set(caller, (lines.get(caller) ?? new Set()).add(key));
    },
    remove(read: PendingRead): void {
      const key = pairKey(read);
      reads.delete(key);
      for (const caller of read.callers) {
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
    size: (): number => reads.size,
    sizeOf: (caller: string): number => lines.get(caller)?.size ?? 0,
  };
}
