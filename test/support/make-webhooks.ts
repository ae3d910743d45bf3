import { randomUUID } from 'node:crypto';

import type { Kafka } from '../../infra/kafka/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { createSealing } from '../../infra/sealing.ts';
import { servedSchema } from '../../projections/served.ts';
import { secretOf } from '../../projections/webhooks/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { topics } from '../../schemas/topics.ts';
import type { WebhookEvent } from '../../schemas/webhooks/events.ts';
import { until } from './projection-world.ts';

const OWNER = 7;
const MOST = 1_000_000;

export interface NewWebhook {
  readonly url: string;
  /** `whsec_…`, for the receiver. */
  readonly secret: string;
  readonly events: WebhookEvent[];
  /** Empty: any. */
  readonly subscriptions: readonly { readonly token: Felt | ''; readonly address: Felt | '' }[];
  /** Events at or below this height are not sent. */
  readonly above: number;
}

/** Creates webhooks through the log; returns their ids when a projector has all of them. */
export async function makeWebhooks(
  {
    kafka,
    pool,
    secretKey,
  }: { readonly kafka: Pick<Kafka, 'publisher'>; readonly pool: Pool; readonly secretKey: Buffer },
  webhooks: readonly NewWebhook[],
): Promise<number[]> {
  const sealing = createSealing(secretKey);
  const names = webhooks.map(() => randomUUID());
  const publisher = kafka.publisher();
  for (const [index, { url, secret, events, subscriptions, above }] of webhooks.entries()) {
    const name = names[index] ?? '';
    const body = {
      user_id: OWNER,
      name,
      url,
      events,
      subscriptions: subscriptions.map((one) => ({ ...one, price_above: '', price_below: '' })),
      secret: sealing.seal(secret, secretOf(OWNER)),
      from_block: above,
      most: MOST,
    };
    const about = {
      v: 1 as const,
      id: name,
      issued_at: Date.now(),
      actor: `user:${OWNER}`,
      request_hash: null,
    };
    await publisher.publish(topics.commands, [{ value: { ...about, type: 'webhook.create', body } }]);
  }
  await publisher.close();
  const ids = new Map<string, number>();
  await until(async () => {
    const schema = await servedSchema(pool, 'webhooks');
    if (schema === null) return false;
    const { rows } = await pool.query<{ id: number; name: string }>(
      `SELECT id, name FROM ${schema}.webhooks WHERE name = ANY ($1)`,
      [names],
    );
    for (const { id, name } of rows) ids.set(name, id);
    return ids.size === names.length;
  });
  return names.map((name) => ids.get(name) ?? 0);
}
