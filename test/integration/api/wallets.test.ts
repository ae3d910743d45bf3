import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { toFelt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { aWallet, importRecords } from '../../support/catalogue.ts';
import { openApiChecker } from '../../support/openapi.ts';
import type { Complaints } from '../../support/openapi.ts';

/** Wallets through HTTP, on the real log, projector and stores. */

const WALLETS = '/api/dapps/vendor-wallets/';
const LOOKUP = '/api/dapps/vendor-wallet-lookup/';

let world: ApiWorld;
let complaints: Complaints;
const keys: string[] = [];

beforeAll(async () => {
  // A busy machine is no reason for a 503.
  world = await apiWorld({ COMMAND_TIMEOUT_MS: '30000' });
  complaints = await openApiChecker(world);
  for (const username of ['alice', 'bob']) {
    const { token } = await world.makeUser(username);
    const made = await world.call('POST', '/api/users/auth/create-api-key/', { token, json: { name: 'k' } });
    keys.push(made.json.key);
  }
});
afterAll(async () => await world?.close());

/** A call whose answer must be as the OpenAPI document says. */
async function call(method: string, path: string, json?: unknown, key = keys[0]): Promise<Answer> {
  const answer = await world.call(method, path, {
    headers: { 'api-key': key ?? '' },
    ...(json === undefined ? {} : { json }),
  });
  expect(complaints(method, path, answer)).toEqual([]);
  return answer;
}
const get = async (path: string): Promise<Answer['json']> => (await call('GET', path)).json;
let addresses = 0x1000n;
const newAddress = (): string => toFelt((addresses += 1n));
const register = async (more: object = {}, key?: string): Promise<Answer> =>
  await call(
    'POST',
    WALLETS,
    { wallet_address: newAddress(), network: 'mainnet', wallet_type: 'braavos', ...more },
    key,
  );
const update = async (id: number, count: unknown, at: unknown): Promise<Answer> =>
  await call('POST', `${WALLETS}${id}/update_activity/`, { transaction_count: count, last_activity_at: at });

describe('a wallet', () => {
  it('is registered once per network, for any caller and spelling of the address', async () => {
    const asked = { wallet_address: '0xABCDEF', network: 'Mainnet', wallet_type: ' Argent X ' };
    const first = await register(asked);
    expect(first.status).toBe(201);
    expect(first.json).toEqual({
      id: expect.any(Number),
      wallet_address: toFelt(0xabcdefn),
      network: 'mainnet',
      wallet_type: 'Argent X',
      status: 'active',
      is_verified: false,
      is_active: true,
      transaction_count: 0,
      last_activity_at: null,
      created_at: expect.stringMatching(/Z$/),
      updated_at: first.json.created_at,
    });
    const again = await register({ ...asked, wallet_address: '0x00abcdef', wallet_type: 'other' }, keys[1]);
    expect([again.status, again.json]).toEqual([200, first.json]);
    const elsewhere = await register({ ...asked, network: 'sepolia' });
    expect([elsewhere.status, elsewhere.json.id > first.json.id]).toEqual([201, true]);
    expect(await get(`${WALLETS}${first.json.id}/`)).toEqual(first.json);
    expect((await call('GET', `${WALLETS}999999/`)).status).toBe(404);
  });

  it('is created once by concurrent registrations', async () => {
    const wallet_address = newAddress();
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, i) => register({ wallet_address, wallet_type: `t${i}` }, keys[i % 2])),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([
      ...Array(11).fill(200),
      201,
    ]);
    const made = answers.find(({ status }) => status === 201);
    for (const { json } of answers) expect(json).toEqual(made?.json);
    expect(await get(`${WALLETS}?wallet_address=${wallet_address}`)).toMatchObject({ count: 1 });
  });

  it('gets the first answer for a repeat with an Idempotency-Key', async () => {
    const json = { wallet_address: newAddress(), network: 'mainnet', wallet_type: 'x' };
    const headers = { 'api-key': keys[0] ?? '', 'Idempotency-Key': 'wallet' };
    for (let i = 0; i < 2; i += 1)
      expect((await world.call('POST', WALLETS, { headers, json })).status).toBe(201);
    const other = { ...json, wallet_type: 'y' };
    expect((await world.call('POST', WALLETS, { headers, json: other })).status).toBe(422);
  });

  it('is rejected with an invalid field', async () => {
    const wrong = async (more: object): Promise<unknown> =>
      Object.keys((await register(more)).json.errors ?? {});
    for (const wallet_address of [undefined, '0x', 'abc', `0x${'f'.repeat(64)}`, 7])
      expect(await wrong({ wallet_address })).toEqual(['wallet_address']);
    for (const network of [undefined, '', 'main net', 'ü', 'a'.repeat(101), null])
      expect(await wrong({ network })).toEqual(['network']);
    for (const wallet_type of [undefined, ' ', 'a'.repeat(101), 'a\0', '\ud800'])
      expect(await wrong({ wallet_type })).toEqual(['wallet_type']);
  });
});

describe('activity', () => {
  it('never decreases a counter, for any caller and order', async () => {
    const telling = fc.record({
      count: fc.oneof(fc.nat({ max: 5 }), fc.constant(Number.MAX_SAFE_INTEGER)),
      at: fc.integer({ min: 0, max: 5 }).map((day) => Date.UTC(2026, 0, 1 + day)),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(telling, { minLength: 1, maxLength: 6 }), async (tellings) => {
        const { json: made } = await register();
        let highest = 0;
        let latest = 0;
        for (const { count, at } of tellings) {
          const { status, json } = await update(made.id, count, new Date(at).toISOString());
          [highest, latest] = [Math.max(highest, count), Math.max(latest, at)];
          expect([status, json.transaction_count, Date.parse(json.last_activity_at)]).toEqual([
            200,
            highest,
            latest,
          ]);
        }
        expect(await get(`${WALLETS}${made.id}/`)).toMatchObject({ transaction_count: highest });
        const { json: last } = await register({ wallet_address: made.wallet_address });
        expect(last.transaction_count).toBe(highest);
      }),
      { numRuns: 8 },
    );
  });

  it('that changes nothing keeps updated_at', async () => {
    const { json: made } = await register();
    const { json: first } = await update(made.id, 3, '2026-01-02T03:04:05Z');
    expect(first).toMatchObject({ transaction_count: 3, last_activity_at: '2026-01-02T03:04:05.000Z' });
    expect((await update(made.id, 2, '2026-01-02T01:04:05-01:00')).json).toEqual(first);
  });

  it('in the future or invalid is rejected', async () => {
    const { json: made } = await register();
    const wrong = async (count: unknown, at: unknown): Promise<unknown> => {
      const { status, json } = await update(made.id, count, at);
      return status === 400 ? Object.keys(json.errors) : status;
    };
    const fromNow = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString();
    expect(await wrong(1, fromNow(10))).toEqual(['last_activity_at']);
    expect(await wrong(1, '9999-01-01T00:00:00Z')).toEqual(['last_activity_at']);
    expect(await wrong(1, '1969-12-31T23:59:59Z')).toEqual(['last_activity_at']);
    expect(await wrong(1, undefined)).toEqual(['last_activity_at']);
    expect(await wrong(-1, fromNow(0))).toEqual(['transaction_count']);
    expect(await wrong(1.5, fromNow(0))).toEqual(['transaction_count']);
    expect(await wrong('1', fromNow(0))).toEqual(['transaction_count']);
    expect(await wrong(2 ** 53, fromNow(0))).toEqual(['transaction_count']);
    // Clocks differ.
    expect(await wrong(1, fromNow(1))).toBe(200);
    expect((await update(999_999, 1, fromNow(0))).status).toBe(404);
  });
});

describe('the registry', () => {
  const wallet = (network: string, more: Parameters<typeof aWallet>[1] = {}) =>
    aWallet((addresses += 1n), { network, ...more });

  it('is filtered by every field, in the order of registration', async () => {
    const all = [
      wallet('filters'),
      wallet('filters', { wallet_type: 'Ready', is_verified: true }),
      wallet('filters', { status: 'suspended', is_active: false }),
      wallet('other-filters'),
    ];
    await importRecords(world, { wallets: all });
    const of = async (query: string): Promise<number[]> =>
      (await get(`${WALLETS}?network=filters&${query}`)).results.map(
        ({ wallet_address: address }: Answer['json']) =>
          all.findIndex((one) => one.wallet_address === address),
      );
    expect(await of('')).toEqual([0, 1, 2]);
    expect(await of(`wallet_address=${all[1]?.wallet_address}`)).toEqual([1]);
    expect(await of(`wallet_address=${all[3]?.wallet_address}`)).toEqual([]);
    expect(await of('wallet_type=Ready')).toEqual([1]);
    expect(await of('status=suspended')).toEqual([2]);
    expect(await of('is_verified=true')).toEqual([1]);
    expect(await of('is_verified=false')).toEqual([0, 2]);
    expect(await of('is_active=true&is_verified=0')).toEqual([0]);
    expect(await of('limit=1&page=2')).toEqual([1]);
    expect(await get(`${WALLETS}stats/?network=FILTERS`)).toEqual({
      network: 'filters',
      total_wallets: 3,
      active_wallets: 2,
      verified_wallets: 1,
    });
    await importRecords(world, { wallets: [{ ...all[0]!, is_verified: true }, wallet('filters')] });
    await register({ network: 'filters' });
    await register({ network: 'registered-only' });
    const stats = async (query: string): Promise<unknown> => await get(`${WALLETS}stats/${query}`);
    const countOf = async (query: string): Promise<number> => (await get(`${WALLETS}?${query}`)).count;
    for (const network of ['filters', 'mainnet', 'registered-only']) {
      const on = `network=${network}&`;
      expect(await stats(`?${on}`), network).toEqual({
        network,
        total_wallets: (await get(`${WALLETS}?${on}limit=100`)).results.length,
        active_wallets: await countOf(`${on}is_active=true`),
        verified_wallets: await countOf(`${on}is_verified=true`),
      });
    }
    expect(await stats('')).toEqual({
      network: null,
      total_wallets: (await countOf('status=active')) + (await countOf('status=suspended')),
      active_wallets: await countOf('is_active=true'),
      verified_wallets: await countOf('is_verified=true'),
    });
    expect(await get(`${WALLETS}stats/?network=nowhere`)).toMatchObject({
      total_wallets: 0,
      verified_wallets: 0,
    });
  });

  it('looks up an address on one network or any', async () => {
    const wallet_address = toFelt((addresses += 1n));
    const asked = { wallet_address, network: null };
    expect(await get(`${LOOKUP}?wallet_address=${wallet_address}`)).toEqual({
      ...asked,
      is_registered: false,
      wallet: null,
    });
    await importRecords(world, {
      wallets: [wallet('one', { wallet_address, is_active: false }), wallet('two', { wallet_address })],
    });
    const on = async (query: string): Promise<Answer['json']> =>
      await get(`${LOOKUP}?wallet_address=${wallet_address.replace(/^0x0+/, '0x')}${query}`);
    expect(await on('')).toMatchObject({ ...asked, is_registered: true, wallet: { network: 'two' } });
    expect(await on('&network=ONE')).toMatchObject({
      network: 'one',
      wallet: { network: 'one', is_active: false },
    });
    expect(await on('&network=three')).toEqual({
      wallet_address,
      network: 'three',
      is_registered: false,
      wallet: null,
    });
  });
});
