import type { Felt } from '../../../schemas/felt.ts';

/** A balance to be read. Times are unix milliseconds of the observer's clock, except `requestedAt`. */
export interface PendingRead {
  readonly account: Felt;
  readonly token: Felt;
  /** Of the newest request, by the requester's clock. */
  readonly requestedAt: number;
  /** When the first request arrived. */
  readonly receivedAt: number;
  readonly dueAt: number;
}

export type BalanceRequest = Pick<PendingRead, 'account' | 'token' | 'requestedAt'>;

export const pairKey = ({ account, token }: { account: Felt; token: Felt }): string => `${account}:${token}`;

/** Pairs to be read. They are in memory only: a client repeats a request that is lost. */
export function createPendingReads(options: {
  /** Age at which a pair is dropped. */
  readonly ttlMs: number;
  readonly onExpired: () => void;
}) {
  const waiting = new Map<string, PendingRead>();
  const reading = new Set<string>();

  return {
    /** Adds a request. One read answers every request that arrived before it began. */
    add({ account, token, requestedAt }: BalanceRequest, now: number): void {
      const key = pairKey({ account, token });
      const existing = waiting.get(key);
      waiting.set(key, {
        account,
        token,
        requestedAt: Math.max(existing?.requestedAt ?? 0, requestedAt),
        receivedAt: existing?.receivedAt ?? now,
        dueAt: existing?.dueAt ?? now,
      });
    },
    /** Takes due pairs that are not being read, in order of arrival; drops the expired ones. */
    take(limit: number, now: number): PendingRead[] {
      const taken: PendingRead[] = [];
      for (const [key, read] of waiting) {
        if (taken.length >= limit) break;
        if (now - read.receivedAt > options.ttlMs) {
          waiting.delete(key);
          options.onExpired();
        } else if (read.dueAt <= now && !reading.has(key)) {
          waiting.delete(key);
          reading.add(key);
          taken.push(read);
        }
      }
      return taken;
    },
    /** Ends the read of a pair; with `retryAt` the pair is pending again. */
    end(read: PendingRead, retryAt: number | null): void {
      const key = pairKey(read);
      reading.delete(key);
      if (retryAt === null) return;
      const newer = waiting.get(key);
      waiting.set(key, {
        ...read,
        requestedAt: Math.max(read.requestedAt, newer?.requestedAt ?? 0),
        // A request that arrived during the read expires later.
        receivedAt: newer?.receivedAt ?? read.receivedAt,
        dueAt: retryAt,
      });
    },
    size: (): number => waiting.size + reading.size,
  };
}
