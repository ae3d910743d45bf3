import { z } from 'zod';

import type { Config } from '../../infra/config.ts';
import { withAdvisoryLocks } from '../../infra/postgres/advisory-lock.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt } from '../../schemas/messages/common.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { topics } from '../../schemas/topics.ts';
import { createAlarms } from '../../infra/health/alarms.ts';
import type { TextReader } from './http.ts';
import { startObserver, startPeriodicJob } from './observer.ts';
import type { Observer, ObserverOptions, ObserverRun } from './observer.ts';
import { readTokenList } from './token-list-feed.ts';
import type { Listing } from './token-list-feed.ts';

export interface TokenListOptions extends ObserverOptions {
  readonly config: Pick<Config, 'tokenListPollSeconds'>;
  readonly reader: TextReader;
  /** URL of the list. */
  readonly url: string;
}

const ALARM = 'tokens.list';
/** Of the periodic job and its advisory lock. */
const JOB = 'token list';
/** Messages in one publish. */
const BATCH = 500;
/** A list that lost a larger share of its tokens, or of its common ones, since the last reading is refused as broken. */
const MAX_LOST_SHARE = 0.5;
/** The share is not checked below this number of tokens. */
const MIN_TOKENS_FOR_SHARE = 10;

const listingRow = z.object({
  token: felt,
  verified: z.boolean(),
  common: z.boolean(),
  public: z.boolean(),
  logo: z.string().nullable(),
});

type Listings = ReadonlyMap<Felt, Listing>;
type TokenListed = Extract<TokensMessage, { type: 'token.listed' }>;

/**
 * Reads the token list periodically and publishes `token.listed` for each token whose listing changed; a token that left
 * the list is published without flags. Of several processes one reads at a time.
 */
export async function runTokenList(options: TokenListOptions): Promise<ObserverRun> {
  const { config, reader, url } = options;
  return await startObserver(JOB, options, (observer) => {
    const alarms = createAlarms(observer.pool);
    startPeriodicJob(observer, {
      name: JOB,
      everyMs: config.tokenListPollSeconds * 1000,
      async run(signal) {
        await publishChanges(observer, await readTokenList(reader, url, signal), refuseLosses);
        await alarms.clear([ALARM]);
      },
      isExpected: isFeedError,
      onFailure(error) {
        if (isFeedError(error)) alarms.raise(ALARM, `unavailable: ${error.message}`).catch(() => {});
      },
    });
  });
}

interface Changes {
  /** New or changed listings. */
  readonly changed: number;
  /** Tokens that left the list. */
  readonly unlisted: number;
}

/**
 * Reads the token list once and publishes its changes, also where it lost so many tokens that the observer refuses it.
 *
 * @throws CONFLICT while another process reads it
 */
export async function acceptTokenList(
  source: Pick<Observer, 'pool' | 'publisher' | 'now' | 'log'>,
  { reader, url }: Pick<TokenListOptions, 'reader' | 'url'>,
): Promise<Changes> {
  const { pool } = source;
  return await withAdvisoryLocks(
    pool,
    [JOB],
    () => 'Another process is reading the token list: try again in a moment',
    async () => {
      const changes = await publishChanges(source, await readTokenList(reader, url), () => {});
      await createAlarms(pool).clear([ALARM]);
      return changes;
    },
  );
}

const isFeedError = (error: unknown): error is AppError =>
  error instanceof AppError && error.code.startsWith('FEED_');

async function publishChanges(
  { pool, publisher, now, log }: Pick<Observer, 'pool' | 'publisher' | 'now' | 'log'>,
  { listings, invalid }: Awaited<ReturnType<typeof readTokenList>>,
  check: (listings: Listings, published: Listings) => void,
): Promise<Changes> {
  const published = await publishedListings(pool);
  check(listings, published);
  const { changed, unlisted } = compare(listings, published);
  const messages = [...changed, ...unlisted];
  for (let at = 0; at < messages.length; at += BATCH) {
    const batch = messages.slice(at, at + BATCH);
    await publisher.publish(
      topics.tokens,
      batch.map(({ token, ...flags }) => ({
        key: token,
        value: { type: 'token.listed', v: 1, token, ...flags, observed_at: now() } satisfies TokenListed,
      })),
    );
    // After Kafka's acknowledgement: a crash in between publishes the batch twice, which changes nothing.
    await storePublished(pool, batch);
  }
  if (messages.length > 0 || invalid > 0)
    log.info({ changed: changed.length, unlisted: unlisted.length, invalid }, 'token list read');
  return { changed: changed.length, unlisted: unlisted.length };
}

function compare(listings: Listings, published: Listings): { changed: Listing[]; unlisted: Listing[] } {
  const gone = [...published.values()].filter((one) => hasFlag(one) && !listings.has(one.token));
  return {
    changed: [...listings.values()].filter((listing) => !isSame(listing, published.get(listing.token))),
    unlisted: gone.map(({ token, logo }) => ({ token, verified: false, common: false, public: false, logo })),
  };
}

/** @throws FEED_ANSWER_INVALID where the list lost too many tokens */
function refuseLosses(listings: Listings, published: Listings): void {
  // Without its tags a list has no common tokens, whose prices are polled.
  refuseLoss('tokens', hasFlag, listings, published);
  refuseLoss('common tokens', ({ common }) => common, listings, published);
}

/** @throws FEED_ANSWER_INVALID where too many of the published tokens that were in a selection are not in it any more */
function refuseLoss(
  what: string,
  isSelected: (listing: Listing) => boolean,
  listings: Listings,
  published: Listings,
): void {
  const previous = [...published.values()].filter(isSelected);
  const lost = previous.filter(({ token }) => {
    const listing = listings.get(token);
    return listing === undefined || !isSelected(listing);
  });
  if (previous.length >= MIN_TOKENS_FOR_SHARE && lost.length > previous.length * MAX_LOST_SHARE) {
    throw new AppError(
      'FEED_ANSWER_INVALID',
      `the token list lost ${lost.length} of ${previous.length} ${what} at once and is refused; to accept it run: tds catalogue accept-token-list`,
    );
  }
}

async function publishedListings(pool: Pool): Promise<Map<Felt, Listing>> {
  const rows = await sqlRows(
    pool,
    listingRow,
    'SELECT token, verified, common, public, logo FROM tds.token_list',
  );
  return new Map(rows.map((row) => [row.token, row]));
}

async function storePublished(pool: Pool, listings: readonly Listing[]): Promise<void> {
  await pool.query(
    `INSERT INTO tds.token_list (token, verified, common, public, logo)
     SELECT token, verified, common, public, logo
     FROM jsonb_to_recordset($1) AS new (token text, verified boolean, common boolean, public boolean, logo text)
     ON CONFLICT (token) DO UPDATE SET verified = excluded.verified, common = excluded.common,
       public = excluded.public, logo = excluded.logo`,
    [JSON.stringify(listings)],
  );
}

function hasFlag(listing: Listing): boolean {
  return listing.verified || listing.common || listing.public;
}

/** A token without flags and logo that was never published needs no message. */
function isSame(listing: Listing, previous: Listing | undefined): boolean {
  if (previous === undefined) return !hasFlag(listing) && listing.logo === null;
  return (
    listing.verified === previous.verified &&
    listing.common === previous.common &&
    listing.public === previous.public &&
    listing.logo === previous.logo
  );
}
