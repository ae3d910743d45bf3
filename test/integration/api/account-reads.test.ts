import { once } from 'node:events';
import { connect } from 'node:net';

import { afterAll, beforeAll, expect, it, vi } from 'vitest';

import { readClasses } from '../../../api/http/clickhouse.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { ALICE, BOB, CAROL, COIN, TX1, writeSmallChain } from '../../support/small-chain.ts';
import { aTransfer } from '../../support/transfer-world.ts';
import { messagesOf } from '../../support/topic.ts';
import type { TableNames } from '../../support/transfer-world.ts';

/**
 * Accounts with many tokens: ALICE with more than one answer requests chain reads of, where the test takes the observer's
 * part, and CAROL with more than one statement has room for.
 */

const DAVE = toFelt(0xda7en);
const MANY = Array.from({ length: 2500 }, (_, i) => toFelt(0x70c_0000n + BigInt(i)));
const TOKENS = MANY.slice(0, 450);
const ERIN = toFelt(0xe21_0000n);
/** More than the kernel holds between server and client. */
const ROWS = 100_000;

let world: ApiWorld;
let apiKey = '';
let names: TableNames;
beforeAll(async () => {
  world = await apiWorld();
  const transfersTo = (to: Felt, tokens: readonly Felt[], first: number) =>
    tokens.map((token, i) =>
      aTransfer({ token, from: BOB, to, position: first + i, txHash: TX1, amount: 7n }),
    );
  const transfers = [...transfersTo(ALICE, TOKENS, 0), ...transfersTo(CAROL, MANY, TOKENS.length)];
  ({ apiKey, names } = await writeSmallChain(world, [
    { height: 0, timestamp: 1_700_000_000, chunk: 'blocks-0', transfers },
  ]));
});
afterAll(() => world.close());

/** The balances of ALICE, all of them read anew. */
async function forced(): Promise<{ count: number; stale: Set<string> }> {
  const path = `/api/account-balances/?account_address=${ALICE}&force_refresh=true`;
  const { status, json } = await world.call('GET', path, { headers: { 'api-key': apiKey } });
  expect(status).toBe(200);
  const rows: { token: { address: string }; stale?: true }[] = json.data;
  return {
    count: rows.length,
    stale: new Set(rows.filter(({ stale }) => stale === true).map(({ token }) => token.address)),
  };
}

/** The tokens requested from these offsets on; every message of one answer has one `requested_at`. */
async function requestedFrom(lows: ReadonlyMap<number, number>) {
  const messages = await messagesOf(world.kafka, topics.requests, lows);
  return messages.filter((message) => message.type === 'balance.requested');
}

/** Stores a read of each request. */
async function answer(requests: Awaited<ReturnType<typeof requestedFrom>>): Promise<void> {
  const schema = (await servedBuilds(world.pool)).schema('balances');
  await inTransaction(world.pool, async (tx) => {
    for (const { account, token, requested_at } of requests) {
      const message = balances.topic.schema.parse({
        type: 'balance.observed',
        v: 1,
        account,
        token,
        balance: '7',
        block: 0,
        block_hash: toFelt(0xb10c_0000n),
        observed_at: Date.now(),
        requested_at,
        l1_height: null,
      });
      await balances.fold(tx, message, { partition: 0, offset: 0, timestamp: 0, schema });
    }
  });
}

it('requests at most 200 chain reads per answer, and repeated calls get to every token', async () => {
  const seen: string[][] = [];
  for (let call = 0; call < 3; call += 1) {
    const offsets = await world.kafka.offsets(topics.requests);
    const lows = new Map(offsets.map(({ partition, high }) => [partition, high]));
    // Nobody answers in time, so all that is listed is what was known.
    const { count, stale } = await forced();
    expect([count, stale.size]).toEqual([TOKENS.length, TOKENS.length]);
    const requests = await requestedFrom(lows);
    await answer(requests);
    seen.push(requests.map(({ token }) => token));
  }
  const [first = [], second = [], third = []] = seen;
  expect(seen.map(({ length }) => length)).toEqual([200, 200, 200]);
  expect(new Set([...first, ...second])).toHaveProperty('size', 400);
  expect(new Set([...first, ...second, ...third])).toEqual(new Set(TOKENS));
  // The rest of the third are those that were read the longest ago.
  const again = third.filter((token) => first.includes(token) || second.includes(token));
  expect(again.every((token) => first.includes(token))).toBe(true);
});

it('refuses an account of more tokens than an answer may hold', async () => {
  const owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  await owner.command(`INSERT INTO ${names['account_ledger_by_block'] ?? ''}
    SELECT 0, unhex('${DAVE.slice(2)}'), unhex(leftPad(hex(number + 1), 64, '0')), 0, 1, 1, 1, 0 FROM numbers(100001)`);
  await owner.close();
  for (const path of ['account-balances/?', 'portfolio/?', 'portfolio-history/?start_time=2023-11-15&']) {
    const answer = await world.call('GET', `/api/${path}account_address=${DAVE}`, {
      headers: { 'api-key': apiKey },
    });
    expect([answer.status, Object.keys(answer.json.errors ?? {})]).toEqual([400, ['account_address']]);
  }
});

it('keeps the place of a long history until its client has taken it', async () => {
  const owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const pair = `unhex('${ERIN.slice(2)}'), unhex('${COIN.slice(2)}')`;
  await owner.command(`INSERT INTO ${names['account_ledger'] ?? ''}
    SELECT ${pair}, 4294967295, 4294967295 - number, 4294967295, 2, 1, 'erc20', 0, 1700000000, '', 1, 0 FROM numbers(${ROWS})`);
  await owner.command(
    `INSERT INTO ${names['account_ledger_by_block'] ?? ''} SELECT 0, ${pair}, 0, ${ROWS}, ${ROWS}, 1, 0`,
  );
  await owner.close();
  // Clients that take nothing are not disconnected meanwhile.
  vi.useFakeTimers({ toFake: ['setInterval'] });
  const { hostname, port } = new URL(world.url);
  const history = `/api/balance-history/?account_address=${ERIN}&token_address=${COIN}&start_time=`;
  const headers = { 'api-key': apiKey };
  const clients = Array.from({ length: readClasses.account.placesPerCaller }, () => {
    const client = connect(Number(port), hostname);
    client.write(`GET ${history}2023-11-14 HTTP/1.1\r\nHost: x\r\napi-key: ${apiKey}\r\n\r\n`);
    return client;
  });
  try {
    await Promise.all(clients.map(async (client) => await once(client, 'readable')));
    let isAnswered = false;
    const next = world.call('GET', `${history}2024-01-01`, { headers });
    void next.then(() => (isAnswered = true));
    const page = `/api/balance/?account_address=${BOB}&token_address=${COIN}&as_of_block=0`;
    for (let i = 0; i < 5; i += 1) expect((await world.call('GET', page, { headers })).status).toBe(200);
    expect(isAnswered).toBe(false);
    clients[0]?.destroy();
    expect(await next).toMatchObject({ status: 200, json: { count: 0 } });
    expect(String(clients[1]?.read(12))).toBe('HTTP/1.1 200');
  } finally {
    vi.useRealTimers();
    for (const client of clients) client.destroy();
  }
});

it('answers the balances and the portfolio of thousands of tokens at a past time', async () => {
  const data = async (path: string) => {
    const { status, json } = await world.call('GET', path, { headers: { 'api-key': apiKey } });
    expect(status).toBe(200);
    return json.data;
  };
  const balancesAtBlock = await data(`/api/account-balances/?account_address=${CAROL}&as_of_block=0`);
  expect(balancesAtBlock.map((row: { token: { address: string } }) => row.token.address).toSorted()).toEqual(
    MANY,
  );
  const { holdings } = await data(`/api/portfolio/?account_address=${CAROL}&at_time=2023-11-15`);
  expect(holdings.map((row: { token_address: string }) => row.token_address).toSorted()).toEqual(MANY);
});

it('names no block up to which holders are counted before the first is', async () => {
  const answer = await world.call('GET', `/api/tokens/${TOKENS[0]}/holders/`, {
    headers: { 'api-key': apiKey },
  });
  expect([answer.status, answer.json.count]).toEqual([200, 0]);
  expect(answer.headers.has('x-indexed-block')).toBe(false);
});
