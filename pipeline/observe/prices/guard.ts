import type { Felt } from '../../../schemas/felt.ts';
import { factorBetween, plainDecimal, positiveDecimal } from './decimal.ts';
import type { FeedReading } from './feed.ts';

/**
 * Decides which readings of a feed are published. A reading is accepted when all of these hold:
 *
 * 1. It is for a requested token; addresses are compared as numbers.
 * 2. Its price is a positive decimal with no more digits than a price can have.
 * 3. The feed's confidence is between `MIN_CONFIDENCE` and 1; a missing confidence is refused.
 * 4. It is at most `maxAgeMs` old, and at most `CLOCK_SKEW_MS` ahead of our clock.
 * 5. It is newer than the last published price.
 * 6. It is at most `jumpFactor` times the last published price, and at least that price divided by `jumpFactor`. A larger
 *    jump becomes a candidate, published when `confirmations` later readings have agreed with it: each within
 *    `AGREEMENT_FACTOR` of the candidate and, by the feed's own time, `CONFIRMATION_SPACING_MS` newer than the previous one.
 *    A reading that fits neither the candidate nor the last price replaces the candidate; one that fits the last price
 *    is published and drops it; one that is not newer than the last price does neither.
 *
 * Rule 6 does not apply to the first price of a token. However old the last price is, it still bounds the next one: after
 * a gap a jump needs its confirmations as well.
 */
export interface GuardLimits {
  readonly maxAgeMs: number;
  readonly jumpFactor: number;
  readonly confirmations: number;
}

/** A price beyond the jump bound. */
export interface Candidate {
  /** Of the first reading: later ones are compared with it, so that agreeing readings cannot drift. */
  readonly price: string;
  /** The feed's time of the reading that was counted last, unix milliseconds. */
  readonly observedAt: number;
  /** Readings that agreed after the first. */
  readonly confirmations: number;
}

export interface GuardState {
  /** The last published price; null before the first. */
  readonly last: { readonly price: string; readonly observedAt: number } | null;
  readonly candidate: Candidate | null;
}

export const refusals = [
  'other_address',
  'not_a_price',
  'low_confidence',
  'too_old',
  'from_the_future',
  'jump',
  'untracked',
] as const;
export type RefusalReason = (typeof refusals)[number];

export type Verdict =
  | {
      readonly kind: 'accepted';
      readonly price: string;
      readonly confidence: string | null;
      readonly observedAt: number;
    }
  /** Not newer than the last published price. */
  | { readonly kind: 'unchanged' }
  | {
      readonly kind: 'refused';
      readonly reason: RefusalReason;
      readonly detail: string;
      readonly candidate: Candidate | null;
    };

const MIN_CONFIDENCE = 0.8;
const CLOCK_SKEW_MS = 60_000;
const AGREEMENT_FACTOR = 1.1;
/** Client requests can cause a reading every few seconds; readings that close count as one confirmation. */
const CONFIRMATION_SPACING_MS = 30_000;

/** Applies rules 2 to 6 to a reading of the right token. */
export function judge(reading: FeedReading, state: GuardState, limits: GuardLimits, now: number): Verdict {
  const refused = (reason: RefusalReason, detail: string, candidate = state.candidate): Verdict => ({
    kind: 'refused',
    reason,
    detail,
    candidate,
  });
  const { observedAt } = reading;
  const price = reading.price === null ? null : positiveDecimal(reading.price);
  if (price === null) return refused('not_a_price', `invalid price: ${excerpt(reading.price)}`);
  if (observedAt === null) return refused('not_a_price', 'price without a time');

  const confidence = reading.confidence === null ? null : plainDecimal(reading.confidence);
  if (confidence === null || Number(confidence) < MIN_CONFIDENCE || Number(confidence) > 1)
    return refused(
      'low_confidence',
      `confidence ${excerpt(reading.confidence)} is not between ${MIN_CONFIDENCE} and 1`,
    );

  const age = now - observedAt;
  if (age > limits.maxAgeMs) return refused('too_old', `${Math.round(age / 1000)} s old`);
  if (age < -CLOCK_SKEW_MS) return refused('from_the_future', `${Math.round(-age / 1000)} s in the future`);

  const { last } = state;
  if (last !== null && observedAt <= last.observedAt) return { kind: 'unchanged' };
  const factor = last === null ? 1 : factorBetween(price, last.price);
  if (last === null || factor <= limits.jumpFactor)
    return { kind: 'accepted', price, confidence, observedAt };

  const candidate = nextCandidate(state.candidate, price, observedAt);
  if (candidate.confirmations >= limits.confirmations)
    return { kind: 'accepted', price, confidence, observedAt };
  const times = factor >= 10 ? Math.round(factor) : factor.toFixed(1);
  return refused(
    'jump',
    `from ${last.price} to ${price} (factor ${times}), ${candidate.confirmations} of ${limits.confirmations} confirmations`,
    candidate,
  );
}

function nextCandidate(candidate: Candidate | null, price: string, observedAt: number): Candidate {
  if (candidate === null || factorBetween(price, candidate.price) > AGREEMENT_FACTOR)
    return { price, observedAt, confirmations: 0 };
  if (observedAt < candidate.observedAt + CONFIRMATION_SPACING_MS) return candidate;
  return { ...candidate, observedAt, confirmations: candidate.confirmations + 1 };
}

/**
 * Judges one answer of the feed for each requested token. A token without a reading is unknown to the feed, unless the feed
 * sent tokens that were not requested: then it answered for another address.
 */
export function judgeAnswer<T extends GuardState & { readonly token: Felt }>(
  requested: readonly T[],
  readings: readonly FeedReading[],
  limits: GuardLimits,
  now: number,
): { readonly claim: T; readonly verdict: Verdict }[] {
  const tokens = new Set<Felt | null>(requested.map(({ token }) => token));
  const unrequested = readings.find(({ token }) => !tokens.has(token));
  const newest = new Map<Felt | null, FeedReading>();
  for (const reading of readings) {
    const previous = newest.get(reading.token);
    // The feed may answer for both spellings of one address.
    if ((previous?.observedAt ?? -1) < (reading.observedAt ?? 0)) newest.set(reading.token, reading);
  }
  return requested.map((claim) => {
    const reading = newest.get(claim.token);
    return {
      claim,
      verdict:
        reading === undefined ? missing(claim.candidate, unrequested) : judge(reading, claim, limits, now),
    };
  });
}

function missing(candidate: Candidate | null, unrequested: FeedReading | undefined): Verdict {
  return unrequested === undefined
    ? { kind: 'refused', reason: 'untracked', detail: 'unknown to the feed', candidate }
    : {
        kind: 'refused',
        reason: 'other_address',
        detail: `the feed answered for ${unrequested.token ?? 'an invalid address'}, which was not requested`,
        candidate,
      };
}

/** The guard state after a verdict. */
export function stateAfter(state: GuardState, verdict: Verdict): GuardState {
  switch (verdict.kind) {
    case 'accepted':
      return { last: { price: verdict.price, observedAt: verdict.observedAt }, candidate: null };
    case 'unchanged':
      return state;
    case 'refused':
      return { last: state.last, candidate: verdict.candidate };
  }
}

function excerpt(text: string | null): string {
  return text === null ? 'none' : text.slice(0, 60);
}
