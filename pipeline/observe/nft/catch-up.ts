import { pause } from '../../../infra/lifecycle.ts';
import type { Logger } from '../../../infra/log.ts';
import { isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { asTheOnlyOne } from '../../../infra/postgres/lock.ts';
import type { KnownNft } from '../../../projections/nft-transfers/queries.ts';
import { AppError, isRetryable } from '../../../schemas/errors.ts';
import type { NftTask } from './store.ts';

export interface CatchUpOptions {
  readonly pool: Pool;
  readonly log: Logger;
  readonly everyMs: number;
  /** NFTs that were transferred, in an order of their own, from the one after `after` on. */
  readonly nftsAfter: (after: KnownNft | null, limit: number) => Promise<KnownNft[]>;
  /** Answers how many of these were not known. */
  readonly add: (tasks: readonly NftTask[]) => Promise<number>;
  readonly onFatal: (error: unknown) => void;
}

const PAGE = 5000;
/** Between two pages, so that others are not kept waiting. */
const PAGE_PAUSE_MS = 50;

/**
 * Looks now and then through all NFTs that were ever transferred for those that nobody has tried to fetch: their blocks
 * were indexed before there was an observer, or what it had written down was lost. One process of many does it.
 */
export function startCatchUp(options: CatchUpOptions): { stop(): Promise<void> } {
  const { pool, log, everyMs, nftsAfter, add } = options;
  const stopping = new AbortController();
  const { signal } = stopping;

  async function round(): Promise<void> {
    let added = 0;
    for (let last: KnownNft | null = null; !signal.aborted;) {
      const page = await nftsAfter(last, PAGE);
      added += await add(page);
      last = page.at(-1) ?? null;
      if (page.length < PAGE) break;
      await pause(PAGE_PAUSE_MS, signal);
    }
    if (added > 0) log.info({ added }, 'NFTs found that nobody had tried to fetch');
  }

  const looping = (async () => {
    while (!signal.aborted) {
      try {
        await asTheOnlyOne(pool, ['nft catch-up'], () => 'Another process looks through the NFTs', round);
      } catch (error) {
        if (signal.aborted) return;
        const isOther = error instanceof AppError && error.code === 'CONFLICT';
        if (!isOther && !isRetryable(error) && !isPostgresUnavailable(error)) throw error;
        if (!isOther) log.warn({ err: error }, 'did not look through the NFTs; trying again later');
      }
      await pause(everyMs, signal);
    }
  })().catch(options.onFatal);

  return {
    async stop() {
      stopping.abort();
      await looping;
    },
  };
}
