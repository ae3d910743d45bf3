/** Times in answers: ISO 8601 in UTC, with `Z`. */

/** @param millis Unix milliseconds */
export function iso(millis: number): string {
  return new Date(millis).toISOString();
}

/** @param millis Unix milliseconds */
export function isoOrNull(millis: number | null): string | null {
  return millis === null ? null : iso(millis);
}
