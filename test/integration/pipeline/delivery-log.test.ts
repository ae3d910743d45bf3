import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import { countDeliveries, listDeliveries } from '../../../pipeline/dispatch/queries.ts';
import type { Delivery, DeliveryFilters } from '../../../pipeline/dispatch/queries.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

/** The delivery log of a webhook with very many deliveries, of which few have some events and statuses. */

const COUNT = 60_000;
const WEBHOOK = { id: 1, status: 'active' } as const;
const LIMIT = 50;
/** Pages of 8 KiB that reading one page of the log may touch, whatever the filter: 50 rows, and the ways to them. */
const MAX_BUFFERS = 1000;

type Filtered = Pick<Delivery, 'id' | 'event' | 'status'>;

let pool: Pool;
/** Newest first, ids in order where the times are equal. */
let log: Filtered[] = [];
beforeAll(async () => {
  pool = await isolatedPool();
  // Two of each time, of two webhooks.
  await pool.query(
    `INSERT INTO tds.webhook_deliveries (id, webhook_id, event, status, body, created_at)
     SELECT md5(n::text)::uuid, 1 + n % 4 / 3,
       CASE WHEN n % 5000 < 2 THEN 'token.launched' WHEN n % 3 = 0 THEN 'balance.changed' ELSE 'transfer.created' END,
       CASE WHEN n % 4000 < 2 THEN 'dead' WHEN n % 7 = 0 THEN 'failed' ELSE 'success' END,
       repeat('x', 300), n / 2
     FROM generate_series(1, $1) AS n`,
    [COUNT],
  );
  await pool.query('VACUUM ANALYZE tds.webhook_deliveries');
  const row = z.object({ id: z.string(), event: z.any(), status: z.any(), created_at: z.number() });
  const all = await sqlRows(
    pool,
    row,
    'SELECT id, event, status, created_at FROM tds.webhook_deliveries WHERE webhook_id = 1',
  );
  log = all.toSorted((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1));
});
afterAll(() => pool?.end());

/** Runs statements, and counts the buffers that each touches. */
function counting(): { readonly db: Sql; readonly buffers: () => number } {
  const plan = z.object({ 'QUERY PLAN': z.string() });
  let buffers = 0;
  return {
    buffers: () => buffers,
    db: {
      async query(statement, values) {
        const text = typeof statement === 'string' ? statement : statement.text;
        const lines = await sqlRows(pool, plan, `EXPLAIN (ANALYZE, BUFFERS) ${text}`, values);
        const [, hit = 0, read = 0] =
          /Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?/.exec(
            lines.map((line) => line['QUERY PLAN']).join('\n'),
          ) ?? [];
        buffers += Number(hit) + Number(read);
        return await pool.query(text, values);
      },
    },
  };
}

const filters: readonly DeliveryFilters[] = [
  {},
  { event: 'transfer.created' },
  { event: 'token.launched' },
  { event: 'ping' },
  { status: 'success' },
  { status: 'dead' },
  { status: 'pending' },
  { event: 'balance.changed', status: 'success' },
  { event: 'token.launched', status: 'dead' },
  { event: 'transfer.created', status: 'dead' },
];

test.each(filters)('%j: every page has its deliveries, and reads little else', async (filter) => {
  const matching = log.filter(
    ({ event, status }) => (filter.event ?? event) === event && (filter.status ?? status) === status,
  );
  const offsets = [0, LIMIT, Math.floor(matching.length / 2), Math.max(0, matching.length - 7)];
  for (const offset of offsets) {
    const { db, buffers } = counting();
    const page = await listDeliveries(db, WEBHOOK, filter, { offset, limit: LIMIT });
    const expected = matching.slice(offset, offset + LIMIT);
    expect(page.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
    expect(buffers(), `offset ${offset}`).toBeLessThan(MAX_BUFFERS);
  }
  const { db, buffers } = counting();
  const last = await listDeliveries(db, WEBHOOK, filter, { offset: 'last', limit: LIMIT });
  expect(last.map(({ id }) => id)).toEqual(matching.slice(-LIMIT).map(({ id }) => id));
  expect(buffers()).toBeLessThan(MAX_BUFFERS);
  const { count, isEstimate } = await countDeliveries(pool, WEBHOOK.id, filter);
  expect(isEstimate).toBe(matching.length > 10_000);
  if (!isEstimate) expect(count).toBe(matching.length);
});
