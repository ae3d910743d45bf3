import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';

import { afterAttempt } from '../../../../../pipeline/dispatch/send/schedule.ts';
import type { DeliveryState, NextState } from '../../../../../pipeline/dispatch/send/schedule.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
/** The contract's retries; the first attempt goes before them. */
const delaysMs = [30 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 12 * HOUR];
const AT = 1_700_000_000_000;

const fresh: DeliveryState = {
  status: 'pending',
  attempts: 0,
  scheduledAttempts: 0,
  scheduledAt: AT,
  manualAt: null,
};
interface Attempt {
  readonly isSuccess: boolean;
  readonly isManual?: boolean;
  readonly at?: number;
}
const after = (
  state: DeliveryState,
  { isSuccess, isManual = false, at = AT }: Attempt,
  random = 0,
): NextState => afterAttempt(state, { isSuccess, isManual, at }, { delaysMs }, () => random);
const failing: Attempt = { isSuccess: false };
const taking: Attempt = { isSuccess: true };

/** States that attempts lead to, each made when the one before said that it is due. */
function afterFailures(count: number): NextState {
  let state: DeliveryState = fresh;
  let next = after(state, failing);
  for (let made = 1; made < count; made += 1) {
    state = next;
    next = after(state, { ...failing, at: state.scheduledAt ?? AT });
  }
  return next;
}

const attempts = fc.array(
  fc.record({
    isManual: fc.boolean(),
    at: fc.integer({ min: AT, max: AT + 20 * HOUR }),
    random: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  }),
  { maxLength: 30 },
);

describe('the states of a delivery', () => {
  it('goes from pending to success with the first accepted attempt', () => {
    expect(after(fresh, taking)).toEqual({
      status: 'success',
      attempts: 1,
      scheduledAttempts: 1,
      scheduledAt: null,
      manualAt: null,
      dueAt: null,
      hasDied: false,
    });
  });

  test.each([
    [1, 30 * SECOND],
    [2, 5 * MINUTE],
    [3, 30 * MINUTE],
    [4, 2 * HOUR],
    [5, 12 * HOUR],
  ])('failure %i is followed by a retry %i ms later', (count, delay) => {
    const before = count === 1 ? fresh : afterFailures(count - 1);
    const at = before.scheduledAt ?? 0;
    const due = at + delay;
    expect(after(before, { ...failing, at })).toEqual({
      status: 'failed',
      attempts: count,
      scheduledAttempts: count,
      scheduledAt: due,
      manualAt: null,
      dueAt: due,
      hasDied: false,
    });
    expect(after(before, { ...taking, at })).toMatchObject({
      status: 'success',
      attempts: count,
      dueAt: null,
    });
  });

  it('is dead when the fifth retry, the sixth attempt, has failed', () => {
    expect(afterFailures(6)).toEqual({
      status: 'dead',
      attempts: 6,
      scheduledAttempts: 6,
      scheduledAt: null,
      manualAt: null,
      dueAt: null,
      hasDied: true,
    });
  });

  it('succeeds by an accepted manual retry of a dead delivery, and does not die again by a failed one', () => {
    const dead = afterFailures(6);
    expect(after(dead, { ...taking, isManual: true })).toMatchObject({
      status: 'success',
      attempts: 7,
      scheduledAttempts: 6,
      hasDied: false,
    });
    expect(after(dead, { ...failing, isManual: true })).toMatchObject({
      status: 'dead',
      attempts: 7,
      scheduledAttempts: 6,
      dueAt: null,
      hasDied: false,
    });
  });

  it('keeps a manual request when the scheduled attempt goes first and fails', () => {
    const asked = { ...fresh, manualAt: AT - 5 };
    expect(after(asked, failing)).toMatchObject({ manualAt: AT - 5, dueAt: AT - 5 });
    expect(after(asked, taking)).toMatchObject({ manualAt: null, dueAt: null });
  });

  it('dies once while a manual retry waits, and stays due for it', () => {
    const last = { ...afterFailures(5), manualAt: AT + 1 };
    expect(after(last, failing)).toMatchObject({
      status: 'dead',
      scheduledAt: null,
      dueAt: AT + 1,
      hasDied: true,
    });
  });
});

describe('any sequence of attempts', () => {
  it('never retries early, nor more than a tenth of the delay late', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 4 }), fc.nat(), attempts, (made, offset, [first]) => {
        const random = first?.random ?? 0.5;
        const at = AT + offset;
        const state = { ...fresh, attempts: made, scheduledAttempts: made };
        const { scheduledAt } = after(state, { ...failing, at }, random);
        const delay = delaysMs[made] ?? 0;
        const waited = (scheduledAt ?? 0) - at;
        expect(waited).toBeGreaterThanOrEqual(delay);
        expect(waited).toBeLessThanOrEqual(delay * 1.1);
        expect(Number.isInteger(waited)).toBe(true);
      }),
    );
  });

  it('spreads deliveries that failed together', () => {
    const times = [0, 0.25, 0.5, 0.75].map((random) => after(fresh, failing, random).scheduledAt);
    expect(new Set(times).size).toBe(4);
  });

  it('neither uses up nor moves a scheduled attempt by a manual one', () => {
    fc.assert(
      fc.property(attempts, (made) => {
        let state: DeliveryState = fresh;
        for (const { isManual, at, random } of made) {
          // The schedule has nothing left to make of a dead one.
          const byHand = isManual || state.status === 'dead';
          const next = after(state, { ...failing, isManual: byHand, at }, random);
          expect(next.attempts).toBe(state.attempts + 1);
          expect(next.scheduledAttempts).toBe(state.scheduledAttempts + (byHand ? 0 : 1));
          if (byHand) expect(next.scheduledAt).toBe(state.scheduledAt);
          state = next;
        }
      }),
    );
  });

  it('makes six scheduled attempts, dies exactly once, after the sixth, and is due until then', () => {
    fc.assert(
      fc.property(attempts, (made) => {
        let state: DeliveryState = fresh;
        let deaths = 0;
        for (const { isManual, at, random } of made) {
          const byHand = isManual || state.status === 'dead';
          const next = after(state, { ...failing, isManual: byHand, at }, random);
          if (next.hasDied) deaths += 1;
          const isDead = next.scheduledAttempts === 6;
          expect(next.status).toBe(isDead ? 'dead' : 'failed');
          expect(deaths).toBe(isDead ? 1 : 0);
          expect(next.dueAt).toBe(isDead ? null : next.scheduledAt);
          if (!isDead) expect(next.scheduledAt).not.toBeNull();
          state = next;
        }
      }),
    );
  });

  it('ends with the first success, from any state', () => {
    fc.assert(
      fc.property(attempts, fc.boolean(), (made, isManual) => {
        let state: DeliveryState = fresh;
        for (const each of made) state = after(state, { ...failing, ...each }, each.random);
        const next = after({ ...state, manualAt: AT }, { ...taking, isManual });
        expect(next).toMatchObject({
          status: 'success',
          attempts: made.length + 1,
          scheduledAt: null,
          manualAt: null,
          dueAt: null,
          hasDied: false,
        });
      }),
    );
  });
});
