/** What may be given now to some endpoints, where they have something due. */
export interface Room {
  /** Attempts of each, by webhook. */
  readonly room: ReadonlyMap<number, number>;
  /** And of one that is not named. */
  readonly otherwise: number;
  /** Of all of these together. */
  readonly most: number;
}

/**
 * How many attempts each endpoint is given at a time. A new one is given one; each quick answer doubles that, up to a
 * bound, and each slow one halves it; all slow ones together have a share of their own. So endpoints that hang hold few of
 * the places that all share.
 */
export interface Endpoints {
  /** First that of the slow ones, of their share, if any is left; then that of all others. */
  rooms(): readonly Room[];
  began(webhookId: number): void;
  /** @param isQuick it answered, whatever it said, and soon */
  ended(webhookId: number, isQuick: boolean): void;
}

/** What an endpoint is given that nothing is known of. */
const FIRST = 1;
/** Endpoints that are remembered while they have no attempt running. */
const KEPT = 10_000;

interface Endpoint {
  bound: number;
  running: number;
  isSlow: boolean;
}

/**
 * @param options.most attempts of one endpoint at a time
 * @param options.slow attempts of all slow ones at a time
 */
export function createEndpoints({ most, slow }: { readonly most: number; readonly slow: number }): Endpoints {
  const known = new Map<number, Endpoint>();
  const of = (webhookId: number): Endpoint => {
    const endpoint = known.get(webhookId) ?? { bound: FIRST, running: 0, isSlow: false };
    // The one that was used last is the last to be forgotten.
    known.delete(webhookId);
    known.set(webhookId, endpoint);
    return endpoint;
  };
  const forget = (): void => {
    if (known.size <= KEPT) return;
    for (const [webhookId, { running }] of known) {
      if (running > 0) continue;
      known.delete(webhookId);
      if (known.size <= KEPT) return;
    }
  };
  return {
    rooms() {
      let share = slow;
      const slows = new Map<number, number>();
      const others = new Map<number, number>();
      for (const [webhookId, { bound, running, isSlow }] of known) {
        const free = Math.max(0, bound - running);
        if (isSlow) {
          share -= running;
          slows.set(webhookId, free);
          others.set(webhookId, 0);
        } else if (free !== FIRST) others.set(webhookId, free);
      }
      const ofOthers = { room: others, otherwise: FIRST, most: Number.POSITIVE_INFINITY };
      return slows.size > 0 && share > 0
        ? [{ room: slows, otherwise: 0, most: share }, ofOthers]
        : [ofOthers];
    },
    began(webhookId) {
      of(webhookId).running += 1;
    },
    ended(webhookId, isQuick) {
      const endpoint = of(webhookId);
      endpoint.running -= 1;
      endpoint.bound = isQuick ? Math.min(most, endpoint.bound * 2) : Math.max(1, endpoint.bound >> 1);
      endpoint.isSlow = !isQuick;
      forget();
    },
  };
}
