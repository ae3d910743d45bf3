/** When a delivery is tried, and what becomes of it: the contract's states of a webhook delivery. Pure. */

export type DeliveryStatus = 'pending' | 'success' | 'failed' | 'dead';

export interface Schedule {
  /** Milliseconds of waiting before each scheduled retry; as many retries as there are. */
  readonly delaysMs: readonly number[];
}

/** Times are unix milliseconds. */
export interface DeliveryState {
  readonly status: DeliveryStatus;
  /** Attempts that have ended. */
  readonly attempts: number;
  /** Those of them that the schedule made. */
  readonly scheduledAttempts: number;
  /** The next attempt of the schedule; null: none is left. */
  readonly scheduledAt: number | null;
  /** An attempt that was asked for by hand and has not ended. */
  readonly manualAt: number | null;
}

export interface NextState extends DeliveryState {
  /** When something is to be done next; null: never. */
  readonly dueAt: number | null;
  /** This attempt was the one after which no other comes by itself. */
  readonly hasDied: boolean;
}

/** No retry comes early, and not all at once. */
const MOST_JITTER = 0.1;

/**
 * The state after an attempt has ended at `at`. One that was asked for by hand uses up none of the schedule: that goes on
 * where it stood (decision 91).
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
    delay === undefined ? null : at + Math.ceil(delay) + Math.floor(delay * MOST_JITTER * random());
  const scheduledAt = isManual ? state.scheduledAt : retryAt;
  return {
    status: scheduledAt === null ? 'dead' : 'failed',
    attempts,
    scheduledAttempts,
    scheduledAt,
    manualAt,
    dueAt: earlier(scheduledAt, manualAt),
    hasDied: scheduledAt === null && state.status !== 'dead',
  };
}

/** The earlier of two times, of which each may be never. */
function earlier(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.min(one, other);
}
