import type { Clock } from '../../infra/clock.ts';
import type { Publisher } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { newlyActive, newlyLetIn, webhooksToDisable } from '../../projections/webhooks/queries.ts';
import { topics } from '../../schemas/topics.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import { startRounds } from './rounds.ts';
import { countDue, forgetDeliveries, letInEndpoints, reopenEndpoints } from './deliveries.ts';
import type { DispatchMetrics } from './metrics.ts';

const EVERY_MS = 500;
const FORGET_EVERY_MS = 600_000;
/** A command that was appended is decided within moments; one that was lost is appended again. */
const ASK_AGAIN_MS = 5000;
const DAY_MS = 86_400_000;

/**
 * What goes on beside the deliveries: webhooks that were made active, or whose owners were let in, are looked at again, those whose deliveries die are
 * disabled (by a command, like everything that changes a webhook), old deliveries are forgotten.
 */
export function startUpkeep(
  {
    pool,
    publisher,
    webhooks,
    clock,
    log,
    metrics,
    retryWhileUnavailable,
    onReopened,
    settings: { deadLimit, historyDays },
  }: {
    readonly pool: Pool;
    readonly publisher: Pick<Publisher, 'publish'>;
    readonly webhooks: () => Promise<string | null>;
    readonly clock: Clock;
    readonly log: Logger;
    readonly metrics: DispatchMetrics;
    readonly retryWhileUnavailable: RetryWhileUnavailable;
    readonly onReopened: () => void;
    readonly settings: { readonly deadLimit: number; readonly historyDays: number };
  },
  onFatal: (error: unknown) => void,
): { stop(): Promise<void> } {
  /** When the end of a webhook was last asked for, by command. */
  const asked = new Map<string, number>();
  let forgetAt = 0;

  async function disable(schema: string): Promise<void> {
    const now = clock.now();
    for (const [id, at] of asked) if (now - at > ASK_AGAIN_MS) asked.delete(id);
    for (const { id: webhookId, activation, consecutive_dead: dead } of await webhooksToDisable(
      pool,
      schema,
      deadLimit,
    )) {
      const id = `disable:${webhookId}:${activation}`;
      if (asked.has(id)) continue;
      asked.set(id, now);
      const reason = `${dead} deliveries in a row are dead.`;
      log.warn({ webhook: webhookId, dead }, 'a webhook is disabled: its deliveries are dead');
      const body = { webhook_id: webhookId, activation, reason };
      await publisher.publish(topics.commands, [
        {
          value: {
            v: 1,
            id,
            type: 'webhook.disable',
            issued_at: now,
            actor: 'system',
            request_hash: null,
            body,
          },
        },
      ]);
    }
  }

  async function round(signal: AbortSignal): Promise<void> {
    const schema = await webhooks();
    if (schema !== null) {
      const active = await newlyActive(pool, schema);
      await reopenEndpoints(pool, active);
      const letIn = await newlyLetIn(pool, schema);
      await letInEndpoints(pool, letIn);
      if (active.length + letIn.length > 0) onReopened();
      await disable(schema);
      metrics.due.set(await countDue(pool, clock.now()));
      if (clock.now() >= forgetAt) {
        await forgetDeliveries(pool, schema, clock.now() - historyDays * DAY_MS);
        forgetAt = clock.now() + FORGET_EVERY_MS;
      }
    }
    await clock.sleep(EVERY_MS, signal);
  }

  return startRounds(round, retryWhileUnavailable, onFatal);
}
