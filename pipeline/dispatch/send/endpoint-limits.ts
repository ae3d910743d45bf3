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
 * up to a maximum, and each slow one halves it; all slow endpoints together share a limit of their own, and so do they and the
 * attempts of others beyond the first of each. So endpoints that time out occupy a bounded part of the attempts that all
 * share, and those that answer quickly and then hang leave the rest to the first attempts of others.
 */
export function createEndpointLimits({
  maxPerEndpoint,
  maxSlow,
  maxSlowAndFurther,
}: {
  readonly maxPerEndpoint: number;
  /** Attempts of all slow endpoints together. */
  readonly maxSlow: number;
  /** These, and the attempts of all other endpoints beyond the first of each. */
  readonly maxSlowAndFurther: number;
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
  /** The free attempts of each slow endpoint and of each other that has a running one, and what is left of the shares. */
  const survey = () => {
    const slow = new Map<number, number>();
    const busy = new Map<number, number>();
    let slowRunning = 0;
    let further = 0;
    for (const [webhookId, { limit, running, isSlow }] of endpoints) {
      const free = Math.max(0, limit - running);
      if (isSlow) {
        slow.set(webhookId, free);
        slowRunning += running;
      } else if (running > 0) {
        busy.set(webhookId, free);
        further += running - 1;
      }
    }
    const left = maxSlowAndFurther - slowRunning - further;
    return { slow, busy, left, slowLeft: Math.min(maxSlow - slowRunning, left) };
  };
  return {
    /**
     * Of slow endpoints first, while their share lasts; then the first attempts of all others; then further ones, while their
     * share lasts. Each is computed from the attempts started before it is taken.
     */
    *capacities(): Generator<Capacity> {
      const { slow, busy, slowLeft } = survey();
      if (slow.size > 0 && slowLeft > 0) yield { perEndpoint: slow, perOtherEndpoint: 0, limit: slowLeft };
      yield {
        perEndpoint: new Map([...slow.keys(), ...busy.keys()].map((webhookId) => [webhookId, 0])),
        perOtherEndpoint: INITIAL_LIMIT,
        limit: Number.POSITIVE_INFINITY,
      };
      const { busy: started, left } = survey();
      if (started.size > 0 && left > 0) yield { perEndpoint: started, perOtherEndpoint: 0, limit: left };
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
