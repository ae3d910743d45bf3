const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 300_000;

/**
 * The pause after the n-th failure (1 for the first): doubling from 1 s to 5 min, less up to a fifth by chance, so that
 * what failed together does not come back together. Below the longest, each pause is longer than the one before.
 */
export function retryPauseMs(failures: number, random: number): number {
  const whole = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1));
  return Math.round(whole * (1 - random / 5));
}
