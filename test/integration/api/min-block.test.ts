import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld, Call } from '../../support/api-world.ts';
import { ALICE, BOB, COIN, TX1, writeSmallChain } from '../../support/small-chain.ts';
import { aTransfer, hashAt, writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames, WorldBlock } from '../../support/transfer-world.ts';

/** `X-Min-Block` at two API processes, over a chain whose blocks are indexed without a notification. */

let world: ApiWorld;
let owner: ClickHouse;
let names: TableNames;
let apiKey = '';
let calls: readonly Call[] = [];
let head = -1;

const block = (height: number): WorldBlock => ({
  height,
  timestamp: 1_700_000_000 + height,
  chunk: 'live',
  transfers: [
    aTransfer({ token: COIN, from: ALICE, to: ALICE, position: 0, txHash: TX1 }),
    aTransfer({ token: COIN, from: ALICE, to: BOB, position: 1, txHash: TX1 }),
  ],
});

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey, names } = await writeSmallChain(world, [block(0)]));
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  // With a checkpoint, which never moves here, answers are cached.
  await world.pool.query(
    `INSERT INTO tds.checkpoints (consumer, build, topic, partition, topic_id, next_offset)
     SELECT projection, build, 'chain.blocks', 0, 'test', 1 FROM tds.builds WHERE projection = 'indexed-blocks'`,
  );
  // What the other one caches never grows old.
  const now = Date.now();
  calls = [world.call, (await world.anotherApi({ now: () => now })).call];
  head = 0;
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

async function index(type: 'block.accepted' | 'block.reverted', height: number): Promise<void> {
  const seq = 10 * height + (type === 'block.reverted' ? 5 : 1);
  await writeBlocks(owner, [block(height)], { seq, offset: seq, type }, names);
  head = type === 'block.accepted' ? height : height - 1;
}

const PATHS = [
  `/api/transfers/?token=${COIN}`,
  `/api/account-balances/?account_address=${BOB}&max_age=4000000000`,
  `/api/portfolio/?account_address=${BOB}`,
];
/** The number of transfers, or the balance that they add up to. */
const figureOf = (path: string, { json }: Answer): number => {
  if (path.includes('transfers')) return json.count;
  const [held] = path.includes('portfolio') ? json.data.holdings : json.data;
  return Number(held?.balance);
};

const ask = async (call: Call, path: string, minBlock: string) =>
  await call('GET', path, { headers: { 'api-key': apiKey, 'X-Min-Block': minBlock } });

/** Asks again where writing the block took longer than an API waits. */
async function askPatiently(call: Call, path: string, minBlock: number): Promise<Answer> {
  for (;;) {
    const began = performance.now();
    const answer = await ask(call, path, String(minBlock));
    if (answer.status !== 503) return answer;
    expect(performance.now() - began).toBeGreaterThan(1900);
  }
}

it('answers of every process and route include the block, although what is cached does not', async () => {
  for (let round = 0; round < 3; round += 1) {
    // Whatever a process caches is cached now.
    await Promise.all(calls.flatMap((call) => PATHS.map((path) => ask(call, path, ''))));
    const wanted = head + 1;
    const asked = calls.flatMap((call) =>
      PATHS.map(async (path) => {
        const answer = await askPatiently(call, path, wanted);
        const { status, headers, text } = answer;
        expect(status, text).toBe(200);
        expect(Number(headers.get('x-indexed-block')), path).toBeGreaterThanOrEqual(wanted);
        const isList = path.includes('transfers');
        expect(figureOf(path, answer), `${path} ${text}`).toBe(isList ? 2 * (wanted + 1) : wanted + 1);
      }),
    );
    await index('block.accepted', wanted);
    await Promise.all(asked);
  }
});

describe('a balance history, while the cached head is below the newest block', () => {
  const path = `/api/balance-history/?account_address=${BOB}&token_address=${COIN}&start_time=2023-11-14`;
  const call: Call = async (...args) => await (calls[1] ?? world.call)(...args);
  beforeEach(async () => {
    await ask(call, path, String(head));
    await index('block.accepted', head + 1);
  });

  type Row = Readonly<Record<'block_number' | 'balance', unknown>>;
  /** Each block up to one that the answer covers has a row, with the sum of the transfers up to it. */
  async function expectRows(query = ''): Promise<number> {
    const { headers, json, text } = await ask(call, path + query, '');
    const rows: Row[] = json.data ?? [];
    const expected = rows.map((_, height) => [height, String(height + 1)]);
    expect(
      rows.map((row) => [row.block_number, row.balance]),
      text,
    ).toEqual(expected);
    expect(rows.length, text).toBeGreaterThan(Number(headers.get('x-indexed-block')));
    return rows.length - 1;
  }
  const upToNewest = (): string => `&end_time=${new Date(block(head).timestamp * 1000).toISOString()}`;

  it('does not start from a balance read at the newest block unless it includes its transfers', async () => {
    const served = await servedBuilds(world.pool);
    await world.pool.query(
      `INSERT INTO ${served.schema('balances')}.anchors
         (account, token, block, block_hash, balance, observed_at, requested_at) VALUES ($1, $2, $3, $4, $5, 1, 1)`,
      [BOB, COIN, head, hashAt(head), head + 1],
    );
    await expectRows();
    expect(await expectRows(upToNewest())).toBe(head);
  });

  it('counts the transfers of the newest block if the window ends with it', async () => {
    expect(await expectRows(upToNewest())).toBe(head);
  });
});

it('what is cached below the block of X-Indexed-Block is not answered', async () => {
  const [, call = world.call] = calls;
  await Promise.all(PATHS.map((path) => ask(call, path, '')));
  await index('block.accepted', head + 1);
  const shown = async () => (await ask(call, '/api/indexer/progress/', '')).headers.get('x-indexed-block');
  await expect.poll(shown).toBe(String(head));
  for (const path of PATHS) {
    const answer = await ask(call, path, '');
    const isList = path.includes('transfers');
    expect(answer.headers.get('x-indexed-block')).toBe(String(head));
    expect(figureOf(path, answer), path).toBe(isList ? 2 * (head + 1) : head + 1);
  }
});

it('a block that was reverted is waited for again', async () => {
  const reverted = head;
  await index('block.reverted', reverted);
  const [call = world.call] = calls;
  await expect
    .poll(async () => (await ask(call, '/api/indexer/progress/', '')).headers.get('x-indexed-block'), {
      timeout: 5000,
    })
    .toBe(String(reverted - 1));
  const began = performance.now();
  const { status, headers, json } = await ask(call, PATHS[0] ?? '', String(reverted));
  expect([status, json.code, headers.get('retry-after')]).toEqual([503, 'behind', '1']);
  expect(headers.get('x-indexed-block')).toBe(String(reverted - 1));
  expect(json.detail).toContain(String(reverted));
  const waitedMs = performance.now() - began;
  expect(waitedMs).toBeGreaterThan(1900);
  expect(waitedMs).toBeLessThan(4000);
});

it('stops waiting for a client that has disconnected', async () => {
  const left = new AbortController();
  const asked = fetch(`${world.url}/api/tokens/`, {
    headers: { 'api-key': apiKey, 'X-Min-Block': '1000', 'X-Request-Id': 'leaver' },
    signal: left.signal,
  }).catch(() => null);
  setTimeout(() => left.abort(), 300);
  await asked;
  const line = (): { ms: number } | null => {
    const found = world
      .logged()
      .split('\n')
      .find((text) => text.includes('leaver') && text.includes('"ms"'));
    return found === undefined ? null : JSON.parse(found);
  };
  await expect.poll(line, { timeout: 4000 }).not.toBeNull();
  expect(line()?.ms).toBeLessThan(1500);
});

it('rejects an invalid height by name, once the caller is known', async () => {
  for (const wrong of ['x', '-1', '1.5', '0x10', '9'.repeat(30)]) {
    const { status, json } = await ask(world.call, '/api/tokens/', wrong);
    expect([status, Object.keys(json.errors ?? {})], wrong).toEqual([400, ['X-Min-Block']]);
  }
  const { status } = await world.call('GET', '/api/tokens/', { headers: { 'X-Min-Block': 'x' } });
  expect(status).toBe(401);
  const login = await world.call('POST', '/api/users/auth/login/', {
    headers: { 'X-Min-Block': 'x' },
    json: { username: 'reader', password: 'wrong' },
  });
  expect(login.status, 'a route that writes').toBe(401);
});
