import { factorBetween, plainDecimal, positiveDecimal } from './decimal.ts';
import type { FeedReading } from './feed.ts';

/**
 * The plausibility guard: what a feed says is published only when all of this holds.
 *
 * 1. It is of a token that was asked for, compared as numbers, whatever its spelling.
 * 2. It is a positive number of a price's size, kept to the last digit.
 * 3. The feed's confidence is at least `minConfidence`; a feed that does not say is not believed, unless that is 0.
 * 4. It is not older than `maxAgeMs`, nor ahead of our clock by more than a minute.
 * 5. It is newer than the last one published; the same once more is no news.
 * 6. It is not more than `jumpFactor` times the last one published, or less than so much of it. Beyond, it is held: it is
 *    published when a later reading, with a later time of the feed's own, agrees with it within a tenth, and the time
 *    between is `confirmMs` for each doubling of the factor (5 min: ×4 is believed after 10 min, ×1,000 after 50). A
 *    reading between that is neither near the held one nor near the last one begins that anew; one near the last one is
 *    published, and the held one is forgotten.
 *
 * The first price of a token has nothing to be compared with.
 */
export interface GuardLimits {
  readonly minConfidence: number;
  readonly maxAgeMs: number;
  readonly jumpFactor: number;
  readonly confirmMs: number;
}

/** A price out of line, and since when readings have agreed with it (the guard's clock). */
export interface HeldPrice {
  readonly price: string;
  readonly observedAt: number;
  readonly since: number;
}

/** What is known of a token before a reading. */
export interface KnownPrice {
  readonly last: { readonly price: string; readonly observedAt: number } | null;
  readonly held: HeldPrice | null;
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
export type Refusal = (typeof refusals)[number];

export type Verdict =
  | {
      readonly kind: 'publish';
      readonly price: string;
      readonly confidence: string | null;
      readonly observedAt: number;
    }
  /** Nothing new. */
  | { readonly kind: 'repeated' }
  | { readonly kind: 'held'; readonly held: HeldPrice; readonly readAgainAt: number; readonly detail: string }
  | { readonly kind: 'refused'; readonly reason: Refusal; readonly detail: string };

const AGREE_FACTOR = 1.1;
const CLOCKS_APART_MS = 60_000;

/** Rules 2 to 6, of a reading that is of this token. */
export function judge(reading: FeedReading, known: KnownPrice, limits: GuardLimits, now: number): Verdict {
  const { observedAt } = reading;
  const price = reading.price === null ? null : positiveDecimal(reading.price);
  if (price === null) return refused('not_a_price', `the price is ${short(reading.price)}`);
  if (observedAt === null) return refused('not_a_price', 'the price has no time');

  const confidence = reading.confidence === null ? null : plainDecimal(reading.confidence);
  if (Number(confidence ?? 0) < limits.minConfidence || Number(confidence ?? 0) > 1)
    return refused('low_confidence', `the confidence is ${short(reading.confidence)}`);

  const age = now - observedAt;
  if (age > limits.maxAgeMs) return refused('too_old', `it is ${Math.round(age / 1000)} s old`);
  if (age < -CLOCKS_APART_MS) return refused('from_the_future', `it is ${Math.round(-age / 1000)} s ahead`);

  const { last, held } = known;
  if (last !== null && observedAt <= last.observedAt) return { kind: 'repeated' };
  const factor = last === null ? 1 : factorBetween(price, last.price);
  if (last === null || factor <= limits.jumpFactor) return { kind: 'publish', price, confidence, observedAt };

  const waitMs = Math.ceil(limits.confirmMs * Math.log2(factor));
  const agrees = held !== null && factorBetween(price, held.price) <= AGREE_FACTOR;
  const since = agrees ? held.since : now;
  if (agrees && observedAt > held.observedAt && now - since >= waitMs)
    return { kind: 'publish', price, confidence, observedAt };
  return {
    kind: 'held',
    // The first of those that agree stays the measure, so that they cannot creep.
    held: agrees ? held : { price, observedAt, since },
    readAgainAt: since + waitMs,
    detail: `from ${last.price} to ${price} (${factor >= 10 ? Math.round(factor) : factor.toFixed(1)} times): published if it stays so until ${new Date(since + waitMs).toISOString()}`,
  };
}

function refused(reason: Refusal, detail: string): Verdict {
  return { kind: 'refused', reason, detail };
}

function short(text: string | null): string {
  return text === null ? 'no number' : text.slice(0, 60);
}
