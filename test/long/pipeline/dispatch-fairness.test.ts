import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';

import { deliveryWorld } from '../../support/delivery-world.ts';
import type { Answering, DeliveryWorld } from '../../support/delivery-world.ts';
import { until } from '../../support/projection-world.ts';

/** What endpoints that hang, or have much waiting, take from the others. Orders are asserted, not times. */

let world: DeliveryWorld;
beforeAll(async () => {
  world = await deliveryWorld();
});
afterAll(async () => await world.close());
afterEach(async () => {
  await world.reset();
  expect(world.failures.splice(0)).toEqual([]);
});

const hanging: Answering = () => {};
const taking: Answering = (_, response) => void response.end();
/** Attempts that are not answered last longer than the test. */
const endless = { timeoutMs: 110_000 };
const range = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

interface Endpoint {
  readonly webhook: number;
  readonly requests: () => number;
}
/** Each on a port of its own. */
async function endpoints(count: number, answer: Answering): Promise<Endpoint[]> {
  return await Promise.all(
    range(count).map(async (index) => {
      const receiver = await world.receiver(answer, `127.0.${1 + (index >> 7)}.${1 + (index & 127)}`);
      const { id } = await world.webhook(receiver.url);
      return { webhook: id, requests: () => receiver.received.length };
    }),
  );
}
async function countOf(status: string, webhooks: readonly Endpoint[]): Promise<number> {
  const { rows } = await world.pool.query<{ n: number }>(
    'SELECT count(*) AS n FROM tds.webhook_deliveries WHERE status = $1 AND webhook_id = ANY ($2)',
    [status, webhooks.map(({ webhook }) => webhook)],
  );
  return rows[0]?.n ?? 0;
}

it('serves 450 endpoints before the first of 50 that hang times out', async () => {
  const each = 4;
  // Those that hang come first, and each has as much.
  const hang = await endpoints(50, hanging);
  for (const { webhook } of hang) await world.deliver(webhook, each);
  world.clock.advance(1);
  const healthy = await endpoints(450, taking);
  for (const { webhook } of healthy) await world.deliver(webhook, each);
  // Few places, so that it matters who has them.
  world.sender({ ...endless, concurrency: 64 });
  await until(async () => (await countOf('success', healthy)) === 450 * each, 100_000);
  expect(hang.map(({ requests }) => requests())).toEqual(hang.map(() => 1));
  expect(await countOf('pending', hang)).toBe(50 * each);
  expect(healthy.map(({ requests }) => requests())).toEqual(healthy.map(() => each));
});

it('limits endpoints that hang to half of the attempts, and serves the others', async () => {
  let open = 0;
  let most = 0;
  const hang = await endpoints(30, (_, response) => {
    open += 1;
    most = Math.max(most, open);
    response.on('close', () => (open -= 1));
  });
  const healthy = await endpoints(20, taking);
  world.sender({ timeoutMs: 1000, concurrency: 32 });
  for (const { webhook } of hang) await world.deliver(webhook);
  await until(async () => (await countOf('failed', hang)) === 30 && open === 0);
  most = 0;
  for (const { webhook } of hang) await world.deliver(webhook, 20);
  await until(async () => most === 16);
  for (const { webhook } of healthy) await world.deliver(webhook, 3);
  await until(async () => (await countOf('success', healthy)) === 60);
  expect(most).toBe(16);
});

it('serves 20 endpoints before the first of four times out that answer quickly and then hang', async () => {
  let open = 0;
  const hang = await Promise.all(
    range(4).map(async () => {
      let answered = 0;
      const [endpoint] = await endpoints(1, (_, response) => {
        if ((answered += 1) <= 5) response.end();
        else open += 1;
      });
      return endpoint?.webhook ?? 0;
    }),
  );
  const healthy = await endpoints(20, taking);
  for (const webhook of hang) await world.deliver(webhook, 100);
  world.sender({ ...endless, concurrency: 64 });
  // The first of each, and three quarters of all.
  await until(async () => open >= 4 + 48);
  world.clock.advance(1);
  for (const { webhook } of healthy) await world.deliver(webhook);
  await until(async () => (await countOf('success', healthy)) === 20);
  expect(open).toBe(4 + 48);
});

it.each<[string, Answering]>([
  ['is quick', taking],
  ['hangs', hanging],
])('does not let 20,000 that wait for an endpoint that %s keep others waiting', async (_name, answer) => {
  const [busy] = await endpoints(1, answer);
  const others = await endpoints(20, taking);
  if (busy === undefined) throw new Error('there is no endpoint');
  await world.deliver(busy.webhook, 20_000);
  // Of all that is due theirs is the last.
  world.clock.advance(1000);
  for (const { webhook } of others) await world.deliver(webhook);
  world.sender({ ...endless, concurrency: 64 });
  await until(async () => (await countOf('success', others)) === 20);
  expect(others.map(({ requests }) => requests())).toEqual(others.map(() => 1));
  expect(busy.requests()).toBeLessThan(2000);
});
