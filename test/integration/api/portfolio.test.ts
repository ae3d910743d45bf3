import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

import { inTransaction } from '../../../infra/postgres/client.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { latestPrices } from '../../../projections/latest-prices/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { ALICE, BOB, CAROL, COIN, MAX, NFT, writeSmallChain } from '../../support/small-chain.ts';
import { messagesOf } from '../../support/topic.ts';

/**
 * The routes of portfolios over HTTP on a small chain that is indexed at heights 10, 11 and 40 only, with balances that
 * were read from it and a price; nobody observes, so what is not known stays so.
 */

let world: ApiWorld;
let apiKey = '';
/** The time of height 40. */
const HEAD_TIME = '2023-11-14T22:15:00.000Z';

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey } = await writeSmallChain(world));
  const builds = await servedBuilds(world.pool);
  const meta = { partition: 0, offset: 0, timestamp: 0 };
  const seen = (account: Felt, token: Felt, block: number, balance: bigint) => ({
    type: 'balance.observed',
    v: 1,
    account,
    token,
    balance: balance.toString(),
    block,
    block_hash: toFelt(0xb10c_0000n + BigInt(block)),
    observed_at: Date.now(),
    requested_at: Date.now(),
    l1_height: null,
  });
  await inTransaction(world.pool, async (tx) => {
    for (const message of [
      seen(BOB, NFT, 40, 3n),
      seen(CAROL, NFT, 40, MAX),
      seen(ALICE, COIN, 11, 12n), // and heights 12 to 39 are not indexed
    ]) {
      const parsed = balances.topic.schema.parse(message);
      await balances.fold(tx, parsed, { ...meta, schema: builds.schema('balances') });
    }
    const price = latestPrices.topic.schema.parse({
      type: 'price.observed',
      v: 1,
      token: NFT,
      price: '0.1',
      source: 'test',
      confidence: null,
      observed_at: Date.now() - 1000,
    });
    await latestPrices.fold(tx, price, { ...meta, schema: builds.schema('latest-prices') });
    const listed = tokens.topic.schema.parse({
      type: 'token.listed',
      v: 1,
      token: NFT,
      public: true,
      hidden: true,
      observed_at: 3,
    });
    await tokens.fold(tx, listed, { ...meta, offset: 100, schema: builds.schema('tokens') });
  });
});
afterAll(() => world.close());

const get = (path: string, headers: Record<string, string> = { 'api-key': apiKey }): Promise<Answer> =>
  world.call('GET', path, { headers });
const queryOf = (query: Record<string, string>): string => new URLSearchParams(query).toString();
const portfolio = (query: Record<string, string>): Promise<Answer> =>
  get(`/api/portfolio/?${queryOf(query)}`);
const history = (query: Record<string, string>): Promise<Answer> =>
  get(`/api/portfolio-history/?${queryOf(query)}`);

const WRONG_ADDRESS = 'Enter a valid address (0x and up to 64 hex digits).';
const WRONG_TIME =
  'Datetime has wrong format. Use one of these formats instead: YYYY-MM-DDThh:mm[:ss[.uuuuuu]][+HH:MM|-HH:MM|Z].';
const REQUIRED = 'This field is required.';

/** What is asked of a wrong query: 400, and each wrong field named with its reason. */
async function expectRefused(answer: Promise<Answer>, errors: Record<string, string>): Promise<void> {
  const { status, json } = await answer;
  expect([status, json.success, json.errors]).toEqual([
    400,
    false,
    Object.fromEntries(Object.entries(errors).map(([field, text]) => [field, [text]])),
  ]);
}

describe('GET /api/portfolio/', () => {
  const crabs = {
    token_address: NFT,
    balance: '3',
    // As floats three times 0.1 is more.
    balance_usd: 0.3,
    token_price_usd: 0.1,
    symbol: 'CRAB',
    name: 'Crabs',
    logo: 'https://example.org/a.png',
    decimals: 0,
    is_erc20: false,
    is_erc721: true,
    is_erc1155: false,
    verified: true,
    common: true,
    public: true,
    is_hidden: true,
  };

  it('returns current balances and values, for any form of the address', async () => {
    const before = Date.now();
    const { status, json } = await portfolio({ account_address: '0xB0B' });
    expect([status, json]).toEqual([
      200,
      {
        success: true,
        data: {
          account_address: BOB,
          as_of: expect.any(String),
          total_usd: 0.3,
          tracked_total_usd: 0.3,
          holdings_count: 1,
          untracked_count: 0,
          holdings: [crabs],
        },
        // COIN was never read and MULTI cannot be, and the index begins in the middle.
        complete: false,
      },
    ]);
    expect(Date.parse(json.data.as_of)).toBeGreaterThanOrEqual(before);
    const future = await portfolio({ account_address: BOB, at_time: '2999-01-01' });
    expect(Date.parse(future.json.data.as_of)).toBeLessThanOrEqual(Date.now());
    expect({ ...future.json.data, as_of: '' }).toEqual({ ...json.data, as_of: '' });
  });

  it('returns the balances after the newest block at or before a time, without later prices', async () => {
    for (const at_time of [HEAD_TIME, '2023-11-15T00:15+02:00', '2023-11-14 22:15:00.9']) {
      const { status, json } = await portfolio({ account_address: BOB, at_time });
      expect([status, json.data, json.complete]).toEqual([
        200,
        {
          account_address: BOB,
          as_of: at_time.endsWith('.9') ? HEAD_TIME.replace('.000', '.900') : HEAD_TIME,
          total_usd: 0,
          tracked_total_usd: 0,
          holdings_count: 1,
          untracked_count: 1,
          holdings: [{ ...crabs, balance_usd: null, token_price_usd: null }],
        },
        false,
      ]);
    }
  });

  it('returns nothing for times whose blocks may be missing', async () => {
    // Before the first indexed block, at the last before a gap, and in the gap.
    for (const at_time of [
      '2023-11-14T22:13:29Z',
      '2023-11-14T22:13:32Z',
      '2023-11-14T22:14:59.999Z',
      '0001-01-01',
    ]) {
      for (const account of [ALICE, BOB]) {
        const { status, json } = await portfolio({ account_address: account, at_time });
        expect([status, json.data.holdings, json.data.holdings_count, json.complete]).toEqual([
          200,
          [],
          0,
          false,
        ]);
      }
    }
    // Between two blocks that are both indexed it may, but the run does not begin at the first.
    const { json } = await portfolio({ account_address: ALICE, at_time: '2023-11-14T22:13:31Z' });
    expect([json.data.holdings, json.complete]).toEqual([[], false]);
  });

  it('requests balances from the chain that can be read there, and no others', async () => {
    const askedFor = async (): Promise<Set<string>> => {
      const found = new Set<string>();
      for (const message of await messagesOf(world.kafka, topics.requests))
        if (message.type === 'balance.requested') found.add(`${message.account} ${message.token}`);
      return found;
    };
    await portfolio({ account_address: ALICE, at_time: '2023-11-14T22:13:31Z' });
    await portfolio({ account_address: CAROL });
    await portfolio({ account_address: BOB, at_time: HEAD_TIME });
    // ALICE was asked about at a time that no read of now leads back to, and nobody can read MULTI.
    await vi.waitFor(async () => expect([...(await askedFor())]).toEqual([`${BOB} ${COIN}`]), 30_000);
    await portfolio({ account_address: ALICE });
    await vi.waitFor(async () => expect(await askedFor()).toContain(`${ALICE} ${COIN}`), 30_000);
  });

  it('of an account that is not indexed is empty', async () => {
    const { status, json } = await portfolio({ account_address: '0x5ca1ab1e' });
    expect([status, json.data.total_usd, json.data.holdings, json.complete]).toEqual([200, 0, [], false]);
  });

  it.each([
    [{}, { account_address: REQUIRED }],
    [{ account_address: '' }, { account_address: REQUIRED }],
    [{ account_address: 'bob' }, { account_address: WRONG_ADDRESS }],
    [{ account_address: '0x' }, { account_address: WRONG_ADDRESS }],
    [{ account_address: `0x${'f'.repeat(64)}` }, { account_address: WRONG_ADDRESS }],
    [{ account_address: BOB, at_time: 'yesterday' }, { at_time: WRONG_TIME }],
    [{ account_address: BOB, at_time: '1700000000' }, { at_time: WRONG_TIME }],
    [{ account_address: BOB, at_time: '2023-02-29' }, { at_time: WRONG_TIME }],
    [{ at_time: '2023-13-01' }, { account_address: REQUIRED, at_time: WRONG_TIME }],
  ] as [Record<string, string>, Record<string, string>][])('refuses %o', async (query, errors) => {
    await expectRefused(portfolio(query), errors);
  });

  it('treats empty parameters as absent, and ignores unknown ones', async () => {
    const { status, json } = await portfolio({ account_address: BOB, at_time: '', colour: 'red' });
    expect([status, json.data.total_usd]).toEqual([200, 0.3]);
  });
});

describe('GET /api/portfolio-history/', () => {
  const EVENING = { start_time: '2023-11-14T21:00:00Z', end_time: '2023-11-15T01:59:59Z' };

  it('returns a point for each boundary from which the balances are known', async () => {
    const { status, json } = await history({ account_address: CAROL, ...EVENING });
    const point = { total_usd: 0, tracked_total_usd: 0, holdings_count: 1, untracked_count: 1 };
    expect([status, json]).toEqual([
      200,
      {
        success: true,
        count: 3,
        account_address: CAROL,
        interval: '1 hour',
        start_time: '2023-11-14T21:00:00.000Z',
        end_time: '2023-11-15T01:59:59.000Z',
        data: [
          { timestamp: '2023-11-14T23:00:00.000Z', ...point },
          { timestamp: '2023-11-15T00:00:00.000Z', ...point },
          { timestamp: '2023-11-15T01:00:00.000Z', ...point },
        ],
        complete: false,
        complete_from: '2023-11-14T23:00:00.000Z',
      },
    ]);
    const csv = await history({ account_address: CAROL, ...EVENING, format: 'csv' });
    expect(csv.text.split('\n').slice(0, 2)).toEqual([
      Object.keys(json.data[0]).join(','),
      '2023-11-14T23:00:00.000Z,0,0,1,1',
    ]);
    expect([csv.headers.get('x-complete'), csv.headers.get('x-complete-from')]).toEqual([
      'false',
      '2023-11-14T23:00:00.000Z',
    ]);
    const days = await history({ account_address: CAROL, ...EVENING, interval: '1 day' });
    expect(days.json.data.map(({ timestamp }: { timestamp: string }) => timestamp)).toEqual([
      '2023-11-15T00:00:00.000Z',
    ]);
    expect('complete_from' in days.json).toBe(false);
  });

  it('returns no point while a balance can still be read', async () => {
    const { status, json } = await history({ account_address: BOB, ...EVENING });
    expect([status, json.data, json.count, json.complete_from]).toEqual([200, [], 0, null]);
  });

  it('has no points in the future or without a boundary', async () => {
    for (const times of [
      { start_time: '2998-01-01', end_time: '2999-01-01' },
      { start_time: '2023-11-14T23:00:00.001Z', end_time: '2023-11-14T23:59:59Z' },
    ]) {
      const { status, json } = await history({ account_address: CAROL, ...times });
      expect([status, json.data, 'complete_from' in json]).toEqual([200, [], false]);
    }
    const now = await history({
      account_address: CAROL,
      start_time: new Date(Date.now() - 7_200_000).toISOString(),
    });
    // Three where an hour begins meanwhile.
    expect([2, 3]).toContain(now.json.count);
    expect(Date.parse(now.json.end_time)).toBeLessThanOrEqual(Date.now());
  });

  it('has at most 5,000 points', async () => {
    const at = (hours: number): string =>
      new Date(Date.parse('2024-01-01') + hours * 3_600_000).toISOString();
    const most = await history({ account_address: CAROL, start_time: at(0), end_time: at(4999) });
    expect([most.status, most.json.count, most.json.next_start_time]).toEqual([200, 5000, undefined]);
    const more = await history({ account_address: CAROL, start_time: at(0), end_time: at(5000) });
    expect([more.json.count, more.json.next_start_time]).toEqual([5000, at(5000)]);
    const rest = await history({
      account_address: CAROL,
      start_time: more.json.next_start_time,
      end_time: at(5000),
    });
    expect([
      rest.json.data.map(({ timestamp }: { timestamp: string }) => timestamp),
      rest.json.next_start_time,
    ]).toEqual([[at(5000)], undefined]);
    for (const interval of ['1 hour', '1 month']) {
      const all = await history({
        account_address: CAROL,
        start_time: '0001-01-01',
        end_time: '9999-12-31',
        interval,
      });
      expect([all.status, typeof all.json.next_start_time]).toEqual([200, 'string']);
    }
  });

  const known = { account_address: CAROL, start_time: '2024-01-01' };
  const INTERVALS = 'Must be one of: 1 hour, 1 day, 1 week, 1 month.';
  it.each([
    [{}, { account_address: REQUIRED, start_time: REQUIRED }],
    [{ account_address: CAROL }, { start_time: REQUIRED }],
    [{ ...known, account_address: '0xg' }, { account_address: WRONG_ADDRESS }],
    [{ ...known, start_time: '01.01.2024' }, { start_time: WRONG_TIME }],
    [{ ...known, end_time: 'now' }, { end_time: WRONG_TIME }],
    [{ ...known, end_time: '2023-12-31T23:59:59Z' }, { start_time: 'Must not be later than end_time.' }],
    [{ ...known, interval: '15 minutes' }, { interval: INTERVALS }],
    [{ ...known, interval: '1 Hour' }, { interval: INTERVALS }],
    [{ ...known, interval: '1hour' }, { interval: INTERVALS }],
  ] as [Record<string, string>, Record<string, string>][])('refuses %o', async (query, errors) => {
    await expectRefused(history(query), errors);
  });

  it('treats empty parameters as absent', async () => {
    const { status, json } = await history({
      ...known,
      end_time: '',
      start_time: new Date().toISOString(),
      interval: '',
    });
    expect([status, json.interval]).toEqual([200, '1 hour']);
  });
});

it('requires a key', async () => {
  const { token } = await world.makeUser('asker');
  for (const path of [
    `/api/portfolio/?account_address=${BOB}`,
    `/api/portfolio-history/?account_address=${BOB}&start_time=2026-01-01&interval=1+month`,
  ]) {
    expect((await get(path, {})).status).toBe(401);
    expect((await get(path, { authorization: `Bearer ${token}` })).status).toBe(401);
    expect((await get(path)).status).toBe(200);
  }
});
