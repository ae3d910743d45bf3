import type { Delivery } from '../queries.ts';

/** When a delivery is attempted next, and its status: the contract's states of a webhook delivery. Pure. */

export interface Schedule {
  /** Milliseconds before each scheduled retry; one entry a retry. */
  readonly delaysMs: readonly number[];
}

/** Times are unix milliseconds. */
export interface DeliveryState {
  readonly status: Delivery['status'];
  /** Attempts that have ended. */
  readonly attempts: number;
  /** Those of them that were scheduled, not manual. */
  readonly scheduledAttempts: number;
  /** The next scheduled attempt; null: none is left. */
  readonly scheduledAt: number | null;
  /** A manual attempt that was requested and has not ended. */
  readonly manualAt: number | null;
}

export interface NextState extends DeliveryState {
  /** The earlier of both; null: no attempt is left. */
  readonly dueAt: number | null;
  /** This attempt was the last scheduled one, and it failed. */
  readonly hasDied: boolean;
}

/** Added to a delay, as a fraction of it: retries never come early, and are spread. */
const MAX_JITTER = 0.1;

/**
 * The state after an attempt that ended at `at`. A manual attempt uses up none of the schedule, which continues unchanged
 * (decision 91).
 *
 * @param random from 0 to before 1
 */
export function afterAttempt(
  state: DeliveryState,
  attempt: { readonly isSuccess: boolean; readonly isManual: boolean; readonly at: number },
  { delaysMs }: Schedule,
  random: () => number,
): NextState {
  const { isSuccess, isManual, at } = attempt;
  const attempts = state.attempts + 1;
  const scheduledAttempts = state.scheduledAttempts + (isManual ? 0 : 1);
  const manualAt = isManual ? null : state.manualAt;
  if (isSuccess) {
    const done = { scheduledAt: null, manualAt: null, dueAt: null, hasDied: false };
    return { status: 'success', attempts, scheduledAttempts, ...done };
  }
  const delay = delaysMs[scheduledAttempts - 1];
  const retryAt =
    delay === undefined ? null : at + Math.ceil(delay) + Math.floor(delay * MAX_JITTER * random());
  const scheduledAt = isManual ? state.scheduledAt : retryAt;
  return {
    status: scheduledAt === null ? 'dead' : 'failed',
    attempts,
    scheduledAttempts,
    scheduledAt,
    manualAt,
    dueAt: earliest(scheduledAt, manualAt),
    hasDied: scheduledAt === null && state.status !== 'dead',
  };
}

/** null: never. */
function earliest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.min(one, other);
}
