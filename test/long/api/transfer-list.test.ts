import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { searchOf, transfersQuery } from '../../../api/transfers/filters.ts';
import { listTransfers } from '../../../api/transfers/list.ts';
import { parseInput } from '../../../api/http/validation.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { keyOf, matching, randomQuery, stored } from '../../support/transfer-oracle.ts';
import type { IndexedTransfer, Query } from '../../support/transfer-oracle.ts';
import {
  createWorldTables,
  randomBlock,
  randomWorld,
  worldTables,
  worldTotal,
  writeBlocks,
} from '../../support/transfer-world.ts';
import { createRandom } from '../../support/random.ts';
import type { WorldBlock } from '../../support/transfer-world.ts';

/** Pages of transfers out of a real ClickHouse, compared with a list in memory that is filtered and sorted plainly. */

let own: Isolated;
let writer: ClickHouse;
let clickhouse: ClickHouse;
/** What is indexed now, by height. */
const chain = new Map<number, WorldBlock>();
let seq = 1;
let offset = 0;

async function accept(blocks: readonly WorldBlock[]): Promise<void> {
  await writeBlocks(writer, blocks, { seq: (seq += 1), offset: (offset += 1000) });
  for (const block of blocks) chain.set(block.height, block);
}

async function revert(blocks: readonly WorldBlock[]): Promise<void> {
  await writeBlocks(writer, blocks, { seq: (seq += 1), offset: (offset += 1000), type: 'block.reverted' });
  for (const block of blocks) chain.delete(block.height);
}

/** Two stretches far apart, one of them over a border of 1024 heights; one height holds more than a window may. */
const heights = [
  ...Array.from({ length: 60 }, (_, i) => i),
  ...Array.from({ length: 70 }, (_, i) => 990 + i),
  ...Array.from({ length: 40 }, (_, i) => 8000 + 3 * i),
];

beforeAll(async () => {
  own = await isolated();
  writer = createClickHouse(own.env.CLICKHOUSE_URL, { application: 'test' });
  clickhouse = createClickHouse(own.env.API_CLICKHOUSE_URL, { application: 'test-api' });
  await createWorldTables(writer);
  const random = createRandom(20_260_101);
  const blocks = heights.map((height) =>
    randomBlock(random, height, height === 995 ? 9000 : 20 + random.below(30)),
  );
  for (let i = 0; i < blocks.length; i += 40) await accept(blocks.slice(i, i + 40));
  // A fork: eight heights lost, six of them taken again by other blocks.
  const lost = blocks.slice(50, 58);
  await revert(lost);
  await accept(lost.slice(0, 6).map(({ height }) => randomBlock(random, height, 25)));
});

afterAll(async () => {
  await clickhouse.close();
  await writer.close();
  await own.drop();
});

const expected = (query: Query): IndexedTransfer[] => matching(chain, query);

/** `scanRows` 0: a pair of account and token is looked up in the ledger, however few rows it has. */
async function list(query: Query, scanRows?: number) {
  const parsed = parseInput(transfersQuery, query);
  const { page, limit, cursor } = parsed;
  return await listTransfers(
    {
      clickhouse,
      tables: worldTables,
      total: worldTotal(clickhouse),
      ...(scanRows === undefined ? {} : { scanRows }),
    },
    { search: searchOf(parsed), page, limit, cursor, query },
  );
}

async function walk(query: Query, between?: () => Promise<void>, scanRows?: number): Promise<string[]> {
  const seen: string[] = [];
  let page = await list(query, scanRows);
  seen.push(...page.results.map(keyOf));
  while (typeof page.links.next_cursor === 'string') {
    await between?.();
    page = await list({ ...query, cursor: page.links.next_cursor }, scanRows);
    expect(page.results.length).toBeGreaterThan(0);
    seen.push(...page.results.map(keyOf));
  }
  return seen;
}

const [hotToken = '', mixedToken = ''] = randomWorld.tokens;
const [zero = '', hotAccount = ''] = randomWorld.accounts;

describe('a page by number', () => {
  it('has the matching transfers in order, with an exact count', async () => {
    const random = createRandom(7);
    for (let run = 0; run < 120; run += 1) {
      const query = randomQuery(chain, random);
      const all = expected(query);
      const limit = random.pick([1, 7, 25, 100]);
      const pages = Math.max(1, Math.ceil(all.length / limit));
      const page = random.below(3) === 0 ? 1 : 1 + random.below(pages);
      const answer = await list({ ...query, limit: String(limit), page: String(page) });
      const context = JSON.stringify({ ...query, limit, page });
      expect(answer.results, context).toEqual(all.slice((page - 1) * limit, page * limit).map(stored));
      expect({ count: answer.count, pages: answer.total_pages }, context).toEqual({
        count: all.length,
        pages,
      });
      expect(answer.count_is_estimate, context).toBeUndefined();
      expect(answer.links.next === null, context).toBe(page === pages);
    }
  });

  it('is correct at any depth, in both orders', async () => {
    for (const filter of [
      { token: hotToken },
      { account: hotAccount },
      { account: zero },
      { to_account: hotAccount },
    ]) {
      for (const order of ['desc', 'asc']) {
        const query: Query = { ...filter, order, limit: '100' };
        const all = expected(query);
        const pages = Math.ceil(all.length / 100);
        for (const page of [1, 2, Math.floor(pages / 2), pages - 1, pages]) {
          const answer = await list({ ...query, page: String(page) });
          expect(answer.results.map(keyOf)).toEqual(all.slice((page - 1) * 100, page * 100).map(keyOf));
        }
        const last = await list({ ...query, page: 'last' });
        expect(last.results.map(keyOf)).toEqual(all.slice((pages - 1) * 100).map(keyOf));
      }
    }
  });

  it('does not exist past the last one', async () => {
    for (const query of [
      { token: hotToken, page: '100000' },
      { token: hotToken, page: '40001', limit: '25' },
      { token: hotToken, page: '999999999999999' },
      { txhash: '0x1', page: '2' },
      { account: hotAccount, page: '0' },
      { account: hotAccount, page: '-1' },
      { account: hotAccount, page: 'two' },
    ]) {
      await expect(list(query), JSON.stringify(query)).rejects.toMatchObject({
        status: 404,
        message: 'Invalid page.',
      });
    }
  });

  it('of an empty list is an empty first page', async () => {
    for (const query of [
      { token: '0xdead' },
      { search: '0xdead' },
      { block: '123456' },
      { txhash: '0xdead' },
    ]) {
      const answer = await list(query);
      expect(answer).toEqual({
        links: { next: null, previous: null, next_cursor: null },
        count: 0,
        total_pages: 1,
        results: [],
      });
    }
  });

  it('has no transfers of reverted blocks', async () => {
    for (let height = 48; height < 60; height += 1) {
      const block = String(height);
      const answer = await list({ block, limit: '100' });
      expect(answer.results, block).toEqual(expected({ block }).map(stored));
      expect(answer.count).toBe(answer.results.length);
    }
  });

  it('links to the next and previous page with the filters', async () => {
    const answer = await list({ token: hotToken, order: 'asc', page: '2', limit: '10' });
    expect(answer.links).toMatchObject({
      next: `?page=3&limit=10&token=${hotToken}&order=asc`,
      previous: `?page=1&limit=10&token=${hotToken}&order=asc`,
    });
  });
});

describe('a page of a pair of account and token', () => {
  const { accounts } = randomWorld;
  const filters = ['account', 'from_account', 'to_account'];

  it('is read by the positions in the ledger, in both orders', async () => {
    const random = createRandom(31);
    for (let run = 0; run < 40; run += 1) {
      const query: Query = {
        [random.pick(filters)]: random.pick([zero, hotAccount, random.pick(accounts)]),
        token: random.below(10) === 0 ? '0xdead' : random.pick([hotToken, mixedToken]),
        order: random.pick(['asc', 'desc']),
        ...(random.below(2) === 0 ? {} : { from_block: '40', to_block: '8050' }),
        limit: random.pick(['7', '100']),
      };
      const all = expected(query).map(stored);
      const limit = Number(query['limit']);
      const page = 1 + random.below(Math.max(1, Math.ceil(all.length / limit)));
      const answer = await list({ ...query, page: String(page) }, 0);
      const context = JSON.stringify({ ...query, page });
      expect(answer.results, context).toEqual(all.slice((page - 1) * limit, page * limit));
      expect(answer.count, context).toBe(all.length);
      expect(await walk({ ...query, limit: '100' }, undefined, 0), context).toEqual(all.map(keyOf));
    }
  });
});

describe('paging by cursor', () => {
  it('returns every row once, in order', async () => {
    const random = createRandom(99);
    const wide: Query[] = ['desc', 'asc'].flatMap((order) => [
      { account: hotAccount, order, limit: '100' },
      { search: randomWorld.ambiguous[0] ?? '', order, limit: '37' },
      { search: randomWorld.ambiguous[1] ?? '', order, limit: '37' },
      { from_account: zero, order, limit: '50' },
      { token: hotToken, account: hotAccount, order, limit: '100' },
      { block: '995', order, limit: '100', from_account: zero },
    ]);
    const narrow = Array.from({ length: 12 }, () => ({ ...randomQuery(chain, random), limit: '100' }));
    for (const query of [...wide, ...narrow]) {
      expect(await walk(query), JSON.stringify(query)).toEqual(expected(query).map(keyOf));
    }
  });

  it('is stable while blocks are added and reverted', async () => {
    const random = createRandom(5);
    const top = 9000;
    for (const order of ['desc', 'asc']) {
      const query: Query = { token: hotToken, from_block: '8000', order, limit: '60' };
      const before = expected(query).map(keyOf);
      let next = top + (order === 'asc' ? 500 : 0);
      const seen = await walk(query, async () => {
        if (next < top + 504) await accept([randomBlock(random, (next += 1), 30)]);
      });
      if (order === 'desc') expect(seen).toEqual(before);
      else expect(seen).toEqual(expected(query).map(keyOf));
    }
    const lost = [...chain.values()].filter(({ height }) => height > top);
    await revert(lost);
    expect(await walk({ token: hotToken, from_block: '8900', limit: '60' })).toEqual([]);
  });

  it('rejects a cursor of other filters, another order, or a forged one', async () => {
    const { links } = await list({ token: hotToken, limit: '5' });
    const cursor = links.next_cursor ?? '';
    expect((await list({ token: hotToken, limit: '9', cursor })).results).toHaveLength(9);
    for (const query of [
      { account: hotToken, cursor },
      { token: hotToken, order: 'asc', cursor },
      { token: hotToken, to_block: '9999', cursor },
      { token: hotToken, cursor: `${cursor}A` },
      { token: hotToken, cursor: cursor.slice(1) },
      { token: hotToken, cursor: 'null' },
      { token: hotToken, cursor: '\0' },
    ]) {
      await expect(list(query), JSON.stringify(query)).rejects.toMatchObject({ status: 400 });
    }
  });
});
