/** What a limit says to one call. */
export interface Allowance {
  readonly isAllowed: boolean;
  readonly limit: number;
  /** Calls that may still be made now; 0 when this one is not allowed. */
  readonly remaining: number;
  /** Until one of the calls that were made leaves the window; when refused, until the next one may be made. */
  readonly resetMs: number;
}

/** Whole seconds, as headers tell them; never 0, so that who waits so long is not refused again. */
export function wholeSeconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000));
}

/**
 * The fields of draft-ietf-httpapi-ratelimit-headers: `RateLimit-Policy` says what holds (`q` calls in `w` seconds),
 * `RateLimit` where the caller stands (`r` calls left, the oldest one leaves the window in `t` seconds).
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
