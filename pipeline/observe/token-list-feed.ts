import { z } from 'zod';

import { parseFelt } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import { invalidFeedAnswer } from './http.ts';
import type { TextReader } from './http.ts';

export interface Listing {
  readonly token: Felt;
  readonly verified: boolean;
  readonly common: boolean;
  readonly public: boolean;
  readonly logo: string | null;
}

/** The server's limit. */
const PAGE_SIZE = 100;
const MAX_PAGES = 500;
const MAX_LOGO_LENGTH = 2048;

/** Name, symbol and decimals are ignored: they are read from the chain. */
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

/** The last one counts also where a token is on two pages: the list may have it twice for good. */
const MAX_READINGS = 3;

export interface TokenList {
  readonly listings: Map<Felt, Listing>;
  /** Number of skipped entries. */
  readonly invalid: number;
}

/**
 * Reads all pages of AVNU's token list, `GET <url>?page&size` → `{content: [{name, address, symbol, decimals, logoUri,
 * lastDailyVolumeUsd, extensions, tags}], totalPages, totalElements, size, number}`, pages counted from 0 (its SDK,
 * github.com/avnu-labs/avnu-sdk, `src/types.ts`: `Page<Token>`). Invalid entries are skipped; a list whose entries do not
 * add up to its total is refused. While the pages are read, an entry may move to a page that was read already, and another one
 * to the next page: the list then lacks the first, has the second twice, and is read again.
 *
 * | flag | tags |
 * |---|---|
 * | verified | Verified |
 * | common | AVNU and Verified: AVNU's own selection of verified tokens |
 * | public | Community, or Unruggable (created with the community's launcher) |
 *
 * A token with no tag but `Unknown` or others has no flag.
 *
 * @returns the listed tokens, and the number of invalid entries
 */
export async function readTokenList(
  reader: TextReader,
  url: string,
  signal?: AbortSignal,
): Promise<TokenList> {
  for (let reading = 1; ; reading += 1) {
    const { list, hasChanged } = await readPages(reader, url, signal);
    if (!hasChanged || reading === MAX_READINGS) return list;
  }
}

async function readPages(
  reader: TextReader,
  url: string,
  signal: AbortSignal | undefined,
): Promise<{ readonly list: TokenList; readonly hasChanged: boolean }> {
  const listings = new Map<Felt, Listing>();
  const totals = new Set<number>();
  let invalid = 0;
  let entries = 0;
  let hasMoved = false;
  for (let number = 0; ; number += 1) {
    const pageUrl = new URL(url);
    pageUrl.searchParams.set('page', String(number));
    pageUrl.searchParams.set('size', String(PAGE_SIZE));
    const { content, totalPages, totalElements } = readPage(await reader.get(pageUrl.href, signal));
    if (totalPages > MAX_PAGES)
      throw invalidFeedAnswer(`the token list has ${totalPages} pages, more than ${MAX_PAGES}`);
    entries += content.length;
    totals.add(totalElements);
    const found = content.flatMap((entry) => listingOf(entry) ?? []);
    invalid += content.length - found.length;
    hasMoved ||= found.some(({ token }) => listings.has(token));
    for (const listing of found) listings.set(listing.token, listing);
    if (number + 1 < totalPages) continue;
    if (entries !== totalElements)
      throw invalidFeedAnswer(`the token list holds ${entries} entries instead of ${totalElements}`);
    return { list: { listings, invalid }, hasChanged: totals.size > 1 || hasMoved };
  }
}

function readPage(text: string): z.infer<typeof page> {
  try {
    return page.parse(JSON.parse(text));
  } catch (cause) {
    throw invalidFeedAnswer('the answer is not a page of a token list', cause);
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

/** Only http and https URLs, which are safe to show in a page. */
function logoOf(uri: string | null | undefined): string | null {
  if (uri === null || uri === undefined || uri.length > MAX_LOGO_LENGTH) return null;
  const url = URL.parse(uri);
  return url !== null && /^https?:$/.test(url.protocol) ? url.href : null;
}
