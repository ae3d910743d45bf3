/** How many attempts may be claimed now. */
export interface Capacity {
  /** Attempts per endpoint, by webhook. */
  readonly perEndpoint: ReadonlyMap<number, number>;
  /** Attempts of each endpoint that is not in `perEndpoint`. */
  readonly perOtherEndpoint: number;
  /** Attempts of all of these endpoints together. */
  readonly limit: number;
}

const INITIAL_LIMIT = 1;
/** Idle endpoints whose limits are remembered, least recently used first out. */
const MAX_REMEMBERED = 10_000;

interface Endpoint {
  limit: number;
  running: number;
  isSlow: boolean;
}

export type EndpointLimits = ReturnType<typeof createEndpointLimits>;

/**
 * Limits the attempts that one endpoint may have at a time. A new endpoint may have one; each fast answer doubles the limit,
 * up to a maximum, and each slow one halves it; all slow endpoints together share a limit of their own. So endpoints that
 * time out occupy a bounded part of the attempts that all share.
 */
export function createEndpointLimits({
  maxPerEndpoint,
  maxSlow,
}: {
  readonly maxPerEndpoint: number;
  /** Attempts of all slow endpoints together. */
  readonly maxSlow: number;
}) {
  const endpoints = new Map<number, Endpoint>();
  const endpointOf = (webhookId: number): Endpoint => {
    const endpoint = endpoints.get(webhookId) ?? { limit: INITIAL_LIMIT, running: 0, isSlow: false };
    // Moved to the end: a map iterates in the order of insertion, so the first is the least recently used.
    endpoints.delete(webhookId);
    endpoints.set(webhookId, endpoint);
    return endpoint;
  };
  const evictIdle = (): void => {
    if (endpoints.size <= MAX_REMEMBERED) return;
    for (const [webhookId, { running }] of endpoints) {
      if (running > 0) continue;
      endpoints.delete(webhookId);
      if (endpoints.size <= MAX_REMEMBERED) return;
    }
  };
  return {
    /** Of slow endpoints first, while their share lasts; then of all others. */
    capacities(): readonly Capacity[] {
      let slowCapacity = maxSlow;
      const slow = new Map<number, number>();
      const others = new Map<number, number>();
      for (const [webhookId, { limit, running, isSlow }] of endpoints) {
        const free = Math.max(0, limit - running);
        if (isSlow) {
          slowCapacity -= running;
          slow.set(webhookId, free);
          others.set(webhookId, 0);
        } else if (free !== INITIAL_LIMIT) others.set(webhookId, free);
      }
      const ofOthers = {
        perEndpoint: others,
        perOtherEndpoint: INITIAL_LIMIT,
        limit: Number.POSITIVE_INFINITY,
      };
      return slow.size > 0 && slowCapacity > 0
        ? [{ perEndpoint: slow, perOtherEndpoint: 0, limit: slowCapacity }, ofOthers]
        : [ofOthers];
    },
    attemptStarted(webhookId: number): void {
      endpointOf(webhookId).running += 1;
    },
    /** @param isFast answered soon, whatever the status */
    attemptEnded(webhookId: number, isFast: boolean): void {
      const endpoint = endpointOf(webhookId);
      endpoint.running -= 1;
      endpoint.limit = isFast
        ? Math.min(maxPerEndpoint, endpoint.limit * 2)
        : Math.max(1, endpoint.limit >> 1);
      endpoint.isSlow = !isFast;
      evictIdle();
    },
  };
}
