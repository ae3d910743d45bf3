import { expect, it } from 'vitest';

import { systemClock } from '../../../../infra/clock.ts';
import type { OutgoingMessage } from '../../../../infra/kafka/publisher.ts';
import { createLogger } from '../../../../infra/log.ts';
import { createMetrics } from '../../../../infra/metrics.ts';
import { createDispatchMetrics } from '../../../../pipeline/dispatch/metrics.ts';
import { startQuota } from '../../../../pipeline/dispatch/quota.ts';
import type { QuotaDeps } from '../../../../pipeline/dispatch/quota.ts';

it('disables a webhook with too many waiting deliveries once Kafka is available again', async () => {
  const query = async (statement: unknown) => {
    await Promise.resolve();
    const isList = String(statement).includes('of_user');
    return { rows: isList ? [{ id: 7, activation: 7, is_active: true, of_user: 1 }] : [], rowCount: 1 };
  };
  const published: unknown[] = [];
  let attempts = 0;
  const publish = async (_topic: unknown, messages: readonly OutgoingMessage<unknown>[]) => {
    await Promise.resolve();
    if ((attempts += 1) === 1) throw new Error('Kafka is unavailable');
    published.push(...messages.map(({ value }) => value));
  };
  const rounds = Promise.withResolvers<void>();
  let slept = 0;
  const sleep = async (_ms: number, signal?: AbortSignal) => {
    if ((slept += 1) === 3) rounds.resolve();
    await systemClock.sleep(1, signal);
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the rest is not used
  const deps = {
    pool: { query },
    publisher: { publish },
    webhooks: async () => 'webhooks_v1',
    clock: { ...systemClock, sleep },
    log: createLogger('test', 'fatal'),
    metrics: createDispatchMetrics(createMetrics('test')),
    retryWhileUnavailable: async (work: () => Promise<unknown>) => await work().catch(work),
    settings: { perWebhook: 1, perUser: 1 },
  } as unknown as QuotaDeps;
  const quota = startQuota(deps, rounds.reject);
  await rounds.promise;
  await quota.stop();
  expect(published).toMatchObject([{ type: 'webhook.disable', body: { webhook_id: 7, activation: 7 } }]);
});
