import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { unmovedBalances } from '../../../projections/unmoved-balances/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import {
  ALICE,
  BOB,
  CAROL,
  COIN,
  MAX,
  MULTI,
  NAMELESS,
  NFT,
  ODD,
  writeSmallChain,
} from '../../support/small-chain.ts';

/**
 * The routes of balances over HTTP on a small chain that is indexed at heights 10, 11 and 40 only, with balances that were
 * read from it; nobody observes, so what is too old stays so.
 */

let world: ApiWorld;
let apiKey = '';
let observedAt = 0;
const blockHash = (height: number): Felt => toFelt(0xb10c_0000n + BigInt(height));
const OLD_MS = 4_000_000;

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey } = await writeSmallChain(world));
  observedAt = Date.now();
  const schema = (await servedBuilds(world.pool)).schema('balances');
  const read = (account: Felt, token: Felt, block: number, fields: object) => ({
    v: 1 as const,
    account,
    token,
    block,
    block_hash: blockHash(block),
    observed_at: observedAt,
    requested_at: observedAt,
    l1_height: null,
    ...fields,
  });
  const seen = (account: Felt, token: Felt, block: number, balance: bigint, fields: object = {}) =>
    read(account, token, block, { type: 'balance.observed', balance: balance.toString(), ...fields });
  const described = tokens.topic.schema.parse({
    type: 'token.described',
    v: 1,
    token: ODD,
    standard: 'unknown',
    class_hash: null,
    name: null,
    symbol: null,
    decimals: null,
    block: 40,
    observed_at: 1,
  });
  await inTransaction(world.pool, async (tx) => {
    const schemaOfTokens = (await servedBuilds(world.pool)).schema('tokens');
    await tokens.fold(tx, described, { partition: 0, offset: 999, timestamp: 0, schema: schemaOfTokens });
    for (const message of [
      seen(BOB, NFT, 40, 3n),
      seen(CAROL, NFT, 40, MAX),
      seen(ALICE, COIN, 11, 12n, { observed_at: observedAt - OLD_MS }), // and heights 12 to 39 are not indexed
      seen(BOB, ODD, 40, 5n),
      seen(BOB, MULTI, 40, 9n), // an ERC-1155 tells no such thing
      seen(CAROL, COIN, 40, 8n, { block_hash: blockHash(41) }), // another block is there
      read(ALICE, NFT, 40, { type: 'balance.refused', reason: 'Entry point not found' }),
    ]) {
      const parsed = balances.topic.schema.parse(message);
      await balances.fold(tx, parsed, { partition: 0, offset: 0, timestamp: 0, schema });
    }
    const unmoved = unmovedBalances.topic.schema.parse(seen(BOB, NAMELESS, 40, 0n));
    const schemaOfUnmoved = (await servedBuilds(world.pool)).schema('unmoved-balances');
    await unmovedBalances.fold(tx, unmoved, {
      partition: 0,
      offset: 0,
      timestamp: 0,
      schema: schemaOfUnmoved,
    });
  });
});
afterAll(() => world.close());

const get = (path: string, headers: Record<string, string> = { 'api-key': apiKey }): Promise<Answer> =>
  world.call('GET', path, { headers });
const one = (query: Record<string, string>): Promise<Answer> =>
  get(`/api/balance/?${new URLSearchParams(query).toString()}`);
const many = (json: unknown): Promise<Answer> =>
  world.call('POST', '/api/balances/', { headers: { 'api-key': apiKey }, json });
const history = (query: Record<string, string>): Promise<Answer> =>
  get(`/api/balance-history/?${new URLSearchParams(query).toString()}`);

const BOB_NFT = { account_address: BOB, token_address: NFT };

describe('GET /api/balance/', () => {
  it('returns the balance for any form of the addresses', async () => {
    const { status, json } = await one({ account_address: '0xB0B', token_address: '0x0aF7' });
    expect([status, json]).toEqual([
      200,
      {
        success: true,
        data: { ...BOB_NFT, balance: '3', balance_usd: 0, last_updated: new Date(observedAt).toISOString() },
      },
    ]);
    const largest = await one({ account_address: CAROL, token_address: NFT });
    expect(largest.json.data.balance).toBe(MAX.toString());
    expect((await one({ account_address: BOB, token_address: ODD })).json.data.balance).toBe('5');
  });

  it('is an error if the balance is unknown', async () => {
    const refused = await one({ account_address: ALICE, token_address: NFT });
    expect([refused.status, refused.json.errors]).toEqual([
      400,
      { token_address: ['The contract returned no balance: Entry point not found'] },
    ]);
    const items = await one({ account_address: BOB, token_address: MULTI });
    expect([items.status, items.json.code, items.headers.get('retry-after')]).toEqual([
      503,
      'balance_unknown',
      '5',
    ]);
    // Tokens are made of the zero address, and no chain is asked for those of an ERC-1155: waiting would not help.
    const maker = await one({ account_address: '0x0', token_address: MULTI });
    expect([maker.status, Object.keys(maker.json.errors)]).toEqual([400, ['account_address']]);
    // Read at a block that is not there, and beyond a gap: neither leads to now, and nobody reads it anew.
    const [orphaned, apart] = await Promise.all([
      one({ account_address: CAROL, token_address: COIN }),
      one({ account_address: ALICE, token_address: COIN }),
    ]);
    for (const { status, json } of [orphaned, apart]) {
      expect([status, json.success, json.code]).toEqual([503, false, 'balance_unknown']);
    }
  });

  it('is based on a read of the chain that is kept, as of a block', async () => {
    const asOf = { as_of_block: '40' };
    expect((await one({ ...BOB_NFT, ...asOf })).json.data.balance).toBe('3');
    // The next read of a pair that nothing moved replaces this one.
    const unmoved = { account_address: BOB, token_address: NAMELESS };
    expect((await one(unmoved)).json.data.balance).toBe('0');
    expect((await one({ ...unmoved, ...asOf })).status).toBe(404);
  });

  it('returns the last balance as stale if the chain cannot be read', async () => {
    const { status, json } = await one({ ...BOB_NFT, force_refresh: 'yes' });
    expect([status, json.data]).toMatchObject([200, { balance: '3', stale: true }]);
  });

  const wrong = 'Enter a valid address (0x and up to 64 hex digits).';
  it.each([
    [{}, { account_address: 'This field is required.', token_address: 'This field is required.' }],
    [{ account_address: '', token_address: NFT }, { account_address: 'This field is required.' }],
    [{ account_address: 'b0b', token_address: NFT }, { account_address: wrong }],
    [{ account_address: `0x${'f'.repeat(64)}`, token_address: NFT }, { account_address: wrong }],
    [{ ...BOB_NFT, token_address: '0x' }, { token_address: wrong }],
    [{ ...BOB_NFT, force_refresh: 'perhaps' }, { force_refresh: 'Must be a valid boolean.' }],
    [{ ...BOB_NFT, max_age: '-1' }, { max_age: 'Ensure this value is greater than or equal to 0.' }],
    [{ ...BOB_NFT, max_age: '1.5' }, { max_age: 'A valid integer is required.' }],
    [
      { ...BOB_NFT, max_age: '9'.repeat(30) },
      { max_age: 'Ensure this value is less than or equal to 4294967295.' },
    ],
  ] as [Record<string, string>, Record<string, string>][])('refuses %o', async (query, errors) => {
    const { status, json } = await one(query);
    expect([status, json.errors]).toEqual([
      400,
      Object.fromEntries(Object.entries(errors).map(([field, text]) => [field, [text]])),
    ]);
  });

  it('treats empty parameters as absent, and ignores unknown ones', async () => {
    expect((await one({ ...BOB_NFT, max_age: '', force_refresh: '', colour: 'red' })).status).toBe(200);
    expect((await one({ ...BOB_NFT, max_age: '4294967295', force_refresh: 'F' })).status).toBe(200);
  });
});

describe('POST /api/balances/', () => {
  it('answers each pair in request order, and lists those that fail', async () => {
    const pairs = [
      BOB_NFT,
      { account_address: '0xa11ce', token_address: '0xaf7' },
      { account_address: 'nobody', token_address: NFT },
      { account_address: CAROL, token_address: NFT },
      BOB_NFT,
    ];
    const { status, json } = await many({ balances: pairs });
    expect(status).toBe(200);
    expect(json.data.map((row: { balance: string }) => row.balance)).toEqual(['3', MAX.toString(), '3']);
    expect(json.errors).toEqual([
      { ...pairs[1], error: 'token_address: The contract returned no balance: Entry point not found' },
      { ...pairs[2], error: 'account_address: Enter a valid address (0x and up to 64 hex digits).' },
    ]);
    expect((await many({ balances: [BOB_NFT] })).json.errors).toBe(null);
  });

  const item = (fields: object) => ({ balances: [{ ...BOB_NFT, ...fields }] });
  it.each([
    [{}, 'balances'],
    [{ balances: null }, 'balances'],
    [{ balances: {} }, 'balances'],
    [{ balances: [] }, 'balances'],
    [{ balances: Array.from({ length: 21 }, () => BOB_NFT) }, 'balances'],
    [{ balances: ['0x1'] }, 'balances'],
    [{ balances: [{ account_address: BOB }] }, 'balances'],
    [item({ account_address: 11 }), 'balances'],
    [item({ token_address: null }), 'balances'],
    [{ balances: [BOB_NFT], max_age: '300' }, 'max_age'],
    [{ balances: [BOB_NFT], max_age: -1 }, 'max_age'],
    [{ balances: [BOB_NFT], max_age: 0.5 }, 'max_age'],
    [{ balances: [BOB_NFT], force_refresh: 'true' }, 'force_refresh'],
    [[], 'non_field_errors'],
    ['x', 'non_field_errors'],
  ])('refuses %j', async (body, field) => {
    const { status, json } = await many(body);
    expect([status, Object.keys(json.errors)]).toEqual([400, [field]]);
  });

  it('accepts twenty pairs', async () => {
    const { status, json } = await many({
      balances: Array.from({ length: 20 }, () => BOB_NFT),
      max_age: 300,
    });
    expect([status, json.data.length]).toEqual([200, 20]);
  });

  it('requires JSON', async () => {
    const headers = { 'api-key': apiKey, 'content-type': 'text/plain' };
    expect((await world.call('POST', '/api/balances/', { headers, body: 'x' })).status).toBe(415);
    const json = { ...headers, 'content-type': 'application/json' };
    expect((await world.call('POST', '/api/balances/', { headers: json, body: '{' })).status).toBe(400);
  });
});

describe('GET /api/account-balances/', () => {
  it('lists known balances, and that they are incomplete', async () => {
    const { status, json } = await get('/api/account-balances/?account_address=0xB0B');
    expect(status).toBe(200);
    // COIN was never read and MULTI cannot be, and the index begins in the middle; ODD cannot be told.
    expect(json).toEqual({
      success: true,
      count: 1,
      complete: false,
      data: [
        {
          id: expect.any(Number),
          account: { address: BOB },
          token: {
            address: NFT,
            symbol: 'CRAB',
            name: 'Crabs',
            decimals: 0,
            current_price_usd: null,
            logo: 'https://example.org/a.png',
          },
          balance: '3',
          balance_usd: '0',
          last_updated: new Date(observedAt).toISOString(),
        },
      ],
    });
    const again = await get(`/api/account-balances/?account_address=${BOB}&max_age=0`);
    expect(again.json.data[0].id).toBe(json.data[0].id);
    expect(json.data[0].id).toBeLessThan(2 ** 52);
  });

  it('is empty for an account that is not indexed', async () => {
    const { status, json } = await get('/api/account-balances/?account_address=0x5ca1ab1e');
    expect([status, json.count, json.data]).toEqual([200, 0, []]);
  });

  it.each([
    '',
    '?account_address=',
    '?account_address=bob',
    `?account_address=${BOB}&max_age=x`,
    `?account_address=${BOB}&force_refresh=2`,
  ])('refuses %s', async (query) => {
    expect((await get(`/api/account-balances/${query}`)).status).toBe(400);
  });
});

describe('GET /api/balance-history/', () => {
  it('returns a row per transfer with the balance after it, oldest first, as far as known', async () => {
    const query = { ...BOB_NFT, start_time: '2023-01-01', end_time: '2023-11-15T00:00:00Z' };
    const { status, json } = await history(query);
    expect([status, json]).toEqual([
      200,
      {
        success: true,
        data: [
          {
            time: '2023-11-14T22:15:00Z',
            block_number: 40,
            event_index: 1,
            balance: '3',
            token_price_usd: null,
            balance_usd: null,
          },
        ],
        count: 1,
        ...BOB_NFT,
        start_time: '2023-01-01T00:00:00.000Z',
        end_time: '2023-11-15T00:00:00.000Z',
        complete_from: '2023-11-14T22:15:00Z',
      },
    ]);
    const from = await history({ ...query, start_time: '2023-11-14T22:15:00Z' });
    expect(from.json.count).toBe(1);
    const after = await history({ ...BOB_NFT, start_time: '2023-11-14T22:15:01Z' });
    expect([after.status, after.json.data, 'complete_from' in after.json]).toEqual([200, [], false]);
    const before = await history({ ...query, end_time: '2023-11-14T22:14:59Z' });
    expect([before.json.data, before.json.complete_from]).toEqual([[], '2023-11-14T22:15:00Z']);
  });

  it('is sent as CSV, with the fields that are no rows in headers', async () => {
    const query = { ...BOB_NFT, start_time: '2023-01-01', end_time: '2023-11-15T00:00:00Z', format: 'csv' };
    const answer = await history(query);
    expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(answer.headers.get('x-complete-from')).toBe('2023-11-14T22:15:00Z');
    expect(answer.text).toBe(
      'time,block_number,event_index,balance,token_price_usd,balance_usd\n2023-11-14T22:15:00Z,40,1,3,,\n',
    );
    expect((await history({ ...query, format: 'xml' })).status).toBe(400);
  });

  it('ends where the events sum to less than zero', async () => {
    const { json } = await history({ account_address: CAROL, token_address: NFT, start_time: '2023-01-01' });
    expect(json.data.map((row: { balance: string }) => row.balance)).toEqual([MAX.toString()]);
    const odd = await history({ account_address: BOB, token_address: ODD, start_time: '2023-01-01' });
    expect([odd.status, odd.json.data, odd.json.complete_from]).toEqual([200, [], null]);
    const items = await history({ account_address: BOB, token_address: MULTI, start_time: '2023-01-01' });
    expect([items.status, items.json.data, items.json.complete_from]).toEqual([200, [], null]);
  });

  it.each([
    [{}, ['account_address', 'start_time', 'token_address']],
    [{ ...BOB_NFT }, ['start_time']],
    [{ ...BOB_NFT, start_time: 'yesterday' }, ['start_time']],
    [{ ...BOB_NFT, start_time: '2023-01-01', end_time: '1' }, ['end_time']],
    [{ ...BOB_NFT, start_time: '2023-01-02', end_time: '2023-01-01' }, ['start_time']],
    [{ ...BOB_NFT, token_address: 'x', start_time: '2023-01-02' }, ['token_address']],
  ])('refuses %o', async (query, fields) => {
    const { status, json } = await history(query);
    expect([status, Object.keys(json.errors).toSorted()]).toEqual([400, fields]);
  });

  it('accepts the earliest and latest times', async () => {
    for (const [start_time, end_time] of [
      ['0001-01-01', '0001-01-02'],
      ['9999-12-31', '9999-12-31T23:59:59Z'],
      ['0001-01-01', '9999-12-31'],
    ] as const) {
      expect((await history({ ...BOB_NFT, start_time, end_time })).status).toBe(200);
    }
  });
});

describe('access and limits of balances', () => {
  it('requires a key or a session; the history a key', async () => {
    const { token } = await world.makeUser('asker');
    const path = `/api/balance/?${new URLSearchParams(BOB_NFT).toString()}`;
    expect((await get(path, {})).status).toBe(401);
    expect((await get(path, { authorization: `Bearer ${token}` })).status).toBe(200);
    const past = `/api/balance-history/?${new URLSearchParams({ ...BOB_NFT, start_time: '2023-01-01' }).toString()}`;
    expect((await get(past, { authorization: `Bearer ${token}` })).status).toBe(401);
  });

  it('allows a session 30, 10 and 10 calls a minute, and a key any number', async () => {
    const { token } = await world.makeUser('eager');
    const bearer = { authorization: `Bearer ${token}` };
    const pair = new URLSearchParams(BOB_NFT).toString();
    const limits: [number, (headers: Record<string, string>) => Promise<Answer>][] = [
      [30, (headers) => get(`/api/balance/?${pair}`, headers)],
      [10, (headers) => world.call('POST', '/api/balances/', { headers, json: { balances: [BOB_NFT] } })],
      [10, (headers) => get(`/api/account-balances/?account_address=${BOB}`, headers)],
    ];
    for (const [limit, ask] of limits) {
      for (let i = 0; i < limit; i += 1) expect((await ask(bearer)).status).toBe(200);
      const { status, headers, json } = await ask(bearer);
      expect([status, json.code]).toEqual([429, 'throttled']);
      const wait = Number(headers.get('retry-after'));
      expect(Number.isInteger(wait) && wait >= 1 && wait <= 60).toBe(true);
      expect((await ask({ 'api-key': apiKey })).status).toBe(200);
    }
  });
});
