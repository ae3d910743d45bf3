import type { AdCounts } from '../../projections/ad-counts/queries.ts';
import type { Ad } from '../../projections/catalogue/queries.ts';

/** Who is to see an ad, and when. */
export interface Audience {
  /** undefined: any. */
  readonly network: string | undefined;
  /** Slug, likewise. */
  readonly category: string | undefined;
  /** Unix milliseconds. */
  readonly now: number;
}

export interface CountedAd {
  readonly ad: Ad;
  readonly counts: AdCounts;
}

/**
 * The ads of a placement that are to be shown, the highest priority first; of equal ones the one that was shown less, then
 * the one that was listed before.
 */
export function chooseAds(ads: readonly CountedAd[], audience: Audience): CountedAd[] {
  return ads
    .filter((one) => isShown(one, audience))
    .toSorted(
      (a, b) =>
        b.ad.priority - a.ad.priority || a.counts.impressions - b.counts.impressions || a.ad.id - b.ad.id,
    );
}

function isShown({ ad, counts }: CountedAd, { network, category, now }: Audience): boolean {
  return (
    ad.is_active &&
    (ad.starts_at === null || ad.starts_at <= now) &&
    (ad.ends_at === null || now < ad.ends_at) &&
    (ad.total_impression_limit === null || counts.impressions < ad.total_impression_limit) &&
    suits(ad.network, network) &&
    suits(ad.category, category)
  );
}

/** An ad without a restriction suits everybody, and a caller who names nothing is suited by every ad. */
function suits(restriction: string | null, asked: string | undefined): boolean {
  return restriction === null || asked === undefined || restriction === asked;
}
