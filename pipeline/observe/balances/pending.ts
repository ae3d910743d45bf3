import type { Felt } from '../../../schemas/felt.ts';

/** A pair that was asked for. Times are unix milliseconds of the observer's clock, but for `requestedAt`. */
export interface Wanted {
  readonly account: Felt;
  readonly token: Felt;
  /** Of the newest who asked, by their clock. */
  readonly requestedAt: number;
  /** When its first asker was heard of: nobody waits for ever. */
  readonly heardAt: number;
  readonly dueAt: number;
}

export interface Pending {
  /** One read answers all who asked before it begins. */
  add(wanted: Pick<Wanted, 'account' | 'token' | 'requestedAt'>, now: number): void;
  /** Takes pairs that are due and that nobody reads now, those first that were heard of first. */
  take(limit: number, now: number): Wanted[];
  /** Ends the reading of a pair; one that was not answered is due again later, unless it has been for too long. */
  end(wanted: Wanted, dueAgainAt: number | null): void;
  size(): number;
}

export const keyOf = ({ account, token }: { account: Felt; token: Felt }): string => `${account}:${token}`;

/** The pairs to be read, in memory: a request that is lost is asked again. */
export function createPending(options: {
  /** After so long it is given up. */
  readonly patienceMs: number;
  readonly onGivenUp: () => void;
}): Pending {
  const waiting = new Map<string, Wanted>();
  const reading = new Set<string>();

  return {
    add({ account, token, requestedAt }, now) {
      const key = keyOf({ account, token });
      const known = waiting.get(key);
      waiting.set(key, {
        account,
        token,
        requestedAt: Math.max(known?.requestedAt ?? 0, requestedAt),
        heardAt: known?.heardAt ?? now,
        dueAt: known?.dueAt ?? now,
      });
    },
    take(limit, now) {
      const taken: Wanted[] = [];
      for (const [key, wanted] of waiting) {
        if (taken.length >= limit) break;
        if (now - wanted.heardAt > options.patienceMs) {
          waiting.delete(key);
          options.onGivenUp();
        } else if (wanted.dueAt <= now && !reading.has(key)) {
          waiting.delete(key);
          reading.add(key);
          taken.push(wanted);
        }
      }
      return taken;
    },
    end(wanted, dueAgainAt) {
      const key = keyOf(wanted);
      reading.delete(key);
      if (dueAgainAt === null) return;
      const newer = waiting.get(key);
      waiting.set(key, {
        ...wanted,
        requestedAt: Math.max(wanted.requestedAt, newer?.requestedAt ?? 0),
        // Who asked later has waited less long.
        heardAt: newer?.heardAt ?? wanted.heardAt,
        dueAt: dueAgainAt,
      });
    },
    size: () => waiting.size + reading.size,
  };
}
