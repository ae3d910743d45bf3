import { startLoop } from '../../infra/loop.ts';
import type { Loop } from '../../infra/loop.ts';
import {
  countDeletions,
  deletePageOfOld,
  deletePageOfWebhook,
  scheduleOrphanDeletions,
} from './deletions.ts';
import type { DispatchDeps } from './deps.ts';

/** Rows of one transaction. */
const PAGE = 5000;
const IDLE_MS = 5000;
/** Between two pages, for the writers of the same table. */
const PAUSE_MS = 50;
const SCAN_INTERVAL_MS = 60_000;
/** Deliveries of one webhook between two log lines. */
const LOG_EVERY = 100_000;
const DAY_MS = 86_400_000;

export interface CleanupDeps extends Pick<
  DispatchDeps,
  'pool' | 'webhooks' | 'clock' | 'log' | 'metrics' | 'retryWhileUnavailable'
> {
  readonly settings: { readonly historyDays: number };
}

/** Deletes the deliveries of deleted webhooks, and old ones that have no attempt left; one page of each in a round. */
export function startCleanup(deps: CleanupDeps, onFatal: (error: unknown) => void): Loop {
  const { pool, webhooks, clock, metrics, retryWhileUnavailable, settings } = deps;
  let orphansAt = 0;
  let oldAt = 0;

  async function round(): Promise<number> {
    const schema = await webhooks();
    if (schema === null) return IDLE_MS;
    const now = clock.now();
    if (now >= orphansAt) {
      await scheduleOrphanDeletions(pool, schema, clock.wallTime());
      orphansAt = now + SCAN_INTERVAL_MS;
    }
    const ofWebhook = await deleteOfWebhook(deps);
    const maxAgeMs = settings.historyDays * DAY_MS;
    const old = now < oldAt ? 0 : await deletePageOfOld(pool, { now: clock.wallTime(), maxAgeMs }, PAGE);
    metrics.deleted.inc({ reason: 'expired' }, old);
    if (old < PAGE && now >= oldAt) oldAt = now + SCAN_INTERVAL_MS;
    return ofWebhook > 0 || old > 0 ? PAUSE_MS : IDLE_MS;
  }

  return startLoop({ round, retryWhileUnavailable, onFatal, clock });
}

/** Returns the number of deliveries deleted. */
async function deleteOfWebhook({ pool, log, metrics }: CleanupDeps): Promise<number> {
  const progress = await deletePageOfWebhook(pool, PAGE);
  metrics.deletions.set(await countDeletions(pool));
  if (progress === null) return 0;
  const { webhookId: webhook, requestedAt, page, deleted, isDone } = progress;
  metrics.deleted.inc({ reason: 'webhook_deleted' }, page);
  const fields = { webhook, deleted, requested_at: requestedAt };
  if (isDone) log.info(fields, 'deliveries of a deleted webhook deleted');
  else if (Math.floor(deleted / LOG_EVERY) > Math.floor((deleted - page) / LOG_EVERY))
    log.info(fields, 'deleting deliveries of a deleted webhook');
  return page;
}
