import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { STRK_TOKEN, toFelt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import {
  ALICE,
  BOB,
  COIN,
  HIDDEN,
  MAX,
  MULTI,
  NAME,
  NAMELESS,
  NFT,
  TX1,
  writeSmallChain,
} from '../../support/small-chain.ts';
import { aTransfer, hashAt, writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames } from '../../support/transfer-world.ts';

/** The read endpoints of the chain over HTTP, on real stores, with a small chain that is known by heart. */

let world: ApiWorld;
let apiKey = '';
let names: TableNames;

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey, names } = await writeSmallChain(world));
});

afterAll(() => world.close());

const get = (path: string): Promise<Answer> => world.call('GET', path, { headers: { 'api-key': apiKey } });
const transfers = (query: Record<string, string>): Promise<Answer> =>
  get(`/api/transfers/?${new URLSearchParams(query).toString()}`);

describe('GET /api/transfers/', () => {
  it('shows every field of the contract', async () => {
    const { status, json } = await transfers({ txhash: '0xF1' });
    expect(status).toBe(200);
    const common = {
      token_address: COIN,
      token_symbol: 'C\u2400OIN',
      token_name: NAME,
      token_decimals: 6,
      nft_token_id: '',
      txhash: TX1,
      timestamp: '2023-11-14T22:13:30Z',
      block: 10,
      status: 'ACCEPTED_ON_L1',
      fee: '5',
      fee_unit: STRK_TOKEN,
      execution_status: 'SUCCEEDED',
      kind: 'erc20',
    };
    expect(json).toEqual({
      links: { next: null, previous: null, next_cursor: null },
      count: 2,
      total_pages: 1,
      results: [
        {
          ...common,
          from_address: ALICE,
          to_address: ALICE,
          value: MAX.toString(),
          event_index: 3,
          is_fee: true,
        },
        { ...common, from_address: ALICE, to_address: BOB, value: '0', event_index: 0, is_fee: false },
      ],
    });
  });

  it('shows NFTs, batches and transfers of unknown standard', async () => {
    const { json } = await transfers({ block: '40', order: 'asc' });
    const shown = json.results.map((row: Record<string, unknown>) => ({
      kind: row['kind'],
      value: row['value'],
      id: row['nft_token_id'],
      index: row['event_index'],
      status: row['status'],
      decimals: row['token_decimals'],
      name: row['token_name'],
    }));
    const L2 = 'ACCEPTED_ON_L2';
    expect(shown).toEqual([
      { kind: 'erc721', value: '1', id: MAX.toString(), index: 1, status: L2, decimals: 0, name: 'Crabs' },
      {
        kind: 'erc1155',
        value: (1n << 128n).toString(),
        id: '0',
        index: 2,
        status: L2,
        decimals: 0,
        name: '',
      },
      {
        kind: 'erc1155',
        value: '7',
        id: (1n << 128n).toString(),
        index: 1_048_578,
        status: L2,
        decimals: 0,
        name: '',
      },
      { kind: 'unknown', value: '99', id: '', index: 4, status: L2, decimals: 18, name: '' },
    ]);
    expect(json.results[3]).toMatchObject({ execution_status: 'REVERTED', fee: MAX.toString() });
  });

  it('requires a filter, and lists all filters', async () => {
    const everything = [
      '',
      '?',
      '?account=&token=',
      '?page=2&limit=5',
      '?from_block=1&to_block=2',
      '?foo=0x1',
    ];
    for (const query of [...everything, '?start_time=2020-01-01', '?order=asc', '?cursor=abc']) {
      const { status, json } = await get(`/api/transfers/${query}`);
      expect(status, query).toBe(400);
      expect(json.allowed_filters, query).toEqual([
        'account',
        'account_address',
        'from_account',
        'from_address',
        'to_account',
        'to_address',
        'token',
        'token_address',
        'block',
        'txhash',
        'search',
      ]);
    }
  });

  it('accepts every alias in any 0x form', async () => {
    const counts: [string, string, number][] = [
      ['account', '0xA11CE', 2],
      ['account_address', '0X00a11cE', 2],
      ['from_account', BOB, 3],
      ['from_address', '0xb0b', 3],
      ['to_account', '0xB0B', 2],
      ['to_address', '0x0B0B', 2],
      ['token', '0x1155', 2],
      ['token_address', MULTI, 2],
      ['search', '0xca201', 4],
      ['search', '0xf2', 4],
      ['search', '0xc01', 2],
      ['txhash', `0x${'0'.repeat(62)}F2`, 4],
      ['block', '0010', 2],
      ['block', '11', 0],
      ['block', '99999999999999999999', 0],
      ['token', `0x${(2n ** 251n).toString(16)}`, 0],
    ];
    for (const [name, value, count] of counts) {
      const { status, json } = await transfers({ [name]: value });
      expect([status, json.count], `${name}=${value}`).toEqual([200, count]);
    }
    expect((await get('/api/transfers?token=0xc01')).json.count).toBe(2);
    expect((await get('/api/transfers/?token=0x1&token=0xc01')).json.count).toBe(2);
    expect((await transfers({ token: '0xc01', token_address: COIN })).json.count).toBe(2);
  });

  it('pages through a block, with the number of its transfers on each page', async () => {
    const first = await transfers({ block: '10', limit: '1' });
    const next = String(first.json.links?.next_cursor);
    const second = await transfers({ block: '10', limit: '1', cursor: next });
    const last = await transfers({ block: '10', limit: '1', page: 'last' });
    for (const { json } of [first, second, last])
      expect([json.count, json.results?.length, json.results?.[0]?.block]).toEqual([2, 1, 10]);
    expect(second.json.links?.next_cursor).toBeNull();
    expect(second.json.results).toEqual(last.json.results);
    expect(second.json.results).not.toEqual(first.json.results);
  });

  it('answers invalid parameters 400 with their names', async () => {
    const prime = '0x800000000000011000000000000000000000000000000000000000000000001';
    const wrong: [string, string][] = [
      ...[
        '0x',
        'c01',
        '0xzz',
        '1155',
        '\0',
        '0x1\0',
        '🦀',
        "' OR 1=1",
        `0x${'f'.repeat(65)}`,
        prime,
        ' ',
      ].flatMap((value): [string, string][] =>
        ['account', 'from_address', 'to_account', 'token', 'txhash', 'search'].map((name) => [name, value]),
      ),
      ...['-1', '1.5', '1e3', 'latest', '0x10', '\0', '٣'].flatMap((value): [string, string][] =>
        ['block', 'from_block', 'to_block'].map((name) => [name, value]),
      ),
      ...['yesterday', '2024-13-01', '1700000000', '\0'].flatMap((value): [string, string][] =>
        ['start_time', 'end_time'].map((name) => [name, value]),
      ),
      ['order', 'newest'],
      ['cursor', 'AAAA'],
      ['cursor', '🦀'],
      ['cursor', 'A'.repeat(38)],
      ['cursor', 'A'.repeat(100_00)],
    ];
    for (const [name, value] of wrong) {
      const { status, json } = await transfers({ token: '0xc01', [name]: value });
      expect(status, `${name}=${value}`).toBe(400);
      expect(Object.keys(json.errors), `${name}=${value}`).toEqual([name]);
      expect(json).toMatchObject({ code: 'invalid', status: 400 });
    }
    const upsideDown = await transfers({ token: '0xc01', from_block: '5', to_block: '4' });
    expect(upsideDown.json.errors).toHaveProperty('to_block');
    const backwards = await transfers({
      token: '0xc01',
      start_time: '2024-01-02T00:00:00Z',
      end_time: '2024-01-01T00:00:00Z',
    });
    expect(backwards.json.errors).toHaveProperty('end_time');
    const two = await transfers({ account: '0x1', account_address: '0x2' });
    expect(two.json.errors).toHaveProperty('account_address');
  });

  it('pages like Django REST framework', async () => {
    const query = { account: BOB };
    for (const limit of ['0', '-3', 'many', '1.5', '']) {
      expect((await transfers({ ...query, limit })).json.results, limit).toHaveLength(5);
    }
    expect((await transfers({ ...query, limit: '100000' })).json.links.next).toBeNull();
    const second = await transfers({ ...query, page: '2', limit: '2' });
    expect(second.json).toMatchObject({
      count: 5,
      total_pages: 3,
      links: {
        next: `?page=3&limit=2&account=${BOB}`,
        previous: `?page=1&limit=2&account=${BOB}`,
      },
    });
    const third = await get(`/api/transfers/${second.json.links.next}`);
    expect(third.json.results).toHaveLength(1);
    expect((await transfers({ ...query, page: 'last', limit: '2' })).json.results).toEqual(
      third.json.results,
    );
    for (const page of ['0', '-1', 'x', '4', '1e9', '99999999999999999999', '\0']) {
      const { status, json } = await transfers({ ...query, page, limit: '2' });
      expect([status, json.detail], page).toEqual([404, 'Invalid page.']);
    }
  });

  it('pages by cursor, with the filters in the link', async () => {
    const first = await transfers({ account: BOB, limit: '2', order: 'asc' });
    const cursor: string = first.json.links.next_cursor;
    const second = await transfers({ account: BOB, limit: '2', order: 'asc', cursor, page: '77' });
    expect(second.json.links.next).toBe(
      `?cursor=${second.json.links.next_cursor}&limit=2&account=${BOB}&order=asc`,
    );
    const third = await get(`/api/transfers/${second.json.links.next}`);
    const all = await transfers({ account: BOB, order: 'asc' });
    expect([...first.json.results, ...second.json.results, ...third.json.results]).toEqual(all.json.results);
    expect(third.json.links).toEqual({ next: null, previous: null, next_cursor: null });
    const other = await transfers({ account: ALICE, limit: '2', order: 'asc', cursor });
    expect([other.status, Object.keys(other.json.errors)]).toEqual([400, ['cursor']]);
  });

  it('narrows by height and time, inclusive', async () => {
    const cases: [Record<string, string>, number][] = [
      [{ from_block: '10', to_block: '10' }, 1],
      [{ from_block: '11' }, 4],
      [{ to_block: '39' }, 1],
      [{ to_block: '9' }, 0],
      [{ from_block: '99999999999' }, 0],
      [{ start_time: '2023-11-14T22:13:30Z', end_time: '2023-11-14T22:13:30Z' }, 1],
      [{ start_time: '2023-11-14T22:13:30.001Z' }, 4],
      [{ end_time: '2023-11-14T22:13:29.999Z' }, 0],
      [{ end_time: '2023-11-14T23:13:30 01:00' }, 1],
      [{ start_time: '2023-11-14' }, 5],
      [{ start_time: '0001-01-01', end_time: '9999-12-31' }, 5],
      [{ block: '10', from_block: '11' }, 0],
    ];
    for (const [bounds, count] of cases) {
      const { status, json } = await transfers({ account: BOB, ...bounds });
      expect([status, json.count, json.results.length], JSON.stringify(bounds)).toEqual([200, count, count]);
    }
  });

  it('requires an API key', async () => {
    expect((await world.call('GET', '/api/transfers/?token=0x1')).status).toBe(401);
    expect(
      (await world.call('POST', '/api/transfers/?token=0x1', { headers: { 'api-key': apiKey } })).status,
    ).toBe(405);
  });
});

describe('GET /api/track-transfers/', () => {
  const track = (query: Record<string, string>): Promise<Answer> =>
    get(`/api/track-transfers/?${new URLSearchParams(query).toString()}`);

  it('returns a flat array in chain order', async () => {
    const { status, json } = await track({ account: '0xB0B', token: COIN });
    expect(status).toBe(200);
    const common = {
      txhash: TX1,
      timestamp: '2023-11-14T22:13:30Z',
      block: 10,
      status: 'ACCEPTED_ON_L1',
      fee: '5',
    };
    expect(json).toEqual([
      { from: ALICE, to: BOB, value: '0', ...common },
      { from: ALICE, to: ALICE, value: MAX.toString(), ...common },
    ]);
    expect((await track({ account: BOB, token: NFT, skip_zero: 'yes' })).json).toHaveLength(1);
  });

  it('is empty for an account without transfers of an indexed token', async () => {
    expect((await track({ account: ALICE, token: NFT })).json).toEqual([]);
  });

  it.each([
    [{ account: '0x1', token: COIN }, 404, 'The account is not indexed.'],
    [{ account: ALICE, token: '0x1' }, 404, 'The token is not indexed.'],
    [{ account: ALICE }, 400, 'token: This field is required.'],
    [{ token: COIN }, 400, 'account: This field is required.'],
    [{ account: 'alice', token: COIN }, 400, 'account: Enter a valid address (0x and up to 64 hex digits).'],
    [{ account: ALICE, token: COIN, skip_zero: 'maybe' }, 400, 'skip_zero: Must be a valid boolean.'],
  ])('answers %o with %i', async (query, status, detail) => {
    const answer = await track(query as Record<string, string>);
    expect([answer.status, answer.json.detail]).toEqual([status, detail]);
  });
});

describe('GET /api/tokens/', () => {
  const addresses = async (query: string): Promise<string[]> =>
    (await get(`/api/tokens/${query}`)).json.results.map((row: { address: string }) => row.address);

  it('shows a token', async () => {
    const { status, json } = await get('/api/tokens/0xAF7/');
    expect([status, json]).toEqual([
      200,
      {
        address: NFT,
        symbol: 'CRAB',
        name: 'Crabs',
        decimals: 0,
        logo: 'https://example.org/a.png',
        current_price_usd: null,
        price_updated_at: null,
        verified: true,
        common: true,
        public: false,
        hidden: false,
        is_erc20: false,
        is_erc721: true,
        is_erc1155: false,
      },
    ]);
    expect((await get(`/api/tokens/${HIDDEN}`)).json).toMatchObject({ hidden: true, decimals: 255 });
    expect((await get('/api/tokens/0xae0/')).json).toMatchObject({ name: '', symbol: '', decimals: 18 });
    for (const [path, status] of [
      ['0xdead', 404],
      ['dead', 400],
      ['0x', 400],
      ['%00', 400],
      ["0x1'--", 400],
    ] as const) {
      expect((await get(`/api/tokens/${path}/`)).status, path).toBe(status);
    }
  });

  it('lists curated tokens first, and hidden ones on request only', async () => {
    expect(await addresses('')).toEqual([NFT, ...[NAMELESS, COIN, MULTI].toSorted()]);
    expect(await addresses('?hidden=true')).toEqual([HIDDEN]);
    expect(await addresses('?hidden=no&common=YES')).toEqual([NFT]);
    expect(await addresses('?verified=false&type=erc20')).toEqual([NAMELESS, COIN].toSorted());
    expect(await addresses('?public=1')).toEqual([]);
    expect(await addresses('?public=1&hidden=1')).toEqual([HIDDEN]);
    expect(await addresses('?type=erc1155')).toEqual([MULTI]);
    expect(await addresses('?address=0xC01')).toEqual([COIN]);
    const { json } = await get('/api/tokens/?limit=1&page=2');
    expect(json).toMatchObject({
      count: 4,
      total_pages: 4,
      links: { next: '?page=3&limit=1', previous: '?page=1&limit=1' },
    });
    expect((await get('/api/tokens/?page=2')).status).toBe(404);
    for (const query of [
      '?common=maybe',
      '?type=erc777',
      '?address=c01',
      '?search=%00',
      `?search=${'a'.repeat(201)}`,
    ]) {
      expect((await get(`/api/tokens/${query}`)).status, query).toBe(400);
    }
  });

  it('searches name, symbol and address literally', async () => {
    const search = (text: string): Promise<string[]> => addresses(`?search=${encodeURIComponent(text)}`);
    expect(await search('crab')).toEqual([NFT]);
    expect(await search('%_')).toEqual([COIN]);
    expect(await search('\\ %')).toEqual([COIN]);
    expect(await search("a'b")).toEqual([COIN]);
    expect(await search('\u{1F980}')).toEqual([COIN]);
    expect(await search('0x1155')).toEqual([MULTI]);
    expect(await search('__')).toEqual([]);
    expect(await search('scam')).toEqual([]);
    expect(await search("'; DROP TABLE tokens; --")).toEqual([]);
  });
});

describe('GET /api/indexer/progress/', () => {
  it('shows every chunk, including one without a block', async () => {
    const { status, json } = await get('/api/indexer/progress/');
    expect([status, json]).toEqual([
      200,
      {
        network: 'SN_SIM',
        chunks: [
          { name: 'blocks-0', range: [0, 20], latest_block: 10, transfers: 2, percent: 0.5 },
          { name: 'blocks-21', range: [21, 30], latest_block: 21, transfers: 0, percent: 0 },
          { name: 'blocks-31', range: [31, 31], latest_block: 31, transfers: 0, percent: null },
          { name: 'live', range: [32, null], latest_block: 40, transfers: 4, percent: null },
        ],
        totals: { transfers: 6, latest_block_overall: 40 },
        verified_blocks: 0,
      },
    ]);
  });
});

describe('GET /api/blocks/{block}/', () => {
  const block = async (id: string): Promise<Answer> => await get(`/api/blocks/${id}/`);

  it('shows a block by its height, and by its hash in any form', async () => {
    const ten = {
      height: 10,
      hash: hashAt(10),
      parent_hash: hashAt(9),
      timestamp: '2023-11-14T22:13:30Z',
      status: 'ACCEPTED_ON_L1',
      transactions: 0,
      events: 0,
      transfers: 2,
      event_check: 'not_checked',
      fees: [{ token_address: COIN, amount: MAX.toString() }],
    };
    for (const id of ['10', '010', hashAt(10), hashAt(10).replace(/^0x0+/, '0X').toUpperCase()]) {
      const { status, json } = await block(id.replace('0X', '0x'));
      expect([id, status, json]).toEqual([id, 200, ten]);
    }
    const { json: empty } = await block('11');
    expect([empty.transfers, empty.fees, empty.status]).toEqual([0, [], 'ACCEPTED_ON_L1']);
    const { json: newest } = await block('40');
    expect([newest.transfers, newest.fees, newest.status]).toEqual([4, [], 'ACCEPTED_ON_L2']);
  });

  it('answers 404 for a block that is not indexed', async () => {
    for (const id of ['12', '4294967295', '99999999999', '-1', '1.0', 'x', hashAt(12), COIN, '0x'])
      expect([id, (await block(id)).status]).toEqual([id, 404]);
  });

  it('finds the block that replaced a reverted one, and not that', async () => {
    const clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
    const [old, replacement] = [toFelt(0xdeadn), toFelt(0xbeefn)];
    const fee = (amount: bigint) =>
      aTransfer({ token: COIN, from: ALICE, to: BOB, position: 0, txHash: TX1, amount, isFee: true });
    const first = { height: 41, hash: old, timestamp: 1_700_000_200, chunk: 'live', transfers: [fee(3n)] };
    await writeBlocks(clickhouse, [first], { seq: 10, offset: 10 }, names);
    expect((await block(old)).json).toMatchObject({ height: 41, fees: [{ amount: '3' }] });
    await writeBlocks(clickhouse, [first], { seq: 11, offset: 11, type: 'block.reverted' }, names);
    expect([(await block(old)).status, (await block('41')).status]).toEqual([404, 404]);
    const second = { ...first, hash: replacement, transfers: [fee(4n), { ...fee(5n), position: 1 }] };
    await writeBlocks(clickhouse, [second], { seq: 12, offset: 12 }, names);
    await clickhouse.close();
    expect((await block(old)).status).toBe(404);
    for (const id of ['41', replacement])
      expect((await block(id)).json).toMatchObject({
        hash: replacement,
        transfers: 2,
        fees: [{ amount: '9' }],
      });
  });
});

describe('GET /api/transfers/ while the read models change', () => {
  it('keeps totals and names only as long as their state is the same', async () => {
    const clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
    // Nothing grows old at a clock that stands still.
    const { call } = await world.anotherApi({ now: () => 1 });
    let questions = 0;
    let indexed: string | null = null;
    const coin = async (): Promise<[number, string]> => {
      // Never the same URL, which would be answered from the cache of answers.
      const { json, headers } = await call(
        'GET',
        `/api/transfers/?token=${COIN}&limit=1&question=${(questions += 1)}`,
        {
          headers: { 'api-key': apiKey },
        },
      );
      indexed = headers.get('x-indexed-block');
      return [json.count, json.results[0].token_symbol];
    };
    const moveTo = async (offset: number): Promise<void> => {
      await world.pool.query(
        `INSERT INTO tds.checkpoints (consumer, build, topic, partition, topic_id, next_offset)
         SELECT projection, build, 'chain.blocks', 0, 'test', $1 FROM tds.builds WHERE projection = 'indexed-blocks'
         ON CONFLICT (consumer, build, topic, partition) DO UPDATE SET next_offset = $1`,
        [offset],
      );
    };
    const served = await servedBuilds(world.pool);
    const rename = async (symbol: string): Promise<void> => {
      await world.pool.query(`UPDATE ${served.schema('tokens')}.tokens SET symbol = $1 WHERE token = $2`, [
        symbol,
        COIN,
      ]);
    };
    const transfer = aTransfer({ token: COIN, from: ALICE, to: BOB, position: 0, txHash: TX1, amount: 1n });
    // Below the newest block: with a new height, nothing would be kept.
    const block = { height: 39, timestamp: 1_700_000_090, chunk: 'live', transfers: [transfer] };

    await moveTo(100);
    let first = await coin();
    // Until the API has read the newest height, which is part of the state.
    while (indexed === null) first = await coin();
    const [count, symbol] = first;
    await writeBlocks(clickhouse, [block], { seq: 100, offset: 100 }, names);
    await rename('NEW');
    expect(await coin()).toEqual([count, symbol]);
    await moveTo(101);
    expect(await coin()).toEqual([count + 1, 'NEW']);
    await writeBlocks(clickhouse, [block], { seq: 101, offset: 101, type: 'block.reverted' }, names);
    await rename(symbol);
    await moveTo(102);
    expect(await coin()).toEqual([count, symbol]);
    // The block can be queried before the checkpoint moves.
    await writeBlocks(clickhouse, [{ ...block, height: 60 }], { seq: 103, offset: 103 }, names);
    let latest = await coin();
    while (indexed !== '60') latest = await coin();
    expect(latest).toEqual([count + 1, symbol]);
    await clickhouse.close();
  });
});
