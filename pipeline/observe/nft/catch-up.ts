import { sleep } from '../../../infra/lifecycle.ts';
import type { KnownNft } from '../../../projections/nft-transfers/queries.ts';
import { startPeriodicJob } from '../observer.ts';
import type { Observer } from '../observer.ts';
import type { NftTask } from './store.ts';

export interface CatchUpOptions {
  readonly everyMs: number;
  /** A page of all transferred NFTs, in a stable order, after `after`. */
  readonly nftsAfter: (after: KnownNft | null, limit: number) => Promise<KnownNft[]>;
  /** Returns how many of the tasks are new. */
  readonly add: (tasks: readonly NftTask[]) => Promise<number>;
}

const PAGE = 5000;
/** Between two pages, to leave the stores to other queries. */
const PAGE_DELAY_MS = 50;

/**
 * Periodically scans all transferred NFTs for those without a task: they were indexed before the observer ran, or its tasks
 * were lost. Of several processes one scans at a time.
 */
export function startCatchUp(observer: Observer, { everyMs, nftsAfter, add }: CatchUpOptions): void {
  startPeriodicJob(observer, {
    name: 'nft catch-up',
    everyMs,
    async run(signal) {
      let added = 0;
      for (let last: KnownNft | null = null; !signal.aborted;) {
        const page = await nftsAfter(last, PAGE);
        added += await add(page);
        last = page.at(-1) ?? null;
        if (page.length < PAGE) break;
        await sleep(PAGE_DELAY_MS, signal);
      }
      if (added > 0) observer.log.info({ added }, 'NFTs without a metadata task added');
    },
  });
}
