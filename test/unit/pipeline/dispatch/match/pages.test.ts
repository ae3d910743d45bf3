import { expect, it } from 'vitest';

import { systemClock } from '../../../../../infra/clock.ts';
import type { Clock } from '../../../../../infra/clock.ts';
import { createLogger } from '../../../../../infra/log.ts';
import { createMetrics } from '../../../../../infra/metrics.ts';
import type { PoolClient } from '../../../../../infra/postgres/client.ts';
import { insertDeliveries } from '../../../../../pipeline/dispatch/deliveries.ts';
import type { MatchDeps } from '../../../../../pipeline/dispatch/deps.ts';
import type { MatchPlan } from '../../../../../pipeline/dispatch/match/matcher.ts';
import { notifyBalances } from '../../../../../pipeline/dispatch/match/notified-balances.ts';
import { transferMatcher } from '../../../../../pipeline/dispatch/match/transfers.ts';
import { createDispatchMetrics } from '../../../../../pipeline/dispatch/metrics.ts';
import { accepted, busyBlock } from '../../../../support/chain-messages.ts';

/** With 100 webhooks for every transfer, a block of 1,000 is 100,000 deliveries. */

const WEBHOOKS = Array.from({ length: 100 }, (_, index) => index);

/** A store of webhooks for every event, which records the lengths of the pages that are stored. */
function createStore(onLock = (): void => {}) {
  const pages: number[] = [];
  const scheduled: unknown[] = [];
  const times: unknown[] = [];
  const query = async (statement: unknown, values: readonly unknown[] = []) => {
    await Promise.resolve();
    const text = String(statement);
    const first = values[0];
    if (text.includes('pg_advisory_xact_lock')) onLock();
    if (text.includes('INSERT INTO tds.webhook_deliveries') && Array.isArray(first)) {
      pages.push(first.length);
      times.push(...new Set(values[4] as number[]));
    }
    if (text.includes('tds.webhook_endpoints')) scheduled.push(first);
    if (text.includes('min(from_block)')) return { rows: [{ lowest: -1 }] };
    if (text.includes('webhook_subscriptions'))
      return { rows: WEBHOOKS.map((id) => ({ webhook_id: id, token: '', address: '' })) };
    return { rows: [], rowCount: 1 };
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- of which only `query` is called
  return { tx: { query } as unknown as PoolClient, pages, scheduled, times };
}

/** The plan of a block with 60 transfers. */
async function planOf(tx: PoolClient, clock: Clock): Promise<MatchPlan> {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the rest is not used
  const matcher = transferMatcher({
    pool: tx,
    webhooks: async () => 'webhooks_v1',
    since: async () => null,
    clock,
    log: createLogger('test', 'fatal'),
    metrics: createDispatchMetrics(createMetrics('test')),
  } as unknown as MatchDeps);
  const plan = await (
    await matcher.open()
  )?.match(accepted(busyBlock(5, 60), 1), {
    partition: 0,
    offset: 0,
    key: '5',
    value: null,
    timestamp: 0,
  } as never);
  if (typeof plan !== 'function') throw new TypeError('no plan');
  return plan;
}

it('stores the deliveries of a block in pages, and makes the webhooks due once', async () => {
  const { tx, pages, scheduled } = createStore();
  const plan = await planOf(tx, systemClock);
  // A plan may be repeated.
  for (let time = 0; time < 2; time += 1) {
    await plan(tx);
    expect(pages.splice(0)).toEqual([5000, 5000, 2000]);
    expect(scheduled.splice(0)).toEqual([WEBHOOKS]);
  }
});

it('dates a transfer when no other partition can store a later event of it: receivers order by that time', async () => {
  let now = 1000;
  const { tx, times } = createStore(() => (now = 2000));
  await (
    await planOf(tx, { ...systemClock, wallTime: () => now })
  )(tx);
  expect(new Set(times)).toEqual(new Set([2000]));
});

it('stores changes of balances in pages, and makes the webhooks due once', async () => {
  const { tx, pages, scheduled } = createStore();
  const changes = Array.from({ length: 12_000 }, (_, index) => ({
    webhookId: index % 100,
    pair: 'a pair',
    parts: [String(index)],
    body: '{}',
    createdAt: 1,
  }));
  expect(await notifyBalances(tx, { hash: '0x1', seq: 1 }, changes)).toBe(12_000);
  expect(pages).toEqual([5000, 5000, 2000]);
  expect(scheduled).toEqual([WEBHOOKS]);
});

it('makes deliveries as they are stored, and lets other work run', async () => {
  const { tx, pages } = createStore();
  let turns = 0;
  const counting = setInterval(() => (turns += 1), 0);
  let most = 0;
  function* deliveries() {
    for (let made = 1; made <= 12_000; made += 1) {
      most = Math.max(most, made - pages.reduce((sum, length) => sum + length, 0));
      // A matcher takes some µs for each.
      for (const until = performance.now() + 0.01; performance.now() < until;);
      const id = `00000000-0000-0000-0000-${String(made).padStart(12, '0')}`;
      yield { id, webhookId: made, event: 'ping', body: '{}', createdAt: 1 };
    }
  }
  expect(await insertDeliveries(tx, deliveries())).toBe(12_000);
  clearInterval(counting);
  expect(most).toBe(5000);
  expect(turns).toBeGreaterThan(10);
});
