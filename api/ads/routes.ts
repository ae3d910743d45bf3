import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import { countsOfAds, isCounted } from '../../projections/ad-counts/queries.ts';
import { adsOfPlacement, isKnownAd } from '../../projections/catalogue/queries.ts';
import { adAnswer } from '../../schemas/api/directory.ts';
import type { AdAnswer } from '../../schemas/api/directory.ts';
import type { AdsMessage } from '../../schemas/messages/ads.ts';
import { notFound } from '../http/errors.ts';
import { identifyCommand } from '../commands/idempotency.ts';
import { integer, limit, networkFilter, text } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { isoOrNull } from '../http/times.ts';
import { chooseAds } from './choose.ts';
import type { CountedAd } from './choose.ts';
import type { AdEvents } from './events.ts';

export interface AdRouteDeps {
  readonly adEvents: AdEvents;
  readonly secretKey: Buffer;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const common = { tag: 'Ads', auth: 'key' } as const;

/** Ads with their impressions and clicks. */
export function adRoutes(deps: AdRouteDeps): Route[] {
  return [
    listRoute(deps),
    countRoute(deps, {
      id: 'countAdImpression',
      path: '/api/dapps/ads/{ad_id}/impression/',
      summary: 'Count an impression of an ad',
      type: 'ad.shown',
    }),
    countRoute(deps, {
      id: 'countAdClick',
      path: '/api/dapps/ads/{ad_id}/click/',
      summary: 'Count a click on an ad',
      type: 'ad.clicked',
    }),
  ];
}

function listRoute({ now }: AdRouteDeps): Route {
  return defineRoute({
    id: 'listAds',
    ...common,
    method: 'GET',
    path: '/api/dapps/ads/',
    summary: 'List the ads of a placement',
    description: [
      'Sorted by priority, highest first, then by impressions, fewest first. Leaves out ads that have not started, have',
      'ended, have reached their impression limit, or are for another network or category than the given one.',
    ].join(' '),
    query: z.object({
      placement: text({ max: 100, description: 'Slug; a placement without ads returns 404' }),
      network: networkFilter().optional(),
      category: text({ max: 100, description: 'Slug' }).optional(),
      limit: limit({ fallback: 1, max: 100 }),
    }),
    response: { 200: z.array(adAnswer) },
    async handler({ input: { query }, served, pool }) {
      const ads = await adsOfPlacement(pool, served.schema('catalogue'), query.placement);
      if (ads.length === 0) throw notFound();
      const ids = ads.map(({ id }) => id);
      const counts = await countsOfAds(pool, served.schema('ad-counts'), ids);
      const counted = ads.map((ad) => ({ ad, counts: counts.get(ad.id) ?? { impressions: 0, clicks: 0 } }));
      const { network, category } = query;
      const chosen = chooseAds(counted, { network, category, now: now() });
      return { status: 200, body: chosen.slice(0, query.limit).map(presentAd) };
    },
  });
}

function countRoute(
  { adEvents, secretKey }: AdRouteDeps,
  {
    type,
    ...route
  }: {
    readonly id: string;
    readonly path: '/api/dapps/ads/{ad_id}/impression/' | '/api/dapps/ads/{ad_id}/click/';
    readonly summary: string;
    readonly type: AdsMessage['type'];
  },
): Route {
  return defineRoute({
    ...common,
    ...route,
    method: 'POST',
    description: 'Works for an ad that is no longer shown, too.',
    isIdempotent: true,
    params: z.object({ ad_id: integer() }),
    response: { 204: null },
    async handler({ input, key, served, request, pool }) {
      const { ad_id: adId } = input.params;
      if (!(await isKnownAd(pool, served.schema('catalogue'), adId))) throw notFound();
      // The ad is part of the event's identity: the same Idempotency-Key may be used for another ad.
      const identified = { ...request, path: request.path.replace('{ad_id}', String(adId)) };
      const { id = randomUUID() } = identifyCommand(secretKey, `user:${key.userId}`, identified, input);
      const schema = served.schema('ad-counts');
      await adEvents.count({ type, id, ad_id: adId }, (eventId) => isCounted(pool, schema, eventId));
      return { status: 204, body: null };
    },
  });
}

function presentAd({ ad, counts }: CountedAd): AdAnswer {
  return {
    ...ad,
    starts_at: isoOrNull(ad.starts_at),
    ends_at: isoOrNull(ad.ends_at),
    impression_count: counts.impressions,
    click_count: counts.clicks,
  };
}
