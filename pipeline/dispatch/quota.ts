import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { startLoop } from '../../infra/loop.ts';
import type { Loop } from '../../infra/loop.ts';
import { deletePageBefore, createdAtOfNthNewest, hasMoreWaiting } from './deletions.ts';
import type { DispatchDeps } from './deps.ts';
import { createDisableRequests } from './maintenance.ts';

/** Rows of one transaction. */
const PAGE = 5000;
const IDLE_MS = 5000;
/** Between two pages, for the writers of the same table. */
const PAUSE_MS = 50;
/** Between two scans of all webhooks: a scan reads one index entry for each delivery within the quota. */
const INTERVAL_MS = 600_000;
/** Younger deliveries are kept: a reorg, or a matcher that restarts from an earlier checkpoint, may need them. */
const MIN_AGE_MS = 3_600_000;

export interface QuotaDeps extends Pick<
  DispatchDeps,
  'pool' | 'publisher' | 'webhooks' | 'clock' | 'log' | 'metrics' | 'retryWhileUnavailable'
> {
  readonly settings: { readonly perWebhook: number; readonly perUser: number };
}

const limitedRow = z.object({
  id: z.number(),
  activation: z.number(),
  is_active: z.boolean(),
  of_user: z.number(),
});
type Limited = z.infer<typeof limitedRow>;

/** Webhooks that have had a delivery, each with the number of webhooks of its user. */
async function limitedWebhooks(db: Sql, schema: string): Promise<Limited[]> {
  return await sqlRows(
    db,
    limitedRow,
    `SELECT w.id, w.activation, w.status = 'active' AS is_active, w.of_user
     FROM (SELECT *, count(*) OVER (PARTITION BY user_id) AS of_user FROM ${schema}.webhooks) AS w
     JOIN tds.webhook_endpoints e ON e.webhook_id = w.id ORDER BY w.id`,
  );
}

/**
 * Keeps the stored deliveries of each webhook within its quota: deletes the oldest that have no attempt left, page by page,
 * and disables a webhook for which more wait than the quota.
 */
export function startQuota(deps: QuotaDeps, onFatal: (error: unknown) => void): Loop {
  const { pool, webhooks, clock, metrics, retryWhileUnavailable, settings } = deps;
  const requestDisable = createDisableRequests(deps);
  let left: Limited[] = [];
  let nextScanAt = 0;

  async function round(): Promise<number> {
    const schema = await webhooks();
    const now = clock.now();
    if (schema !== null && left.length === 0 && now >= nextScanAt) {
      left = await limitedWebhooks(pool, schema);
      nextScanAt = now + INTERVAL_MS;
    }
    const [webhook] = left;
    if (webhook === undefined) return IDLE_MS;
    const share = Math.floor(settings.perUser / webhook.of_user);
    const quota = Math.max(1, Math.min(settings.perWebhook, share));
    if ((await deletePageBeyond(webhook.id, quota, clock.wallTime())) < PAGE) {
      if (webhook.is_active && (await hasMoreWaiting(pool, webhook.id, quota)))
        await requestDisable(webhook, `More than ${quota.toLocaleString('en-US')} deliveries are waiting.`);
      left.shift();
    }
    return PAUSE_MS;
  }

  async function deletePageBeyond(webhookId: number, quota: number, now: number): Promise<number> {
    const before = await createdAtOfNthNewest(pool, webhookId, quota);
    if (before === null) return 0;
    const deleted = await deletePageBefore(pool, { webhookId, before, now, minAgeMs: MIN_AGE_MS }, PAGE);
    metrics.deleted.inc({ reason: 'quota' }, deleted);
    return deleted;
  }

  return startLoop({ round, retryWhileUnavailable, onFatal, clock });
}
