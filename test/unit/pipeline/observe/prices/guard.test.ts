import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { judge, judgeAnswer, stateAfter } from '../../../../../pipeline/observe/prices/guard.ts';
import type { GuardState, Verdict } from '../../../../../pipeline/observe/prices/guard.ts';
import type { FeedReading } from '../../../../../pipeline/observe/prices/feed.ts';
import { toFelt } from '../../../../../schemas/felt.ts';

const SECOND = 1000;
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const NOW = 1_700_000_000_000;
const limits = { maxAgeMs: 60 * MINUTE, jumpFactor: 2, confirmations: 3 };
const nothing: GuardState = { last: null, candidate: null };
const hundred: GuardState = { last: { price: '100', observedAt: NOW - 10 * MINUTE }, candidate: null };

const reading = (more: Partial<FeedReading> = {}): FeedReading => ({
  token: toFelt(1n),
  price: '100',
  confidence: '0.99',
  observedAt: NOW - MINUTE,
  ...more,
});

const outcomeOf = (given: FeedReading, state = nothing): string => {
  const verdict = judge(given, state, limits, NOW);
  return verdict.kind === 'refused' ? verdict.reason : verdict.kind;
};

interface Step {
  readonly at: number;
  readonly price: string;
  readonly observedAt?: number;
  readonly confidence?: string;
}

/** Judges readings one after another from the state after `hundred`; a verdict that is published shows its price. */
function follow(steps: readonly Step[]): string[] {
  let state = hundred;
  return steps.map(({ at, price, observedAt = NOW + at, confidence = '0.99' }) => {
    const verdict = judge(reading({ price, observedAt, confidence }), state, limits, NOW + at);
    state = stateAfter(state, verdict);
    return shown(verdict);
  });
}

function shown(verdict: Verdict): string {
  if (verdict.kind === 'accepted') return verdict.price;
  return verdict.kind === 'refused' ? verdict.reason : verdict.kind;
}

describe('judge', () => {
  it('accepts the digits as written, without exponent', () => {
    expect(
      judge(reading({ price: '1.23456789012345678901e-5', confidence: '9e-1' }), nothing, limits, NOW),
    ).toEqual({
      kind: 'accepted',
      price: '0.0000123456789012345678901',
      confidence: '0.9',
      observedAt: NOW - MINUTE,
    });
  });

  it.each([
    ['no number', { price: null }, 'not_a_price'],
    ['zero', { price: '0.0' }, 'not_a_price'],
    ['a negative number', { price: '-3' }, 'not_a_price'],
    ['a quadrillion', { price: '1e15' }, 'not_a_price'],
    ['no time', { observedAt: null }, 'not_a_price'],
    ['confidence below the bound', { confidence: '0.79999' }, 'low_confidence'],
    ['no confidence', { confidence: null }, 'low_confidence'],
    ['confidence above 1', { confidence: '99' }, 'low_confidence'],
    ['a price older than the age limit', { observedAt: NOW - 60 * MINUTE - 1000 }, 'too_old'],
    ['a price two minutes in the future', { observedAt: NOW + 2 * MINUTE }, 'from_the_future'],
    ['a price as old as the age limit', { observedAt: NOW - 60 * MINUTE }, 'accepted'],
    ['a clock skew of half a minute', { observedAt: NOW + MINUTE / 2 }, 'accepted'],
    ['confidence at the bound', { confidence: '0.8' }, 'accepted'],
  ] as const)('judges %s', (_, more, outcome) => {
    expect(outcomeOf(reading(more))).toBe(outcome);
  });

  it('reports a reading that is not newer than the last price as unchanged', () => {
    const last = { price: '100', observedAt: NOW - MINUTE };
    expect(outcomeOf(reading(), { last, candidate: null })).toBe('unchanged');
    expect(outcomeOf(reading({ price: '101' }), { last, candidate: null })).toBe('unchanged');
    const older = reading({ observedAt: last.observedAt - 1 });
    expect(outcomeOf(older, { last, candidate: null })).toBe('unchanged');
    const newer = reading({ observedAt: last.observedAt + 1 });
    expect(outcomeOf(newer, { last, candidate: null })).toBe('accepted');
  });

  it('refuses a price more than twice or less than half of the last one', () => {
    const cents = fc.integer({ min: 1, max: 10_000_000 });
    fc.assert(
      fc.property(cents, cents, (before, now) => {
        const last = { price: String(before / 100), observedAt: NOW - 10 * MINUTE };
        const isJump = now > 2 * before || 2 * now < before;
        expect(outcomeOf(reading({ price: String(now / 100) }), { last, candidate: null })).toBe(
          isJump ? 'jump' : 'accepted',
        );
      }),
    );
  });

  it('never publishes a single wrong price, whatever its size', () => {
    const factor = fc.oneof(
      fc.double({ min: 2.01, max: 1e9, noNaN: true }),
      fc.double({ min: 1e-9, max: 0.499, noNaN: true }),
    );
    fc.assert(
      fc.property(factor, (times) => {
        const wrong = { at: 2 * MINUTE, price: (100 * times).toFixed(12) };
        const steps = [{ at: 0, price: '100' }, wrong, { at: 4 * MINUTE, price: '102' }];
        expect(follow(steps)).toEqual(['100', 'jump', '102']);
      }),
    );
  });

  it('accepts a lasting jump at the third reading that confirms it', () => {
    expect(
      follow([
        { at: 0, price: '400' },
        { at: 2 * MINUTE, price: '410' },
        { at: 4 * MINUTE, price: '395' },
        { at: 6 * MINUTE, price: '405' },
        { at: 8 * MINUTE, price: '404' },
      ]),
    ).toEqual(['jump', 'jump', 'jump', '405', '404']);
  });

  it('accepts a lasting jump although the feed repeats the last price now and then', () => {
    const stale = { price: '100', observedAt: hundred.last!.observedAt };
    expect(
      follow([
        { at: 0, price: '400' },
        { at: MINUTE, ...stale },
        { at: 2 * MINUTE, price: '410' },
        { at: 3 * MINUTE, ...stale },
        { at: 4 * MINUTE, price: '395' },
        { at: 5 * MINUTE, ...stale },
        { at: 6 * MINUTE, price: '405' },
      ]),
    ).toEqual(['jump', 'unchanged', 'jump', 'unchanged', 'jump', 'unchanged', '405']);
  });

  it('accepts a lasting jump downwards at the third reading that confirms it', () => {
    const steps = [0, 2, 4, 6].map((minutes) => ({ at: minutes * MINUTE, price: '0.1' }));
    expect(follow(steps)).toEqual(['jump', 'jump', 'jump', '0.1']);
  });

  it('counts the confirmations that are missing in its detail', () => {
    const first = judge(reading({ price: '400', observedAt: NOW }), hundred, limits, NOW);
    expect(first).toMatchObject({ detail: 'from 100 to 400 (factor 4.0), 0 of 3 confirmations' });
    const second = judge(
      reading({ price: '100000', observedAt: NOW + MINUTE }),
      stateAfter(hundred, first),
      limits,
      NOW + MINUTE,
    );
    expect(second).toMatchObject({ detail: 'from 100 to 100000 (factor 1000), 0 of 3 confirmations' });
  });

  it('accepts any jump when no confirmations are configured', () => {
    const verdict = judge(reading({ price: '400' }), hundred, { ...limits, confirmations: 0 }, NOW);
    expect(shown(verdict)).toBe('400');
  });

  it('drops a candidate when the price is back within the bound', () => {
    expect(
      follow([
        { at: 0, price: '400' },
        { at: 2 * MINUTE, price: '400' },
        { at: 4 * MINUTE, price: '400' },
        { at: 6 * MINUTE, price: '101' },
        { at: 8 * MINUTE, price: '400' },
        { at: 10 * MINUTE, price: '400' },
      ]),
    ).toEqual(['jump', 'jump', 'jump', '101', 'jump', 'jump']);
  });

  it('starts counting again when the price jumps on', () => {
    expect(
      follow([
        { at: 0, price: '400' },
        { at: 2 * MINUTE, price: '400' },
        { at: 4 * MINUTE, price: '400' },
        { at: 6 * MINUTE, price: '800' },
        { at: 8 * MINUTE, price: '400' },
        { at: 10 * MINUTE, price: '400' },
      ]),
    ).toEqual(Array.from({ length: 6 }, () => 'jump'));
  });

  it('compares confirmations with the first reading, so that a candidate cannot drift', () => {
    expect(
      follow([
        { at: 0, price: '400' },
        { at: 2 * MINUTE, price: '430' },
        { at: 4 * MINUTE, price: '430' },
        { at: 6 * MINUTE, price: '465' },
        { at: 8 * MINUTE, price: '465' },
        { at: 10 * MINUTE, price: '465' },
        { at: 12 * MINUTE, price: '465' },
      ]),
    ).toEqual(['jump', 'jump', 'jump', 'jump', 'jump', 'jump', '465']);
  });

  it('does not count the same record of the feed again', () => {
    const steps = [0, 10, 20, 30, 40].map((minutes) => ({
      at: minutes * MINUTE,
      price: '400',
      observedAt: NOW,
    }));
    expect(follow(steps)).toEqual(Array.from({ length: 5 }, () => 'jump'));
  });

  it('does not confirm sooner when a token is read every second', () => {
    const steps = Array.from({ length: 91 }, (_, second) => ({ at: second * SECOND, price: '400' }));
    // Confirmed at 30, 60 and 90 s.
    expect(follow(steps).slice(0, 90)).toEqual(Array.from({ length: 90 }, () => 'jump'));
    expect(follow(steps)[90]).toBe('400');
  });

  it('keeps a candidate over readings that are refused for another reason', () => {
    expect(
      follow([
        { at: 0, price: '400' },
        { at: 2 * MINUTE, price: '400' },
        { at: 4 * MINUTE, price: '400', confidence: '0.1' },
        { at: 6 * MINUTE, price: '400' },
        { at: 8 * MINUTE, price: '400' },
      ]),
    ).toEqual(['jump', 'jump', 'low_confidence', 'jump', '400']);
  });

  it('accepts a price within the bound after a gap of a month', () => {
    expect(follow([{ at: 30 * DAY, price: '180' }])).toEqual(['180']);
  });

  it('wants confirmations for a jump after a gap of a month, and publishes it then', () => {
    expect(
      follow([
        { at: 30 * DAY, price: '300' },
        { at: 30 * DAY + 2 * MINUTE, price: '301' },
        { at: 30 * DAY + 4 * MINUTE, price: '302' },
        { at: 30 * DAY + 6 * MINUTE, price: '303' },
      ]),
    ).toEqual(['jump', 'jump', 'jump', '303']);
  });

  it('continues counting after a gap between confirmations', () => {
    expect(
      follow([
        { at: 0, price: '400' },
        { at: 2 * MINUTE, price: '400' },
        { at: DAY, price: '401' },
        { at: DAY + 2 * MINUTE, price: '402' },
      ]),
    ).toEqual(['jump', 'jump', 'jump', '402']);
  });
});

describe('judgeAnswer', () => {
  const [one, two] = [toFelt(1n), toFelt(2n)];
  const verdicts = (...readings: FeedReading[]): string[] =>
    judgeAnswer([{ token: one, ...nothing }], readings, limits, NOW).map(({ verdict }) => shown(verdict));

  it('refuses a token without a reading as untracked', () => {
    expect(verdicts()).toEqual(['untracked']);
  });

  it('refuses an answer for another address', () => {
    expect(verdicts(reading({ token: two }))).toEqual(['other_address']);
    expect(verdicts(reading({ token: null }))).toEqual(['other_address']);
  });

  it('takes the newer reading of a token that was answered twice', () => {
    const [older, newer] = [
      reading({ price: '5', observedAt: NOW - 2 * MINUTE }),
      reading({ price: '6', observedAt: NOW - MINUTE }),
    ];
    expect(verdicts(older, newer)).toEqual(['6']);
    expect(verdicts(newer, older)).toEqual(['6']);
  });
});
