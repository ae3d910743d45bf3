import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { searchOf, transfersQuery } from '../../../api/transfers/filters.ts';
import { listTransfers } from '../../../api/transfers/list.ts';
import { parseInput } from '../../../api/http/validation.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { keyOf } from '../../support/transfer-oracle.ts';
import type { Query } from '../../support/transfer-oracle.ts';
import {
  aTransfer,
  createWorldTables,
  worldTables,
  worldTotal,
  writeBlocks,
} from '../../support/transfer-world.ts';

/** 150,000 rows of one token, one sender and one receiver: past what is counted one by one. */

let own: Isolated;
let writer: ClickHouse;
let clickhouse: ClickHouse;

async function list(query: Query, client = clickhouse) {
  const parsed = parseInput(transfersQuery, query);
  const { page, limit, cursor } = parsed;
  return await listTransfers(
    { clickhouse: client, tables: worldTables, total: worldTotal(client) },
    { search: searchOf(parsed), page, limit, cursor, query },
  );
}

describe('a filter that matches more than is counted', () => {
  const [crowd, sender, receiver, rare] = [
    toFelt(0xc70dn),
    toFelt(0x5e4dn),
    toFelt(0x4ecen),
    toFelt(0x4a4en),
  ];
  const [base, perBlock, rows] = [20_000, 100, 150_000];
  /** An account with transfers in both directions: outgoing ones past what is counted one by one, too. */
  const [trader, traded] = [toFelt(0x7aden), 480_000];

  /** Row i, oldest first. */
  const keyAt = (i: number): string => `${base + Math.floor(i / perBlock)}:${i % perBlock}:0`;

  beforeAll(async () => {
    own = await isolated();
    writer = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
    clickhouse = createClickHouse(own.env.API_CLICKHOUSE_URL, { application: 'test-api' });
    await createWorldTables(writer);
    const hex = (felt: string): string => `toFixedString(unhex('${felt.slice(2)}'), 32)`;
    const columns = `token, block_desc, position_desc, item_desc, from_address, to_address, kind, amount, tx_hash, fee_unit, execution_status, seq`;
    const keys = `${hex(crowd)}, 4294967295 - (${base} + intDiv(number, ${perBlock})), 4294967295 - number % ${perBlock}, 4294967295`;
    const rest = `'erc20', 1, ${hex(crowd)}, ${hex(crowd)}, 'SUCCEEDED', 1`;
    const values = `${keys}, ${hex(sender)}, ${hex(receiver)}, ${rest}`;
    await writer.command(`INSERT INTO transfers (${columns}) SELECT ${values} FROM numbers(${rows})`);
    for (const [leg, account] of [sender, receiver].entries()) {
      await writer.command(
        `INSERT INTO account_feed (account, leg, ${columns}) SELECT ${hex(account)}, ${leg + 1}, ${values} FROM numbers(${rows})`,
      );
      await writer.command(
        `INSERT INTO account_ledger (account, leg, token, block_desc, position_desc, item_desc, seq)
         SELECT ${hex(account)}, ${leg + 1}, ${keys}, 1 FROM numbers(${rows})`,
      );
    }
    const isOut = 'number % 4 = 0';
    await writer.command(
      `INSERT INTO account_feed (account, leg, ${columns})
       SELECT ${hex(trader)}, if(${isOut}, 1, 2), ${keys}, if(${isOut}, ${hex(trader)}, ${hex(sender)}),
         if(${isOut}, ${hex(receiver)}, ${hex(trader)}), ${rest} FROM numbers(${traded})`,
    );
    for (const [kind, subject, all] of [
      [1, crowd, rows],
      [2, sender, rows],
      [2, receiver, rows],
      [2, trader, traded],
    ] as const) {
      await writer.command(`INSERT INTO transfer_counts_by_block (range, subject_kind, subject, block, transfers, seq)
        SELECT intDiv(block, 1024), ${kind}, ${hex(subject)}, ${base} + number AS block, ${perBlock}, 1
        FROM numbers(${all / perBlock})`);
    }
    await writer.command(`INSERT INTO transfer_counts (subject_kind, subject, range, transfers, seq)
      SELECT subject_kind, subject, range, sum(transfers), 1 FROM transfer_counts_by_block
      WHERE block >= ${base} GROUP BY subject_kind, subject, range`);
  });

  afterAll(async () => {
    await clickhouse.close();
    await writer.close();
    await own.drop();
  });

  it('is counted exactly by token and by account, and estimated by anything else', async () => {
    for (const filter of [{ token: crowd }, { account: sender }, { search: receiver }] as Query[]) {
      const {
        count,
        count_is_estimate: isEstimate,
        total_pages: pages,
      } = await list({ ...filter, limit: '100' });
      expect({ count, isEstimate, pages }).toEqual({ count: rows, isEstimate: undefined, pages: 1500 });
    }
    for (const filter of [{ from_account: sender }, { token: crowd, to_account: receiver }] as Query[]) {
      const answer = await list(filter);
      expect(answer.count_is_estimate).toBe(true);
      expect(answer.count).toBeGreaterThan(0.9 * rows);
      expect(answer.count).toBeLessThan(1.1 * rows);
    }
    const mixed = await list({ from_account: sender, token: rare });
    expect([mixed.count, mixed.count_is_estimate]).toEqual([0, undefined]);
  });

  it('is estimated for one side of an account that has both', async () => {
    // Of the trader's rows, one in four is outgoing.
    for (const [filter, share] of [
      [{ from_account: trader }, 0.25],
      [{ to_account: trader }, 0.75],
    ] as [Query, number][]) {
      const answer = await list(filter);
      expect(answer.count_is_estimate).toBe(true);
      expect(answer.count).toBeGreaterThan(0.9 * share * traded);
      expect(answer.count).toBeLessThan(1.1 * share * traded);
    }
  });

  it('is counted exactly up to 100,000', async () => {
    const upTo = async (blocks: number): Promise<unknown[]> => {
      const answer = await list({ from_account: sender, to_block: String(base + blocks - 1) });
      return [answer.count, answer.count_is_estimate];
    };
    expect(await upTo(1000)).toEqual([100_000, undefined]);
    expect((await upTo(1001))[1]).toBe(true);
  });

  it('has the right rows on far pages', async () => {
    for (const filter of [{ token: crowd }, { account: receiver }, { from_account: sender }] as Query[]) {
      for (const page of [2, 11, 777, 1400]) {
        const first = (page - 1) * 100;
        const expectedKeys = Array.from({ length: 100 }, (_, i) => first + i);
        const down = await list({ ...filter, limit: '100', page: String(page) });
        expect(down.results.map(keyOf)).toEqual(expectedKeys.map((i) => keyAt(rows - 1 - i)));
        const up = await list({ ...filter, limit: '100', page: String(page), order: 'asc' });
        expect(up.results.map(keyOf)).toEqual(expectedKeys.map(keyAt));
      }
    }
  });

  it('ends with its last row where the estimated count is too high', async () => {
    const doubled: ClickHouse = {
      ...clickhouse,
      rows: async (query, params, options) =>
        query.name === 'transfers.sample'
          ? [query.row.parse({ seen: 20_000, matching: 40_000 })]
          : await clickhouse.rows(query, params, options),
    };
    const page = async (number: number | 'last', order = 'desc') =>
      await list({ from_account: sender, limit: '100', page: String(number), order }, doubled);
    const inner = await page(1499);
    expect([inner.count, inner.count_is_estimate]).toEqual([2 * rows, true]);
    const last = await page(1500);
    expect([last.count, last.count_is_estimate, last.results.length]).toEqual([rows, undefined, 100]);
    expect([last.total_pages, last.links.next]).toEqual([1500, null]);
    await expect(page(1501)).rejects.toMatchObject({ status: 404, message: 'Invalid page.' });
    expect(await page('last')).toEqual(last);
    expect((await page('last', 'asc')).results.map(keyOf)).toEqual(
      Array.from({ length: 100 }, (_, i) => keyAt(149_900 + i)),
    );
  });

  it('passes over keys, not whole rows, on far pages', async () => {
    const skipped: unknown[] = [];
    const watched: ClickHouse = {
      ...clickhouse,
      rows: async (query, params, options) => {
        if (query.name === 'transfers.page') skipped.push(params?.['offset']);
        return await clickhouse.rows(query, params, options);
      },
    };
    for (const filter of [
      { token: crowd },
      { from_account: sender },
      { token: crowd, to_account: receiver },
    ]) {
      for (const order of ['asc', 'desc']) {
        const { results } = await list({ ...filter, order, limit: '100', page: '1400' }, watched);
        expect(results).toHaveLength(100);
      }
    }
    expect(skipped).toHaveLength(6);
    expect(Math.max(...skipped.map(Number))).toBeLessThanOrEqual(1000);
  });

  it('is found without reading the rows that do not match', async () => {
    const busy = toFelt(0xb54n);
    const back = aTransfer({ token: rare, from: receiver, to: sender, position: 501, txHash: rare });
    const aside = aTransfer({ token: crowd, from: busy, to: rare, position: 502, txHash: rare });
    await writeBlocks(writer, [{ height: 21_498, timestamp: 1, chunk: 'live', transfers: [back, aside] }], {
      seq: 3,
      offset: 3,
    });
    // Another account of as many rows, of other tokens.
    await writer.command(`INSERT INTO transfer_counts (subject_kind, subject, range, transfers, seq)
      VALUES (2, toFixedString(unhex('${busy.slice(2)}'), 32), 1, 150000, 1)`);
    const bounded: ClickHouse = {
      ...clickhouse,
      rows: async (query, params, options) =>
        await clickhouse.rows(query, params, {
          ...options,
          settings: { ...options?.settings, max_bytes_to_read: 3_000_000 },
        }),
    };
    for (const [filter, key] of [
      [{ from_account: receiver }, '21498:501:0'],
      [{ from_account: receiver, token: rare }, '21498:501:0'],
      [{ account: busy, token: crowd }, '21498:502:0'],
      [{ from_account: busy, token: crowd }, '21498:502:0'],
      [{ to_account: rare, token: crowd }, '21498:502:0'],
    ] as const) {
      for (const order of ['desc', 'asc']) {
        const { results, count } = await list({ ...filter, order }, bounded);
        expect([results.map(keyOf), count], JSON.stringify(filter)).toEqual([[key], 1]);
      }
    }
  });

  it('has a whole page while a block is in the table of positions, and not yet in that of the rows', async () => {
    const pair = { account: sender, token: crowd, limit: '25' };
    const before = await list(pair);
    const hex = (felt: string): string => `toFixedString(unhex('${felt.slice(2)}'), 32)`;
    const write = async (isDeleted: 0 | 1): Promise<void> =>
      await writer.command(
        `INSERT INTO account_ledger (account, leg, token, block_desc, position_desc, item_desc, seq, is_deleted)
         SELECT ${hex(sender)}, 1, ${hex(crowd)}, 4294967295 - 22000, 4294967295 - number, 4294967295, ${isDeleted + 1}, ${isDeleted}
         FROM numbers(3)`,
      );
    await write(0);
    const during = await list(pair);
    expect(during.results).toEqual(before.results);
    expect(during.links.next_cursor).not.toBeNull();
    expect([during.count_is_estimate, during.count > 100_000]).toEqual([true, true]);
    await write(1);
    expect((await list(pair)).results).toEqual(before.results);
  });

  it('is paged upwards from anywhere, also where few of many rows match', async () => {
    const odd = aTransfer({ token: rare, from: sender, to: receiver, position: 500, txHash: rare });
    const block = { height: 21_499, timestamp: 1, chunk: 'live', transfers: [odd] };
    await writeBlocks(writer, [block], { seq: 2, offset: 2 });
    const up = await list({ from_account: sender, token: rare, order: 'asc' });
    expect(up.results.map(keyOf)).toEqual(['21499:500:0']);
    const far = await list({ from_account: sender, order: 'asc', page: '1499', limit: '100' });
    const beyond = await list({
      from_account: sender,
      order: 'asc',
      limit: '100',
      cursor: far.links.next_cursor ?? '',
    });
    expect(beyond.results.map(keyOf)).toEqual(Array.from({ length: 100 }, (_, i) => keyAt(149_900 + i)));
    expect(beyond.links.next_cursor).not.toBeNull();
  });
});
