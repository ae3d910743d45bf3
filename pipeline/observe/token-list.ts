import { z } from 'zod';

import type { Config } from '../../infra/config.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { pause } from '../../infra/lifecycle.ts';
import type { Logger } from '../../infra/log.ts';
import { isPostgresUnavailable, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { asTheOnlyOne } from '../../infra/postgres/lock.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt } from '../../schemas/messages/common.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { topics } from '../../schemas/topics.ts';
import { createAlarms } from './alarms.ts';
import { retryAfterMs } from './http.ts';
import type { TextReader } from './http.ts';
import { retryPauseMs } from './retry.ts';
import { readTokenList } from './token-list-source.ts';
import type { Listing } from './token-list-source.ts';
import type { ObserverRun } from './tokens.ts';

export interface TokenListOptions {
  readonly config: Pick<Config, 'tokenListPollSeconds'>;
  readonly reader: TextReader;
  /** Of the list. */
  readonly url: string;
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: Logger;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
}

const ALARM = 'tokens.list';
/** Messages of one append. */
const BATCH = 500;
/** A list that lacks more of what it held is not believed: half of it went in one step. */
const MOST_GONE = 0.5;
/** Below so many, half of them is no sign of anything. */
const FEW = 10;

const listingRow = z.object({
  token: felt,
  verified: z.boolean(),
  common: z.boolean(),
  public: z.boolean(),
  logo: z.string().nullable(),
});

type TokenListed = Extract<TokensMessage, { type: 'token.listed' }>;

/**
 * Reads a token list now and then, and publishes `token.listed` for each token of which the list says something else than
 * it last did; of one that left the list, that it has no flag. One process of many does it at a time.
 */
export function runTokenList(options: TokenListOptions): ObserverRun {
  const { config, reader, url, pool, kafka, log, now = Date.now } = options;
  const alarms = createAlarms(pool);
  const publisher = kafka.publisher();
  const stopping = new AbortController();
  const { signal } = stopping;
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});

  async function round(): Promise<void> {
    const { listings, unreadable } = await readTokenList(reader, url, signal);
    const before = await lastSaid(pool);
    const gone = [...before.values()].filter(({ token, ...said }) => !listings.has(token) && hasFlag(said));
    if (before.size >= FEW && gone.length > before.size * MOST_GONE) {
      throw new AppError(
        'FEED_ANSWER_INVALID',
        `the token list has lost ${gone.length} of ${before.size} tokens at once, and is not believed`,
      );
    }
    const changed = [...listings.values()].filter((listing) => !isSame(listing, before.get(listing.token)));
    const unlisted = gone.map(({ token, logo }) => ({
      token,
      verified: false,
      common: false,
      public: false,
      logo,
    }));
    await publish([...changed, ...unlisted]);
    if (changed.length + unlisted.length > 0 || unreadable > 0)
      log.info({ changed: changed.length, unlisted: unlisted.length, unreadable }, 'token list read');
  }

  async function publish(listings: readonly Listing[]): Promise<void> {
    for (let at = 0; at < listings.length; at += BATCH) {
      const part = listings.slice(at, at + BATCH);
      await publisher.publish(
        topics.tokens,
        part.map(({ token, ...said }) => ({
          key: token,
          value: { type: 'token.listed', v: 1, token, ...said, observed_at: now() } satisfies TokenListed,
        })),
      );
      // After the log has it: said once more after a crash between, which changes nothing.
      await writeDown(pool, part);
    }
  }

  async function run(): Promise<void> {
    for (let failures = 0; !signal.aborted;) {
      let pauseMs = config.tokenListPollSeconds * 1000;
      try {
        await asTheOnlyOne(pool, ['token list'], () => 'Another process reads the token list', round);
        await alarms.clear([ALARM]);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        const isOther = error instanceof AppError && error.code === 'CONFLICT';
        const isFeed = error instanceof AppError && error.code.startsWith('FEED_');
        if (!isOther && !isFeed && !isRetryable(error) && !isPostgresUnavailable(error)) throw error;
        if (!isOther) {
          failures += 1;
          pauseMs = Math.max(
            retryAfterMs(error) ?? 0,
            Math.min(pauseMs, retryPauseMs(failures, Math.random())),
          );
          log.warn({ err: error, pauseMs }, 'the token list was not read; trying again later');
        }
        if (isFeed) await alarms.raise(ALARM, `not read: ${error.message}`).catch(() => {});
      }
      await pause(pauseMs, signal);
    }
  }

  const running = run();
  running.catch(ending.reject);
  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      await running.catch(() => {});
      await publisher.close();
      ending.resolve();
    })());
  options.signal?.addEventListener('abort', () => void stop().catch(ending.reject), { once: true });
  return { done: ending.promise, stop };
}

async function lastSaid(pool: Pool): Promise<Map<Felt, Listing>> {
  const rows = await sqlRows(
    pool,
    listingRow,
    'SELECT token, verified, common, public, logo FROM tds.token_list',
  );
  return new Map(rows.map((row) => [row.token, row]));
}

async function writeDown(pool: Pool, listings: readonly Listing[]): Promise<void> {
  await pool.query(
    `INSERT INTO tds.token_list (token, verified, common, public, logo)
     SELECT token, verified, common, public, logo
     FROM jsonb_to_recordset($1) AS new (token text, verified boolean, common boolean, public boolean, logo text)
     ON CONFLICT (token) DO UPDATE SET verified = excluded.verified, common = excluded.common,
       public = excluded.public, logo = excluded.logo`,
    [JSON.stringify(listings)],
  );
}

function hasFlag(said: Omit<Listing, 'token'>): boolean {
  return said.verified || said.common || said.public;
}

/** A token that was never listed, and of which nothing is said, is as it was. */
function isSame(listing: Listing, before: Listing | undefined): boolean {
  if (before === undefined) return !hasFlag(listing) && listing.logo === null;
  return (
    listing.verified === before.verified &&
    listing.common === before.common &&
    listing.public === before.public &&
    listing.logo === before.logo
  );
}
