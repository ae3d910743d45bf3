/** The decision of a limit about one call. */
export interface Allowance {
  readonly isAllowed: boolean;
  readonly limit: number;
  /** Calls left; 0 when this one is not allowed. */
  readonly remaining: number;
  /** Milliseconds until the oldest call leaves the window; for a rejected call, until the next may be made. */
  readonly resetMs: number;
}

/** Whole seconds for headers; never 0, so that a client that waits this long is not rejected again. */
export function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/**
 * Headers of draft-ietf-httpapi-ratelimit-headers: `RateLimit-Policy` is the limit (`q` calls in `w` seconds), `RateLimit`
 * its state (`r` calls left, the oldest counted call expires in `t` seconds).
 */
export function rateLimitHeaders(
  name: string,
  windowMs: number,
  { limit, remaining, resetMs }: Omit<Allowance, 'isAllowed'>,
): Record<string, string> {
  return {
    'RateLimit-Policy': `"${name}";q=${limit};w=${windowMs / 1000}`,
    RateLimit: `"${name}";r=${remaining};t=${wholeSeconds(resetMs)}`,
  };
}
