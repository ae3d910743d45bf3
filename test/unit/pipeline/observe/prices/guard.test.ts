import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { judge } from '../../../../../pipeline/observe/prices/guard.ts';
import type { KnownPrice, Verdict } from '../../../../../pipeline/observe/prices/guard.ts';
import type { FeedReading } from '../../../../../pipeline/observe/prices/feed.ts';
import { toFelt } from '../../../../../schemas/felt.ts';

const MINUTE = 60_000;
const NOW = 1_700_000_000_000;
const limits = { minConfidence: 0.8, maxAgeMs: 60 * MINUTE, jumpFactor: 2, confirmMs: 5 * MINUTE };
const nothing: KnownPrice = { last: null, held: null };

const said = (more: Partial<FeedReading> = {}): FeedReading => ({
  token: toFelt(1n),
  price: '100',
  confidence: '0.99',
  observedAt: NOW - MINUTE,
  ...more,
});

const reasonOf = (reading: FeedReading, known = nothing): string => {
  const verdict = judge(reading, known, limits, NOW);
  return verdict.kind === 'refused' ? verdict.reason : verdict.kind;
};

/** Readings one after another, with what is known of the token carried along as the observer does. */
function follow(readings: readonly { at: number; price: string; observedAt?: number }[]): Verdict[] {
  let known: KnownPrice = nothing;
  return readings.map(({ at, price, observedAt = NOW + at - 1000 }) => {
    const verdict = judge(said({ price, observedAt }), known, limits, NOW + at);
    if (verdict.kind === 'publish') known = { last: { price: verdict.price, observedAt }, held: null };
    if (verdict.kind === 'held') known = { ...known, held: verdict.held };
    return verdict;
  });
}
const kinds = (verdicts: readonly Verdict[]): string[] => verdicts.map(({ kind }) => kind);

describe('judge', () => {
  it('publishes the digits that were written, without exponent', () => {
    expect(
      judge(said({ price: '1.23456789012345678901e-5', confidence: '9e-1' }), nothing, limits, NOW),
    ).toEqual({
      kind: 'publish',
      price: '0.0000123456789012345678901',
      confidence: '0.9',
      observedAt: NOW - MINUTE,
    });
  });

  it.each([
    ['no number', { price: null }, 'not_a_price'],
    ['zero', { price: '0.0' }, 'not_a_price'],
    ['below zero', { price: '-3' }, 'not_a_price'],
    ['a quadrillion', { price: '1e15' }, 'not_a_price'],
    ['no time', { observedAt: null }, 'not_a_price'],
    ['little confidence', { confidence: '0.79999' }, 'low_confidence'],
    ['no confidence', { confidence: null }, 'low_confidence'],
    ['confidence beyond all measure', { confidence: '99' }, 'low_confidence'],
    ['an hour and a second old', { observedAt: NOW - 60 * MINUTE - 1000 }, 'too_old'],
    ['two minutes ahead', { observedAt: NOW + 2 * MINUTE }, 'from_the_future'],
    ['an hour old', { observedAt: NOW - 60 * MINUTE }, 'publish'],
    ['a clock half a minute apart', { observedAt: NOW + MINUTE / 2 }, 'publish'],
    ['just enough confidence', { confidence: '0.8' }, 'publish'],
  ] as const)('%s', (_, more, outcome) => {
    expect(reasonOf(said(more))).toBe(outcome);
  });

  it('does not say the same time twice, nor go back, even with another price', () => {
    const last = { price: '100', observedAt: NOW - MINUTE };
    expect(reasonOf(said(), { last, held: null })).toBe('repeated');
    expect(reasonOf(said({ price: '101' }), { last, held: null })).toBe('repeated');
    expect(reasonOf(said({ observedAt: last.observedAt - 1 }), { last, held: null })).toBe('repeated');
    expect(reasonOf(said({ observedAt: last.observedAt + 1 }), { last, held: null })).toBe('publish');
  });

  it('never publishes at once what is more than twice or less than half of the last', () => {
    const cents = fc.integer({ min: 1, max: 10_000_000 });
    fc.assert(
      fc.property(cents, cents, (before, now) => {
        const last = { price: String(before / 100), observedAt: NOW - 10 * MINUTE };
        const isJump = now > 2 * before || 2 * now < before;
        expect(reasonOf(said({ price: String(now / 100) }), { last, held: null })).toBe(
          isJump ? 'held' : 'publish',
        );
      }),
    );
  });
});

describe('a jump', () => {
  it('of four times is believed after two pauses in which every reading agreed', () => {
    const verdicts = follow([
      { at: 0, price: '100' },
      { at: 2 * MINUTE, price: '400' },
      { at: 7 * MINUTE, price: '410' },
      { at: 11 * MINUTE, price: '395' },
      { at: 12.2 * MINUTE, price: '400' },
      { at: 14 * MINUTE, price: '404' },
    ]);
    expect(kinds(verdicts)).toEqual(['publish', 'held', 'held', 'held', 'publish', 'publish']);
    expect(verdicts[1]).toMatchObject({ readAgainAt: NOW + 12 * MINUTE });
  });

  it('of a thousand times is not believed within 49 minutes, however often it is read', () => {
    const readings = Array.from({ length: 48 }, (_, i) => ({ at: (i + 1) * MINUTE, price: '100000' }));
    expect(new Set(kinds(follow([{ at: 0, price: '100' }, ...readings])).slice(1))).toEqual(
      new Set(['held']),
    );
  });

  it('is forgotten when the price is back in line', () => {
    const verdicts = follow([
      { at: 0, price: '100' },
      { at: MINUTE, price: '400' },
      { at: 2 * MINUTE, price: '101' },
      { at: 12 * MINUTE, price: '400' },
    ]);
    expect(kinds(verdicts)).toEqual(['publish', 'held', 'publish', 'held']);
    const wait = Math.ceil(5 * MINUTE * Math.log2(400 / 101));
    expect(verdicts[3]).toMatchObject({ readAgainAt: NOW + 12 * MINUTE + wait });
  });

  it('begins anew when it goes on jumping', () => {
    expect(
      kinds(
        follow([
          { at: 0, price: '100' },
          { at: MINUTE, price: '400' },
          { at: 8 * MINUTE, price: '800' },
          { at: 12 * MINUTE, price: '400' },
          { at: 13 * MINUTE, price: '400' },
        ]),
      ),
    ).toEqual(['publish', 'held', 'held', 'held', 'held']);
  });

  it('cannot creep: the first of those that agree is the measure', () => {
    expect(
      kinds(
        follow([
          { at: 0, price: '100' },
          { at: MINUTE, price: '400' },
          { at: 4 * MINUTE, price: '430' },
          { at: 8 * MINUTE, price: '465' },
          { at: 13 * MINUTE, price: '465' },
          { at: 19.2 * MINUTE, price: '465' },
        ]),
      ),
    ).toEqual(['publish', 'held', 'held', 'held', 'held', 'publish']);
  });

  it('is not confirmed by the same record read again', () => {
    const observedAt = NOW + MINUTE;
    expect(
      kinds(
        follow([
          { at: 0, price: '100' },
          { at: 2 * MINUTE, price: '400', observedAt },
          { at: 30 * MINUTE, price: '400', observedAt },
          { at: 31 * MINUTE, price: '400', observedAt: observedAt + MINUTE },
        ]),
      ),
    ).toEqual(['publish', 'held', 'held', 'publish']);
  });
});
