import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import {
  ART,
  COIN,
  HUGE,
  ITEMS,
  NOBODYS,
  REBASING,
  STEPS,
  accountStatsOf,
  accounts,
  analyticsBlock,
  chainStatsOf,
  holdersOf,
  tokenStatsOf,
  tokens,
} from '../../support/analytics-oracle.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { upTo } from '../../support/as-of-oracle.ts';
import { deriveDue, onePass } from '../../support/derive-due.ts';
import { createRandom } from '../../support/random.ts';
import { writeSmallChain } from '../../support/small-chain.ts';
import { writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames, WorldBlock } from '../../support/transfer-world.ts';

/** The routes of analytics beside an oracle, while the chain is indexed with a gap, goes on and is reorganised. */

const random = createRandom(7_051);
const HEAD = 1100;
/** Heights of a chunk that is indexed last. */
const GAP = { from: 400, to: 700 };
const START = 1_700_000_000;

let world: ApiWorld;
let owner: ClickHouse;
let names: TableNames;
let apiKey = '';
let offset = 1;
let seq = 1;
const chain = new Map<number, WorldBlock>();

const write = async (
  blocks: readonly WorldBlock[],
  type: 'block.accepted' | 'block.reverted' = 'block.accepted',
) => {
  const hashes = new Map([...chain, ...blocks.map((one) => [one.height, one] as const)]);
  const linked = blocks.map((one) => {
    const parent = hashes.get(one.height - 1)?.hash;
    return parent === undefined ? one : { ...one, parent };
  });
  await writeBlocks(owner, linked, { seq: (seq += 1), offset, type }, names);
  offset += blocks.length;
  for (const block of blocks) {
    if (type === 'block.accepted') chain.set(block.height, block);
    else chain.delete(block.height);
  }
};
/** Times ascend with heights: a fork stays on top of the times of those before it. */
let fork = 0;
const made = (from: number, to: number): WorldBlock[] =>
  Array.from({ length: to - from + 1 }, (_, index) =>
    analyticsBlock(random, from + index, from + index < 900 ? 5 : 12, fork),
  );
const get = async (path: string, headers: Record<string, string> = {}): Promise<Answer> =>
  await world.call('GET', path, { headers: { 'api-key': apiKey, ...headers } });

beforeAll(async () => {
  world = await apiWorld();
  ({ apiKey, names } = await writeSmallChain(world, []));
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  await write(made(0, GAP.from - 1));
  await write(made(GAP.to + 1, HEAD));
  await deriveDue(owner, names);
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

/** Whether the backfill is finished. */
let hasNoGap = false;

/** Follows cursors to the end. */
async function holders(token: Felt, query: Readonly<Record<string, string>> = {}): Promise<unknown[]> {
  const rows: unknown[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const search = new URLSearchParams({ limit: '15', ...query, cursor });
    const { status, json, text, headers } = await get(`/api/tokens/${token}/holders/?${search.toString()}`);
    expect(status, text).toBe(200);
    if (query['as_of_block'] !== undefined) expect(headers.get('x-indexed-block')).toBe(query['as_of_block']);
    rows.push(...json.results);
    expect(rows.length).toBeLessThanOrEqual(json.count);
    cursor = json.links.next_cursor;
    const isWhole = hasNoGap || Number(query['as_of_block'] ?? HEAD) < GAP.from;
    expect(json.complete).toBe(isWhole ? undefined : false);
    if (cursor === null) expect(json.count).toBe(rows.length);
  }
  return rows;
}

/** Answers are those about the chain, and as of one of its blocks those about the chain up to it. */
async function expectOracle(): Promise<void> {
  await expectAnswers(chain, {});
  const height = random.pick([...chain.keys()]);
  await expectAnswers(upTo(chain, height), { as_of_block: String(height) });
}

async function expectAnswers(
  of: ReadonlyMap<number, WorldBlock>,
  asOf: Readonly<Record<string, string>>,
): Promise<void> {
  const shown = JSON.stringify(asOf);
  for (const token of tokens)
    expect(await holders(token, asOf), `${token} ${shown}`).toEqual(holdersOf(of, token));
  const times = [...chain.values()].map(({ timestamp }) => timestamp);
  const [first, last] = [Math.min(...times) - 90_000, Math.max(...times) + 5000];
  for (const [interval, step] of Object.entries(STEPS)) {
    const asked = { step, first, last };
    const query = queryOf({ interval, ...asOf, ...between(first, last) });
    for (const token of tokens) {
      const { json } = await get(`/api/tokens/${token}/stats/?${query}`);
      expect(json, `${token} ${interval} ${shown}`).toEqual({ results: tokenStatsOf(of, token, asked) });
    }
    const { json } = await get(`/api/stats/?${query}`);
    expect(json, `${interval} ${shown}`).toEqual(chainStatsOf(of, asked));
  }
  for (const account of [...accounts.slice(0, 6), toFelt(0xdeadn)]) {
    const { json } = await get(`/api/accounts/${account}/stats/?${queryOf(asOf)}`);
    expect(json, shown).toEqual(accountStatsOf(of, account));
  }
}

const queryOf = (query: Readonly<Record<string, string>>): string => new URLSearchParams(query).toString();
const between = (first: number, last: number) => ({
  start_time: new Date(first * 1000).toISOString(),
  end_time: new Date(last * 1000).toISOString(),
});

test('the oracle knows holders of every kind of token, and of none', () => {
  for (const token of [COIN, HUGE, REBASING, ART, ITEMS])
    expect(holdersOf(chain, token).length).toBeGreaterThan(5);
  expect(holdersOf(chain, NOBODYS)).toEqual([]);
  expect(new Set(holdersOf(chain, COIN).map(({ balance }) => balance)).size).toBeLessThan(
    holdersOf(chain, COIN).length,
  );
});

test('answers what an unfinished backfill has indexed', expectOracle);

test.each([
  ['before the first block', -5, undefined],
  ['in the blocks from 0 on', 200, undefined],
  ['in a gap', (GAP.from + GAP.to) / 2, false],
  ['above a gap', HEAD - 5, false],
])('holders at a time %s: `complete` is as it should be', async (_, height, complete) => {
  const at_time = new Date((START + 1200 * height) * 1000).toISOString();
  const { json } = await get(`/api/tokens/${COIN}/holders/?${queryOf({ at_time })}`);
  expect(json.complete).toBe(complete);
});

test('answers the same once the backfill is finished', async () => {
  await write(made(GAP.from, GAP.to));
  hasNoGap = true;
  await deriveDue(owner, names);
  await expectOracle();
  const rowsOf = async (table: string): Promise<unknown> =>
    await owner.rows({
      name: 'test.rows',
      sql: `SELECT token, count() AS n FROM ${names[table]} FINAL GROUP BY token ORDER BY token`,
      row: { parse: (row) => row },
    });
  expect(await rowsOf('token_holder_ranks')).toEqual(await rowsOf('token_holders'));
});

test('computes the newest hours and days before a pass has derived them', async () => {
  const next = Math.max(...chain.keys()) + 1;
  await write(made(next, next + 1));
  const { json, headers } = await get(
    `/api/stats/?end_time=${new Date((START + 1200 * (next + 1)) * 1000).toISOString()}`,
  );
  const asked = { step: 3600, first: START + 1200 * (next + 1) - 30 * 3600, last: START + 1200 * (next + 1) };
  expect(json).toEqual(chainStatsOf(chain, asked));
  expect(headers.get('x-indexed-block')).toBe(String(next + 1));
});

test('leaves out the transfers of a block that is not marked as indexed yet', async () => {
  const next = Math.max(...chain.keys()) + 1;
  const [block] = made(next, next);
  if (block === undefined) throw new Error('no block');
  const window = `end_time=${new Date((START + 1200 * (next + 1)) * 1000).toISOString()}`;
  const paths = [`/api/stats/?${window}`, `/api/tokens/${COIN}/stats/?${window}`];
  const read = async () => await Promise.all(paths.map(async (path) => (await get(path)).json));
  const before = await read();
  const marks = ['indexed_blocks', 'indexed_block_ranges'];
  for (const table of marks) await owner.command(`CREATE TABLE ${names[table]}_later AS ${names[table]}`);
  const later = Object.fromEntries(marks.map((table) => [table, `${names[table]}_later`]));
  await writeBlocks(owner, [block], { seq: seq + 1, offset }, { ...names, ...later });
  expect(await read()).toEqual(before);
  await write([block]);
  expect(await read()).not.toEqual(before);
});

test('names the block up to which holders are counted', async () => {
  await deriveDue(owner, names);
  const head = Math.max(...chain.keys());
  const covered = async () => (await get(`/api/tokens/${COIN}/holders/`)).headers.get('x-indexed-block');
  expect(await covered()).toBe(String(head));
  await write(made(head + 1, head + 3));
  expect(await covered()).toBe(String(head));
  const ask = async () => await get(`/api/tokens/${COIN}/holders/`, { 'x-min-block': String(head + 2) });
  const began = performance.now();
  const late = await ask();
  expect([late.status, late.json.code, late.headers.get('retry-after')]).toEqual([503, 'behind', '1']);
  expect(performance.now() - began).toBeGreaterThan(1900);
  const asked = performance.now();
  const answering = ask();
  await sleep(300);
  await deriveDue(owner, names);
  const isInTime = performance.now() - asked < 1500;
  const answer = await answering;
  if (isInTime)
    expect([answer.status, answer.headers.get('x-indexed-block')]).toEqual([200, String(head + 3)]);
  expect(await covered()).toBe(String(head + 3));
});

test('waits until the hours are counted up to the block that the client asks for', async () => {
  await deriveDue(owner, names);
  const head = Math.max(...chain.keys());
  await write(made(head + 1, head + 12));
  const wanted = String(head + 12);
  const paths = ['/api/stats/', `/api/tokens/${COIN}/stats/`];
  const ask = async () =>
    await Promise.all(paths.map(async (path) => await get(path, { 'x-min-block': wanted })));
  for (const { status, json, headers, text } of await ask())
    expect([status, json.code, headers.get('retry-after')], text).toEqual([503, 'behind', '1']);
  await deriveDue(owner, names);
  for (const { status, headers, text } of await ask())
    expect([status, headers.get('x-indexed-block')], text).toEqual([200, wanted]);
});

test('is not incomplete because a block that is due again was due long ago', async () => {
  const head = Math.max(...chain.keys());
  await write(made(head + 1, head + 1));
  const due = names['token_holders_due'] ?? '';
  await owner.command(
    `INSERT INTO ${due} SELECT block_desc, hour, seq - 2, 0, now() - 600 FROM ${due} FINAL WHERE block_desc = ${0xffff_ffff - head - 1}`,
  );
  expect((await get(`/api/tokens/${COIN}/holders/`)).json.complete).toBeUndefined();
  await deriveDue(owner, names);
});

test('says that it is incomplete where blocks have been due for long', async () => {
  const head = Math.max(...chain.keys());
  await write(made(head + 1, head + 1));
  const due = names['token_holders_due'] ?? '';
  await owner.command(
    `INSERT INTO ${due} SELECT block_desc, hour, seq, 0, now() - 60 FROM ${due} FINAL WHERE block_desc = ${0xffff_ffff - head - 1}`,
  );
  expect((await get(`/api/tokens/${COIN}/holders/`)).json.complete).toBe(false);
  await deriveDue(owner, names);
  expect((await get(`/api/tokens/${COIN}/holders/`)).json.complete).toBeUndefined();
});

test.each([1, 200])('follows a reorg of %i blocks', async (depth) => {
  const head = Math.max(...chain.keys());
  const from = head - depth + 1;
  const orphans = made(0, 0).slice(1);
  for (let height = head; height >= from; height -= 1)
    orphans.push(chain.get(height) ?? analyticsBlock(random, height, 0));
  await write(orphans, 'block.reverted');
  await deriveDue(owner, names);
  await expectOracle();
  fork += depth;
  await write(made(from, from + Math.ceil(depth / 2)));
  await deriveDue(owner, names);
  await expectOracle();
});

test('derives the same after a kill at any statement, and shows one of both states meanwhile', async () => {
  for (let failing = 0; failing < 9; failing += 1) {
    const before = holdersOf(chain, COIN);
    const head = Math.max(...chain.keys());
    await write(made(head + 1, head + 4));
    const after = holdersOf(chain, COIN);
    let sent = 0;
    const attempt = async (): Promise<void> => {
      if ((sent += 1) > failing) throw new Error('killed');
    };
    const killed: Pick<ClickHouse, 'rows' | 'command' | 'insert'> = {
      ...owner,
      async command(...args) {
        await attempt();
        await owner.command(...args);
      },
      async insert(...args) {
        await attempt();
        await owner.insert(...args);
      },
    };
    await onePass(killed, names).catch(() => {});
    const shown = JSON.stringify(balancesIn(await holdersAnyCount(COIN)));
    expect([JSON.stringify(balancesIn(before)), JSON.stringify(balancesIn(after))]).toContain(shown);
    if (failing % 3 === 0) {
      await write(
        [...chain.values()].filter(({ height }) => height > head + 1).toReversed(),
        'block.reverted',
      );
      fork += 5;
      await write(made(head + 2, head + 3));
    }
    await deriveDue(owner, names);
    expect(await holders(COIN)).toEqual(holdersOf(chain, COIN));
  }
  await expectOracle();
});

const balancesIn = (rows: readonly { account_address: string; balance: string }[]) =>
  rows.map(({ account_address, balance }) => [account_address, balance]);

/** All holders, without the count, which a pass writes last. */
async function holdersAnyCount(token: Felt): Promise<{ account_address: string; balance: string }[]> {
  return (await get(`/api/tokens/${token}/holders/?limit=100`)).json.results;
}

describe('as of a block', () => {
  const getAsOf = async (path: string, height: number, query: Readonly<Record<string, string>> = {}) =>
    await get(`${path}?${queryOf({ as_of_block: String(height), ...query })}`);

  test('the time of the block stands for now', async () => {
    const height = 600;
    const { timestamp: last } = chain.get(height)!;
    const asked = { step: 3600, first: last - 30 * 3600, last };
    const { json } = await getAsOf('/api/stats/', height);
    expect(json).toEqual(chainStatsOf(upTo(chain, height), asked));
  });

  test('hours that are not derived yet are computed, or the answer says that it is incomplete', async () => {
    await deriveDue(owner, names);
    const head = Math.max(...chain.keys());
    const hourOf = (height: number): number => Math.floor((chain.get(height)?.timestamp ?? 0) / 3600);
    const firstOf = (hour: number): number =>
      Math.min(...[...chain.keys()].filter((one) => hourOf(one) === hour));
    const lowestDue = firstOf(hourOf(head));
    await write(made(head + 1, head + 12));
    const height = head + 10;
    const [first, last] = [chain.get(0)!.timestamp, chain.get(height)!.timestamp];
    const path = `/api/tokens/${COIN}/stats/`;
    const expected = tokenStatsOf(upTo(chain, height), COIN, { step: 3600, first, last });

    const late = await getAsOf(path, height, between(first, last));
    expect(late.json.complete).toBe(false);
    expect(late.headers.get('x-indexed-block')).toBe(String(lowestDue - 1));
    const isKnown = ({ time }: { time: string }): boolean => {
      const hour = Date.parse(time) / 3_600_000;
      return hour < hourOf(head) || hour >= hourOf(height) - 1;
    };
    expect(late.json.results.filter(isKnown)).toEqual(expected.filter(isKnown));

    const end = hourOf(head) * 3600 - 1;
    const known = await getAsOf(path, height, between(first, end));
    expect(known.json).toEqual({ results: tokenStatsOf(chain, COIN, { step: 3600, first, last: end }) });
    expect(known.headers.get('x-indexed-block')).toBe(String(height));

    const next = await getAsOf(path, firstOf(hourOf(head) + 1), between(first, last));
    const upToNext = upTo(chain, firstOf(hourOf(head) + 1));
    expect(next.json).toEqual({ results: tokenStatsOf(upToNext, COIN, { step: 3600, first, last }) });

    await deriveDue(owner, names);
    const derived = await getAsOf(path, height, between(first, last));
    expect(derived.json).toEqual({ results: expected });
    expect(derived.headers.get('x-indexed-block')).toBe(String(height));
  });

  test('pages are of one height of one fork', async () => {
    const height = Math.max(...chain.keys());
    const path = `/api/tokens/${COIN}/holders/`;
    const all = holdersOf(chain, COIN);
    const page = await getAsOf(path, height, { limit: '5' });
    const { next_cursor: cursor } = page.json.links;
    await write(made(height + 1, height + 9));
    await deriveDue(owner, names);
    const rest = await getAsOf(path, height, { limit: '100', cursor });
    expect([...page.json.results, ...rest.json.results]).toEqual(all);
    expect(all).not.toEqual(holdersOf(chain, COIN));
    const refused = async (as: Readonly<Record<string, string>>) => {
      const { status, json } = await get(`${path}?${queryOf({ ...as, cursor })}`);
      expect([status, Object.keys(json.errors ?? {})]).toEqual([400, ['cursor']]);
    };
    await refused({});
    await refused({ as_of_block: String(height - 1) });
    await write([...chain.values()].filter((one) => one.height >= height).toReversed(), 'block.reverted');
    fork += 10;
    await write(made(height, height));
    await refused({ as_of_block: String(height) });
    await deriveDue(owner, names);
    expect(await holders(COIN, { as_of_block: String(height) })).toEqual(holdersOf(chain, COIN));
  });

  test.each([
    ['a token', 1, 200_000, (felt: Felt) => `/api/tokens/${felt}/holders/`, 'as_of_block'],
    ['an account', 2, 1_000_000, (felt: Felt) => `/api/accounts/${felt}/stats/`, 'address'],
  ])('the transfers of %s up to the block are limited', async (_, kind, most, pathOf, name) => {
    const felt = toFelt(0xb16n);
    const [table, subject] = [names['transfer_counts_by_block'], `unhex('${felt.slice(2)}')`];
    await owner.command(
      `INSERT INTO ${table} (range, subject_kind, subject, block, transfers, seq, is_deleted)
       VALUES (0, ${kind}, ${subject}, 10, ${most}, 1, 0), (0, ${kind}, ${subject}, 11, 1, 1, 0)`,
    );
    expect((await getAsOf(pathOf(felt), 10)).status).toBe(200);
    const { status, json } = await getAsOf(pathOf(felt), 11);
    expect([status, Object.keys(json.errors ?? {})]).toEqual([400, [name]]);
    expect(json.errors[name][0]).toContain(`${most + 1} transfers up to block 11;`);
  });

  test.each([
    `/api/tokens/${COIN}/holders/`,
    `/api/tokens/${COIN}/stats/`,
    '/api/stats/',
    `/api/accounts/${accounts[0]}/stats/`,
  ])('%s names the canonical block in place of a reverted one', async (path) => {
    const { status, json } = await getAsOf(path, 900, { as_of_hash: '0xdead' });
    expect([status, json.code, json.canonical_hash]).toEqual([409, 'reverted_block', chain.get(900)?.hash]);
    const canonical = await getAsOf(path, 900, { as_of_hash: json.canonical_hash });
    expect(canonical.text).toBe((await getAsOf(path, 900)).text);
  });
});

test('the zero address is no account', async () => {
  const nothing = { first_seen: null, last_seen: null, transfers: 0, tokens: 0, counterparties: 0, fees: [] };
  for (const query of ['', '?as_of_block=500'])
    expect((await get(`/api/accounts/${ZERO_FELT}/stats/${query}`)).json).toEqual(nothing);
});

describe('parameters', () => {
  test('at_time answers the balances after the newest block until then', async () => {
    for (const until of [START - 5, START + 1200 * 500 + 7, START + 1200 * 1050]) {
      const at_time = new Date(until * 1000).toISOString();
      expect(await holders(COIN, { at_time })).toEqual(holdersOf(chain, COIN, until));
    }
  });

  test.each([
    ['/api/tokens/0xc01/holders/?cursor=AAAA', 'cursor'],
    ['/api/tokens/0xzz/holders/', 'address'],
    ['/api/tokens/0xc01/holders/?at_time=yesterday', 'at_time'],
    ['/api/tokens/0xc01/holders/?as_of_block=5&at_time=2023-11-15', 'at_time'],
    ['/api/tokens/0xc01/holders/?as_of_block=99999', 'as_of_block'],
    ['/api/tokens/0xc01/stats/?interval=1%20week', 'interval'],
    ['/api/stats/?start_time=2020-01-01&end_time=2024-01-01', 'start_time'],
    ['/api/stats/?start_time=2024-01-01&end_time=2023-01-01', 'start_time'],
    // Block 5 is of 14 November.
    ['/api/stats/?as_of_block=5&start_time=2023-11-16', 'start_time'],
    ['/api/accounts/nobody/stats/', 'address'],
  ])('%s is refused, naming %s', async (path, name) => {
    const { status, json } = await get(path);
    expect(status).toBe(400);
    expect(Object.keys(json.errors)).toEqual([name]);
  });

  test('times within one second have no hour between them', async () => {
    const within = 'start_time=2023-11-15T02:00:00.2Z&end_time=2023-11-15T02:00:00.8Z';
    const { status, json } = await get(`/api/stats/?${within}`);
    expect([status, json.results]).toEqual([200, []]);
  });

  test('pages go on with the holders now when at_time passes between them', async () => {
    // Blocks after this time are indexed: they count among the holders now, and not among those of the time.
    const now = (START + 1200 * 500) * 1000;
    let passedMs = 0;
    const api = await world.anotherApi({ now: () => now + passedMs });
    const query = queryOf({ at_time: new Date(now + 1000).toISOString(), limit: '3' });
    const page = async (more: string) =>
      await api.call('GET', `/api/tokens/${COIN}/holders/?${query}${more}`, {
        headers: { 'api-key': apiKey },
      });
    const { json: first } = await page('');
    passedMs = 2000;
    const { status, json: second } = await page(`&cursor=${first.links.next_cursor}`);
    await api.close();
    expect(status).toBe(200);
    expect([...first.results, ...second.results]).toEqual(holdersOf(chain, COIN).slice(0, 6));
  });

  test('a cursor of one token is refused for another', async () => {
    const { json } = await get(`/api/tokens/${COIN}/holders/?limit=1`);
    const { status } = await get(`/api/tokens/${ART}/holders/?cursor=${json.links.next_cursor}`);
    expect(status).toBe(400);
  });
});
