import { z } from 'zod';

import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { invalidFeedAnswer } from './http.ts';
import type { TextReader } from './http.ts';

/** What a list says of a token: the flags of the contract, and a logo. */
export interface Listing {
  readonly token: Felt;
  readonly verified: boolean;
  readonly common: boolean;
  readonly public: boolean;
  readonly logo: string | null;
}

/** As large as the list's server allows. */
const PAGE_SIZE = 100;
const MOST_PAGES = 500;
const LONGEST_LOGO = 2048;

/** Fields of a token that are not looked at: name, symbol and decimals are the chain's to say. */
const listed = z.object({
  address: z.string(),
  logoUri: z.string().nullish(),
  tags: z.array(z.string()).max(50),
});
const page = z.object({
  content: z.array(z.unknown()).max(PAGE_SIZE),
  totalPages: z.int().min(0),
  totalElements: z.int().min(0),
});

/**
 * The whole of AVNU's token list, `GET <url>?page&size` → `{content: [{name, address, symbol, decimals, logoUri,
 * lastDailyVolumeUsd, extensions, tags}], totalPages, totalElements, size, number}`, pages counted from 0 (its SDK,
 * github.com/avnu-labs/avnu-sdk, `src/types.ts`: `Page<Token>`). A token that is not one is passed over; a list that does
 * not hold what it counts, or changes while it is read, is refused as a whole.
 *
 * | flag | tags |
 * |---|---|
 * | verified | Verified |
 * | common | AVNU and Verified: what AVNU itself picked out of those it verified |
 * | public | Community, or Unruggable (made with the community's own launcher) |
 *
 * A token of which only `Unknown` or other tags are said has no flag.
 *
 * @returns the tokens, and how many entries were none
 */
export async function readTokenList(
  reader: TextReader,
  url: string,
  signal?: AbortSignal,
): Promise<{ listings: Map<Felt, Listing>; unreadable: number }> {
  const listings = new Map<Felt, Listing>();
  let unreadable = 0;
  let entries = 0;
  for (let number = 0; ; number += 1) {
    const asked = new URL(url);
    asked.searchParams.set('page', String(number));
    asked.searchParams.set('size', String(PAGE_SIZE));
    const { content, totalPages, totalElements } = readPage(await reader.get(asked.href, signal));
    if (totalPages > MOST_PAGES) throw invalidFeedAnswer(`the token list has ${totalPages} pages`);
    entries += content.length;
    for (const entry of content) {
      const listing = listingOf(entry);
      if (listing === null) unreadable += 1;
      else listings.set(listing.token, listing);
    }
    if (number + 1 < totalPages) continue;
    if (entries !== totalElements)
      throw invalidFeedAnswer(`the token list counts ${totalElements} tokens and holds ${entries}`);
    return { listings, unreadable };
  }
}

function readPage(text: string): z.infer<typeof page> {
  try {
    return page.parse(JSON.parse(text));
  } catch (cause) {
    throw invalidFeedAnswer('the answer is no page of a token list', cause);
  }
}

function listingOf(entry: unknown): Listing | null {
  const { data } = listed.safeParse(entry);
  const token = data === undefined ? null : parseFelt(data.address);
  if (data === undefined || token === null) return null;
  const has = (tag: string): boolean => data.tags.includes(tag);
  return {
    token,
    verified: has('Verified'),
    common: has('Verified') && has('AVNU'),
    public: has('Community') || has('Unruggable'),
    logo: logoOf(data.logoUri),
  };
}

/** Only what a page can show: an address on the web. */
function logoOf(uri: string | null | undefined): string | null {
  if (uri === null || uri === undefined || uri.length > LONGEST_LOGO) return null;
  const url = URL.parse(uri);
  return url !== null && /^https?:$/.test(url.protocol) ? url.href : null;
}
