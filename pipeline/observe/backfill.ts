import type { Pool } from '../../infra/postgres/client.ts';

/** Whether history is being indexed: observers then use a bounded share of the machine. */
export type IsBackfilling = () => Promise<boolean>;

const CACHE_MS = 1000;
/** Pause after work during a backfill, as a multiple of its duration: observers work a fifth of the time. */
const PAUSE_FACTOR = 4;

/** Milliseconds to pause after work during a backfill. */
export function pauseMs(workMs: number, { min = 0, max }: { min?: number; max: number }): number {
  return Math.min(Math.max(PAUSE_FACTOR * workMs, min), max);
}

/** True while a chunk of history is not indexed to its end. The answer is cached for a second. */
export function createBackfillCheck(pool: Pool): IsBackfilling {
  let cached: { readonly until: number; readonly answer: boolean } | null = null;
  return async () => {
    if (cached === null || performance.now() >= cached.until) {
      const { rowCount } = await pool.query(
        "SELECT 1 FROM tds.chunks WHERE status = 'open' AND range_end IS NOT NULL LIMIT 1",
      );
      cached = { until: performance.now() + CACHE_MS, answer: rowCount === 1 };
    }
    return cached.answer;
  };
}
