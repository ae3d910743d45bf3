import { topics } from '../../schemas/topics.ts';
import { startLoop } from '../../infra/loop.ts';
import type { Loop } from '../../infra/loop.ts';
import type { DispatchDeps } from './deps.ts';
import {
  activateEndpoints,
  activatedWebhooks,
  countDueEndpoints,
  endpointsOfReenabledOwners,
  reenableEndpointsOfOwners,
  webhooksToDisable,
} from './endpoints.ts';

const INTERVAL_MS = 2000;
/** A published command is decided within moments; after this time it counts as lost and is published again. */
const REPUBLISH_MS = 5000;

export interface MaintenanceDeps extends Pick<
  DispatchDeps,
  'pool' | 'publisher' | 'webhooks' | 'clock' | 'log' | 'metrics' | 'retryWhileUnavailable'
> {
  /** Deliveries have become due. */
  readonly onDue: () => void;
  readonly settings: { readonly deadLimit: number };
}

/**
 * Applies changes of webhooks and their owners to the endpoints, and disables webhooks whose deliveries die (by a command,
 * as everything that changes a webhook). Wake it when a command is decided.
 */
export function startMaintenance(deps: MaintenanceDeps, onFatal: (error: unknown) => void): Loop {
  const { pool, webhooks, clock, metrics, retryWhileUnavailable, onDue } = deps;
  const { deadLimit } = deps.settings;
  const requestDisable = createDisableRequests(deps);

  async function maintain(): Promise<number> {
    const schema = await webhooks();
    if (schema !== null) {
      const activated = await activatedWebhooks(pool, schema);
      await activateEndpoints(pool, activated);
      const reenabled = await endpointsOfReenabledOwners(pool, schema);
      await reenableEndpointsOfOwners(pool, reenabled);
      if (activated.length + reenabled.length > 0) onDue();
      for (const { consecutive_dead: dead, ...webhook } of await webhooksToDisable(pool, schema, deadLimit))
        await requestDisable(webhook, `${dead} deliveries in a row are dead.`);
      metrics.due.set(await countDueEndpoints(pool, clock.wallTime()));
    }
    return INTERVAL_MS;
  }

  return startLoop({ round: maintain, retryWhileUnavailable, onFatal, clock });
}

/** Publishes `webhook.disable`, once per activation within `REPUBLISH_MS`. The owner sees the reason. */
export function createDisableRequests({
  publisher,
  clock,
  log,
}: Pick<MaintenanceDeps, 'publisher' | 'clock' | 'log'>) {
  /** Milliseconds, by the command's id. */
  const publishedAt = new Map<string, number>();
  return async (
    { id: webhookId, activation }: { readonly id: number; readonly activation: number },
    reason: string,
  ): Promise<void> => {
    const now = clock.now();
    for (const [id, at] of publishedAt) if (now - at > REPUBLISH_MS) publishedAt.delete(id);
    const id = `disable:${webhookId}:${activation}`;
    if (publishedAt.has(id)) return;
    log.warn({ webhook: webhookId, reason }, 'requesting webhook disable');
    const body = { webhook_id: webhookId, activation, reason };
    const about = { v: 1, id, issued_at: clock.wallTime(), actor: 'system', request_hash: null } as const;
    await publisher.publish(topics.commands, [{ value: { ...about, type: 'webhook.disable', body } }]);
    publishedAt.set(id, now);
  };
}
