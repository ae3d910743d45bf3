import type { Clock } from '../../infra/clock.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { inTransaction } from '../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../infra/postgres/client.ts';
import { webhookRequests } from '../../projections/webhooks/queries.ts';
import type { WebhookRequest } from '../../projections/webhooks/queries.ts';
import { topics } from '../../schemas/topics.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import { deleteDeliveries, insertDeliveries, retryDelivery } from './deliveries.ts';
import { bodyText } from './match/body.ts';
import { startRounds } from './rounds.ts';
import { beginAt, movePosition, readPosition } from './match/positions.ts';

const POLL_MS = 200;
const SOME = 100;

/** Does what users asked of the dispatcher, once each: a command is decided by the projector, and done here. */
export async function runRequests(
  {
    kafka,
    pool,
    webhooks,
    clock,
    retryWhileUnavailable,
    onDone,
  }: {
    readonly kafka: Kafka;
    readonly pool: Pool;
    readonly webhooks: () => Promise<string | null>;
    readonly clock: Clock;
    readonly retryWhileUnavailable: RetryWhileUnavailable;
    readonly onDone: () => void;
  },
  onFatal: (error: unknown) => void,
): Promise<{ stop(): Promise<void> }> {
  const topic = topics.commands;
  const place = {
    matcher: 'requests',
    topic: topic.name,
    topicId: await retryWhileUnavailable(() => kafka.topicId(topic)),
    partition: 0,
  };
  await retryWhileUnavailable(() => beginAt(pool, place, 0));

  async function fulfil(tx: PoolClient, request: WebhookRequest): Promise<void> {
    const { kind, webhook_id: webhookId, delivery_id: id } = request;
    if (kind === 'delete') return await deleteDeliveries(tx, webhookId);
    if (id === null) return;
    if (kind === 'retry') return await retryDelivery(tx, { webhookId, id, at: clock.now() });
    const createdAt = clock.now();
    const body = bodyText('ping', createdAt, { webhook_id: webhookId, message: 'Test delivery' });
    await insertDeliveries(tx, [{ id, webhookId, event: 'ping', body, createdAt, isTest: true }]);
  }

  async function round(signal: AbortSignal): Promise<void> {
    const schema = await webhooks();
    const position = (await readPosition(pool, place)) ?? 0;
    const requests = schema === null ? [] : await webhookRequests(pool, schema, position, SOME);
    let from = position;
    for (const request of requests) {
      const next = request.command_offset + 1;
      const isOurs = await inTransaction(pool, async (tx) => {
        if (!(await movePosition(tx, place, from, next))) return false;
        await fulfil(tx, request);
        return true;
      });
      if (!isOurs) return;
      from = next;
    }
    if (requests.length > 0) onDone();
    if (requests.length < SOME) await clock.sleep(POLL_MS, signal);
  }

  return startRounds(round, retryWhileUnavailable, onFatal);
}
