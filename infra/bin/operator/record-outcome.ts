import { isPostgresUnavailable } from '../../postgres/client.ts';
import type { Logger } from '../../log.ts';
import { retry } from '../../retry.ts';

/** A fail-over of PostgreSQL usually ends within this time. */
const RETRY_MS = 30_000;

/**
 * Records how a run ended, and retries while PostgreSQL is unavailable; `record` must be idempotent. A failure is only logged,
 * because the run itself has ended.
 *
 * @param deps.signal ends the retries
 */
export async function recordOutcome(
  { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
  run: 'rebuild' | 'verification',
  record: () => Promise<unknown>,
): Promise<void> {
  let failure: unknown;
  const attempt = async (): Promise<void> => {
    try {
      await record();
    } catch (error) {
      failure = error;
      throw error;
    }
  };
  try {
    await retry(attempt, { isRetryable: isPostgresUnavailable, maxMs: 1000, deadlineMs: RETRY_MS, signal });
  } catch {
    // `retry` throws the reason of the signal when it ends the retries.
    log.warn({ err: failure }, `could not record the end of the ${run}`);
  }
}
