import type { AdCounts } from '../../projections/ad-counts/queries.ts';
import type { Ad } from '../../projections/catalogue/queries.ts';

/** The caller to choose ads for, and when. */
export interface Audience {
  /** undefined: any network. */
  readonly network: string | undefined;
  /** Slug; undefined: any category. */
  readonly category: string | undefined;
  /** Unix milliseconds. */
  readonly now: number;
}

export interface CountedAd {
  readonly ad: Ad;
  readonly counts: AdCounts;
}

/**
 * The ads of a placement to show: by priority, highest first, then by impressions, fewest first, then by id.
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
    matches(ad.network, network) &&
    matches(ad.category, category)
  );
}

/** True also for an ad without a restriction, and for a caller that names nothing. */
function matches(restriction: string | null, requested: string | undefined): boolean {
  return restriction === null || requested === undefined || restriction === requested;
}
