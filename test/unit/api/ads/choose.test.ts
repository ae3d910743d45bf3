import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { chooseAds } from '../../../../api/ads/choose.ts';
import type { CountedAd } from '../../../../api/ads/choose.ts';
import { anAd } from '../../../support/catalogue.ts';

const NOW = 1_700_000_000_000;

function counted(
  id: number,
  { impressions = 0, ...more }: Partial<CountedAd['ad']> & { impressions?: number } = {},
): CountedAd {
  const ad = { ...anAd(''), id, ...more };
  return { ad, counts: { impressions, clicks: 0 } };
}
const audience = (network?: string, category?: string, now = NOW) => ({ network, category, now });
const ids = (ads: readonly CountedAd[], who = audience()): number[] =>
  chooseAds(ads, who).map(({ ad }) => ad.id);

describe('an ad', () => {
  // Restriction of the ad, what the caller says, whether it is shown.
  const restrictions = [
    [null, undefined, true],
    [null, 'one', true],
    ['one', 'one', true],
    ['one', 'two', false],
    // As every filter that is absent.
    ['one', undefined, true],
  ] as const;
  const both = restrictions.flatMap(([network, onNetwork, isOnNetwork]) =>
    restrictions.map(
      ([category, inCategory, isInCategory]) =>
        [network, onNetwork, category, inCategory, isOnNetwork && isInCategory] as const,
    ),
  );
  it.each(both)(
    'for network %s, asked for %s, and for category %s, asked for %s: %s',
    (network, onNetwork, category, inCategory, isShown) => {
      expect(ids([counted(1, { network, category })], audience(onNetwork, inCategory))).toEqual(
        isShown ? [1] : [],
      );
    },
  );

  it.each([
    [NOW + 1, null, false],
    [NOW, null, true],
    [NOW - 1, null, true],
    [null, NOW - 1, false],
    [null, NOW, false],
    [null, NOW + 1, true],
    [NOW, NOW + 1, true],
    [NOW, NOW, false],
    [null, null, true],
  ])('from %s to %s is shown: %s', (starts_at, ends_at, isShown) => {
    expect(ids([counted(1, { starts_at, ends_at })])).toEqual(isShown ? [1] : []);
  });

  it.each([
    [null, 1_000_000, true],
    [100, 99, true],
    [100, 100, false],
    [100, 200, false],
    [0, 0, false],
  ])('with a cap of %s, shown %s times, is shown: %s', (limit, impressions, isShown) => {
    expect(ids([counted(1, { total_impression_limit: limit, impressions })])).toEqual(isShown ? [1] : []);
  });

  it('that is inactive is not shown', () => {
    expect(ids([counted(1, { is_active: false })])).toEqual([]);
  });
});

it('chooseAds orders by priority, then by fewest impressions, then by id', () => {
  const ads = [
    counted(5, { priority: 1 }),
    counted(4, { priority: 2, impressions: 7 }),
    counted(3, { priority: 2, impressions: 3 }),
    counted(2, { priority: 2, impressions: 3 }),
    counted(1, { priority: -1 }),
  ];
  expect(ids(ads)).toEqual([2, 3, 4, 5, 1]);
});

it('chooseAds orders independently of the input order', () => {
  const anyAd = fc.record({
    priority: fc.integer({ min: -1, max: 1 }),
    impressions: fc.integer({ min: 0, max: 2 }),
  });
  fc.assert(
    fc.property(fc.array(anyAd, { maxLength: 12 }), fc.infiniteStream(fc.nat()), (some, keys) => {
      const ads = some.map((one, id) => counted(id, one));
      const shuffled = ads
        .map((ad) => [keys.next().value ?? 0, ad] as const)
        .toSorted(([a], [b]) => a - b)
        .map(([, ad]) => ad);
      expect(ids(shuffled)).toEqual(ids(ads));
    }),
  );
});
