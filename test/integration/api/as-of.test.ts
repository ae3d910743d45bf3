import { afterAll, beforeAll, expect, it } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import { balances } from '../../../projections/balances/projector.ts';
import { chainStatus } from '../../../projections/chain-status/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld, Call } from '../../support/api-world.ts';
import {
  accounts,
  balanceRows,
  balancesOf,
  listed,
  nftsOf,
  smallBlock,
  tokens,
  upTo,
} from '../../support/as-of-oracle.ts';
import { deriveDue } from '../../support/derive-due.ts';
import { startProxy } from '../../support/faults/proxy.ts';
import { createRandom } from '../../support/random.ts';
import { writeSmallChain } from '../../support/small-chain.ts';
import { writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames, WorldBlock } from '../../support/transfer-world.ts';

/** `as_of_block` on every route that takes it, beside what the blocks up to it say, while the chain goes on and is reorganised. */

const HEAD = 1045;
/** Blocks from here on are replaced. Ranges of 1024 heights are counted apart. */
const FORK = 1036;
const random = createRandom(20_251);
const [ANN, BEN] = [accounts[0]!, accounts[1]!];
const [COIN, , ART, , ODD] = [tokens[0]!, tokens[1]!, tokens[2]!, tokens[3]!, tokens[4]!];

let world: ApiWorld;
let call: Call;
let owner: ClickHouse;
let names: TableNames;
let apiKey = '';
const chain = new Map<number, WorldBlock>();
const heights = [0, 1023, 1024, FORK - 1, 1040 + random.below(HEAD - 1040)];

beforeAll(async () => {
  for (let height = 0; height <= HEAD; height += 1)
    chain.set(height, smallBlock(random, height, height < 980 ? (height % 200 === 0 ? 4 : 0) : 8));
  world = await apiWorld();
  ({ apiKey, names } = await writeSmallChain(world, [...chain.values()]));
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  await deriveDue(owner, names);
  // Nothing cached grows old at a clock that stands still. With a checkpoint, answers are cached while it does not move.
  const now = Date.now();
  ({ call } = await world.anotherApi({ now: () => now }));
  await world.pool.query(
    `INSERT INTO tds.checkpoints (consumer, build, topic, partition, topic_id, next_offset)
     SELECT projection, build, 'chain.blocks', 0, 'test', 1 FROM tds.builds WHERE projection = 'indexed-blocks'`,
  );
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

const get = async (path: string, query: Readonly<Record<string, string>>): Promise<Answer> =>
  await call('GET', `${path}?${new URLSearchParams(query).toString()}`, {
    headers: { 'api-key': apiKey },
  });
const post = async (path: string, json: unknown): Promise<Answer> =>
  await call('POST', path, { headers: { 'api-key': apiKey }, json });
const asOf = async (height: number, path: string, query: Readonly<Record<string, string>>) =>
  await get(path, { ...query, as_of_block: String(height) });

/** Follows cursors to the end; the count of every page is that of all rows. */
async function transfersAsOf(height: number, query: Readonly<Record<string, string>>, limit: number) {
  const rows: Record<string, unknown>[] = [];
  for (let cursor: string | null = ''; cursor !== null;) {
    const page = await asOf(height, '/api/transfers/', { ...query, limit: String(limit), cursor });
    expect(page.status, page.text).toBe(200);
    rows.push(...page.json.results);
    cursor = page.json.links.next_cursor;
    expect(page.json.count).toBe(listed(upTo(chain, height), query).length);
    expect(page.headers.get('x-indexed-block')).toBe(String(height));
  }
  return rows;
}

/** The first block with a transfer at or above a height, and its first transaction with one. */
const blockFrom = (from: number): [WorldBlock, Felt] => {
  const block = [...chain.values()].find(({ height, transfers }) => height >= from && transfers.length > 0)!;
  return [block, block.transfers[0]!.txHash];
};
const transactionFrom = (from: number): Felt => blockFrom(from)[1];

const queries = (): Readonly<Record<string, string>>[] => [
  { account: ANN },
  { token: COIN },
  { token: COIN, order: 'asc' },
  { account: BEN, token: COIN },
  { from_account: ANN, start_time: '2023-11-20T00:00:00Z' },
  { search: ODD },
  { txhash: transactionFrom(1000) },
  { txhash: transactionFrom(FORK) },
  { block: String(FORK) },
];

async function expectTransfers(height: number): Promise<void> {
  for (const query of queries()) {
    const expected = listed(upTo(chain, height), query);
    const found = await transfersAsOf(height, query, Math.max(2, Math.ceil(expected.length / 2)));
    expect(found, JSON.stringify({ height, query })).toEqual(
      expected.map((row) => expect.objectContaining(row)),
    );
  }
}

async function expectBalances(height: number): Promise<void> {
  const at = upTo(chain, height);
  const time = new Date(at.get(height)!.timestamp * 1000).toISOString().replace('.000Z', 'Z');
  for (const account of [ANN, BEN]) {
    const all = balancesOf(at, account);
    const known = [...all].flatMap(([token, sum]): [Felt, bigint][] => (sum === null ? [] : [[token, sum]]));
    const { json: listing } = await asOf(height, '/api/account-balances/', { account_address: account });
    const rows = listing.data.map(
      (row: { token: { address: Felt }; balance: string; last_updated: string }) => [
        row.token.address,
        BigInt(row.balance),
        Date.parse(row.last_updated),
      ],
    );
    expect(rows, `${height} ${account}`).toEqual(known.map(([token, sum]) => [token, sum, Date.parse(time)]));
    expect(listing.complete, `${height} ${account}`).toBe(known.length === all.size ? undefined : false);

    const { json: portfolio } = await asOf(height, '/api/portfolio/', { account_address: account });
    expect(Date.parse(portfolio.data.as_of)).toBe(Date.parse(time));
    const held = known.filter(([, sum]) => sum > 0n).map(([token, sum]) => [token, sum.toString()]);
    expect(
      portfolio.data.holdings.map((row: Record<string, string>) => [row['token_address'], row['balance']]),
    ).toEqual(held);

    const pairs = [COIN, ART, ODD].map((token) => ({ account_address: account, token_address: token }));
    const many = await post(`/api/balances/?as_of_block=${height}`, { balances: pairs });
    expect(many.headers.get('x-indexed-block')).toBe(String(height));
    const ones = await Promise.all(pairs.map((pair) => asOf(height, '/api/balance/', pair)));
    expect(many.json.data).toEqual(ones.flatMap(({ json }) => json.data ?? []));
    const errors = pairs.flatMap((pair, i) =>
      ones[i]?.status === 200 ? [] : [{ ...pair, error: ones[i]?.json.detail }],
    );
    expect(many.json.errors).toEqual(errors);

    for (const [i, pair] of pairs.entries()) {
      const { token_address: token } = pair;
      const one = ones[i]!;
      // Nothing else says that a contract of unknown standard has no balances.
      const expected = token === ODD ? null : all.has(token) ? all.get(token) : undefined;
      if (expected === null) expect(one.status, one.text).toBe(404);
      else if (expected !== undefined) expect(one.json.data?.balance, one.text).toBe(expected.toString());
      const { json } = await asOf(height, '/api/balance-history/', { ...pair, start_time: '2023-01-01' });
      expect(json.end_time).toBe(new Date(time).toISOString());
      const history = all.get(token) === null || token === ODD ? [] : balanceRows(at, account, token);
      expect(json.data, `${height} ${account} ${token}`).toEqual(
        history.map((row) => expect.objectContaining({ ...row, balance: row.balance.toString() })),
      );
    }
  }
}

async function expectNfts(height: number): Promise<void> {
  const nfts = nftsOf(upTo(chain, height));
  for (const account of [ANN, BEN]) {
    const own = nfts.filter(({ to }) => to === account);
    const { json } = await asOf(height, '/api/nft/owned-by/', { account_address: account });
    expect(json.count, `${height} ${account}`).toBe(own.length);
    expect(json.data).toEqual(
      own.map((row) =>
        expect.objectContaining({
          token_address: row.token,
          nft_token_id: String(row.tokenId),
          last_transfer_block: row.block,
        }),
      ),
    );
  }
  for (const { token, tokenId, to, block, txHash } of nftsOf(chain)) {
    const query = { token_address: token, nft_token_id: String(tokenId) };
    const found = await asOf(height, '/api/nft/owner/', query);
    const then = nfts.find((row) => row.token === token && row.tokenId === tokenId);
    if (then === undefined) expect(found.status).toBe(404);
    else expect(found.json.data.owner_address, JSON.stringify({ height, to, block, txHash })).toBe(then.to);
  }
}

/** Blocks, their events and proofs: as if none above the height were there. The events of these blocks are not kept, which is a 409. */
async function expectBlocks(height: number): Promise<void> {
  for (const at of [0, 1023, FORK, HEAD]) {
    const isThere = at <= height;
    const block = await asOf(height, `/api/blocks/${at}/`, {});
    expect([at, block.status, block.json.status], `as of ${height}`).toEqual(
      isThere ? [at, 200, 'ACCEPTED_ON_L2'] : [at, 404, 404],
    );
    if (isThere) expect(block.json.hash).toBe(chain.get(at)?.hash);
    const events = await asOf(height, '/api/events/', { block: String(at) });
    expect([at, events.status], `as of ${height}`).toEqual([at, isThere ? 409 : 404]);
  }
  for (const from of [1000, FORK]) {
    const [block, txhash] = blockFrom(from);
    const expected = block.height <= height ? 409 : 404;
    const events = await asOf(height, '/api/events/', { txhash });
    const event = String(block.transfers[0]!.position);
    const proof = await asOf(height, '/api/transfers/proof/', { txhash, event_index: event });
    expect([events.status, proof.status], `${from} as of ${height}`).toEqual([expected, expected]);
  }
}

/** An answer of each route, as it was sent. */
async function bytesAsOf(height: number): Promise<string[]> {
  const account = { account_address: ANN };
  const answers = [
    ...queries().map((query) => ['/api/transfers/', query] as const),
    ['/api/track-transfers/', { account: ANN, token: COIN }] as const,
    ['/api/balance/', { ...account, token_address: COIN }] as const,
    ['/api/account-balances/', account] as const,
    ['/api/balance-history/', { ...account, token_address: COIN, start_time: '2023-01-01' }] as const,
    ['/api/portfolio/', account] as const,
    ['/api/portfolio-history/', { ...account, start_time: '2023-11-01', interval: '1 day' }] as const,
    ['/api/nft/owned-by/', account] as const,
    ['/api/nft/owner/', { token_address: ART, nft_token_id: '1' }] as const,
    [`/api/blocks/${FORK}/`, {}] as const,
    [`/api/tokens/${COIN}/holders/`, {}] as const,
    [`/api/tokens/${COIN}/stats/`, {}] as const,
    [`/api/accounts/${ANN}/stats/`, {}] as const,
    ['/api/stats/', {}] as const,
    ['/api/stats/', { interval: '1 day' }] as const,
  ];
  return await Promise.all(
    answers.map(async ([path, query]) => {
      const { status, text } = await asOf(height, path, query);
      const isStable = status === 200 || status === 404;
      expect(isStable, `${path} ${text}`).toBe(true);
      return status === 200 ? text : String(status);
    }),
  );
}

let seq = 10_000;
async function write(
  blocks: readonly WorldBlock[],
  type: 'block.accepted' | 'block.reverted',
): Promise<void> {
  seq += 10_000;
  await writeBlocks(owner, blocks, { seq, offset: seq, type }, names);
  for (const block of blocks)
    if (type === 'block.accepted') chain.set(block.height, block);
    else chain.delete(block.height);
}

/** What changes without a block: acceptance on L1, and a balance that was read from the chain, which no transfers explain. */
async function learn(block: WorldBlock): Promise<void> {
  const served = await servedBuilds(world.pool);
  const place = { partition: 0, offset: 100_000, timestamp: 0 };
  const now = Date.now();
  await inTransaction(world.pool, async (tx) => {
    const final = { height: HEAD, log_ends: [] };
    const accepted = { type: 'l1.accepted' as const, v: 1 as const, height: HEAD, observed_at: now, final };
    await chainStatus.fold(tx, accepted, { ...place, schema: served.schema('chain-status') });
    const read = balances.topic.schema.parse({
      type: 'balance.observed',
      v: 1,
      account: ANN,
      token: COIN,
      balance: '123456789',
      block: block.height,
      block_hash: block.hash,
      observed_at: now,
      requested_at: now,
      l1_height: null,
    });
    await balances.fold(tx, read, { ...place, schema: served.schema('balances') });
    // The state of the read models is another now.
    await tx.query(
      "UPDATE tds.checkpoints SET next_offset = next_offset + 1 WHERE consumer = 'indexed-blocks'",
    );
  });
}

const before = new Map<number, string[]>();

it('answers are those of the chain up to the block', async () => {
  for (const height of heights) {
    await Promise.all([
      expectTransfers(height),
      expectBalances(height),
      expectNfts(height),
      expectBlocks(height),
    ]);
    before.set(height, await bytesAsOf(height));
  }
});

it('answers have the same bytes when the chain has gone on', async () => {
  const more = Array.from({ length: 12 }, (_, i) => smallBlock(random, HEAD + 1 + i, 8));
  await write(more, 'block.accepted');
  await learn(chain.get(1030)!);
  for (const height of heights) expect(await bytesAsOf(height), String(height)).toEqual(before.get(height));
  await deriveDue(owner, names);
  for (const height of heights) expect(await bytesAsOf(height), String(height)).toEqual(before.get(height));
  // While those of the newest block are others.
  const { json } = await get('/api/transfers/', { block: String(HEAD) });
  expect(new Set(json.results.map(({ status }: { status: string }) => status))).toEqual(
    new Set(chain.get(HEAD)!.transfers.length > 0 ? ['ACCEPTED_ON_L1'] : []),
  );
});

it('answers are those of the new chain above a fork, and the same below', async () => {
  const gone = [...chain.values()].filter(({ height }) => height >= FORK);
  const old = chain.get(1040)!;
  const paged = { token: COIN, as_of_block: '1040', limit: '1' };
  const { links } = (await get('/api/transfers/', paged)).json;
  expect((await get('/api/transfers/', { ...paged, cursor: links.next_cursor })).status).toBe(200);
  await write(gone, 'block.reverted');
  const next = Array.from({ length: gone.length }, (_, i) => smallBlock(random, FORK + i, 8, 1));
  await write(next, 'block.accepted');
  await deriveDue(owner, names);
  for (const height of heights) {
    if (height < FORK) expect(await bytesAsOf(height), String(height)).toEqual(before.get(height));
    else {
      await Promise.all([expectTransfers(height), expectBalances(height), expectNfts(height)]);
      expect(await bytesAsOf(height), String(height)).not.toEqual(before.get(height));
    }
  }
  const linked = Object.fromEntries(new URL(links.next, 'http://api').searchParams);
  expect((await get('/api/transfers/', linked)).json.code).toBe('reverted_block');
  expect((await get('/api/transfers/', { ...paged, cursor: links.next_cursor })).json.errors).toHaveProperty(
    'cursor',
  );
  const query = { token: COIN, as_of_block: '1040' };
  const reverted = await get('/api/transfers/', { ...query, as_of_hash: old.hash! });
  expect([reverted.status, reverted.json.code]).toEqual([409, 'reverted_block']);
  expect(reverted.json.canonical_hash).toBe(chain.get(1040)?.hash);
  expect((await get('/api/transfers/', { ...query, as_of_hash: reverted.json.canonical_hash })).status).toBe(
    200,
  );
});

it('a block that no answer can be as of is rejected', async () => {
  const pair = { account_address: ANN, token_address: COIN };
  const newest = Math.max(...chain.keys());
  const refused: readonly [string, Readonly<Record<string, string>>, string][] = [
    ['/api/transfers/', { token: COIN, as_of_block: String(newest + 1) }, 'as_of_block'],
    ['/api/balance/', { ...pair, as_of_block: '9'.repeat(30) }, 'as_of_block'],
    ['/api/nft/owned-by/', { account_address: ANN, as_of_block: '5000000000' }, 'as_of_block'],
    ['/api/balance/', { ...pair, as_of_block: '-1' }, 'as_of_block'],
    ['/api/balance/', { ...pair, as_of_hash: chain.get(3)?.hash ?? '' }, 'as_of_hash'],
    ['/api/balance/', { ...pair, as_of_block: '3', as_of_hash: 'x' }, 'as_of_hash'],
    ['/api/balance/', { ...pair, as_of_block: '3', force_refresh: 'true' }, 'force_refresh'],
    ['/api/portfolio/', { account_address: ANN, as_of_block: '3', at_time: '2023-11-15' }, 'at_time'],
    ['/api/tokens/', { as_of_block: '3' }, 'as_of_block'],
    ['/api/price-at/', { token_address: COIN, at_time: '2023-11-15', as_of_block: '3' }, 'as_of_block'],
    ['/api/stream/transfers/', { wait: '0', as_of_block: '3' }, 'as_of_block'],
  ];
  for (const [path, query, name] of refused) {
    const { status, json } = await get(path, query);
    expect([status, Object.keys(json.errors ?? {})], `${path} ${JSON.stringify(query)}`).toEqual([
      400,
      [name],
    ]);
  }
  const balances = { balances: [pair] };
  const prices = { token_addresses: [COIN] };
  const refusedBodies: readonly [string, unknown, string][] = [
    [`/api/balances/?as_of_block=${newest + 1}`, balances, 'as_of_block'],
    ['/api/balances/?as_of_block=3', { ...balances, force_refresh: true }, 'force_refresh'],
    ['/api/balances/', { ...balances, as_of_block: 3 }, 'as_of_block'],
    ['/api/balances/', { ...balances, as_of_hash: chain.get(3)?.hash }, 'as_of_hash'],
    ['/api/prices/?as_of_block=3', prices, 'as_of_block'],
    ['/api/prices/', { ...prices, as_of_block: 3 }, 'as_of_block'],
  ];
  for (const [path, body, name] of refusedBodies) {
    const { status, json } = await post(path, body);
    expect([status, Object.keys(json.errors ?? {})], `${path} ${JSON.stringify(body)}`).toEqual([
      400,
      [name],
    ]);
  }
  const { links } = (await asOf(1020, '/api/transfers/', { token: COIN, limit: '1' })).json;
  const other = await asOf(1021, '/api/transfers/', { token: COIN, cursor: links.next_cursor });
  expect([other.status, Object.keys(other.json.errors)]).toEqual([400, ['cursor']]);
});

it('an answer is refused whose block is reverted while it is read, also if there is nothing then', async () => {
  const real = new URL(world.env['API_CLICKHOUSE_URL'] ?? '');
  const proxy = await startProxy({ host: real.hostname, port: Number(real.port) });
  real.host = `${proxy.host}:${proxy.port}`;
  const slow = await world.anotherApi({ env: { API_CLICKHOUSE_URL: real.href } });
  /** What a read of the block as of itself is answered while the chain changes before the statement that reads it. */
  const raced = async (
    block: WorldBlock,
    change: () => Promise<void>,
    asked: Record<string, string> = {},
  ) => {
    const query = new URLSearchParams({ as_of_block: String(block.height), ...asked });
    const trap = proxy.trap({ request: /AS parent_hash, transactions/, act: 'hold' });
    const answering = slow.call('GET', `/api/blocks/${block.height}/?${query.toString()}`, {
      headers: { 'api-key': apiKey },
    });
    await trap.sprung;
    await change();
    trap.release();
    const { status, json, headers } = await answering;
    return { status, code: json.code, hash: json.canonical_hash, retryAfter: headers.get('retry-after') };
  };
  const unsettled = { status: 503, code: 'unsettled', hash: undefined, retryAfter: '1' };
  try {
    const height = Math.max(...chain.keys());
    const [first, second] = [chain.get(height)!, smallBlock(random, height, 8, 2)];
    const revert = (block: WorldBlock): Promise<void> => write([block], 'block.reverted');
    const accept = (block: WorldBlock): Promise<void> => write([block], 'block.accepted');

    // Nothing is at the height: the route itself finds no block.
    expect(await raced(first, () => revert(first))).toEqual(unsettled);
    await accept(first);
    expect(await raced(first, () => revert(first), { as_of_hash: first.hash! })).toEqual(unsettled);
    await accept(first);
    const replace = async (): Promise<void> => {
      await revert(first);
      await accept(second);
    };
    expect(await raced(first, replace)).toEqual(unsettled);
    const back = async (): Promise<void> => {
      await revert(second);
      await accept(first);
    };
    // What was read between the two is of the other chain.
    const replacedTwice = async (): Promise<void> => {
      await back();
      await revert(first);
      await accept(second);
    };
    for (const asked of [{}, { as_of_hash: second.hash! }])
      expect(await raced(second, replacedTwice, asked)).toEqual(unsettled);
    const reverted = { status: 409, code: 'reverted_block', hash: first.hash, retryAfter: null };
    expect(await raced(second, back, { as_of_hash: second.hash! })).toEqual(reverted);
    expect(await raced(first, async () => {})).toMatchObject({ status: 200 });
  } finally {
    await slow.close();
    await proxy.close();
  }
});

it('an answer is refused while the ranges of heights below it are of two chains', async () => {
  const table = names['indexed_blocks'] ?? '';
  const border = 0xffff_ffff - 1023;
  /** Writes a newer version of the last block of the first range. */
  const change = async (columns: string): Promise<void> =>
    await owner.command(
      `INSERT INTO ${table} SELECT * REPLACE (seq + 1 AS seq, ${columns})
       FROM ${table} WHERE block_desc = ${border} ORDER BY seq DESC LIMIT 1`,
    );
  const { hash = '' } = chain.get(1023) ?? {};
  const hashIs = (of: string): string => `unhex('${of.slice(2)}') AS block_hash`;
  const asked = async (height: number) => {
    const { status, json } = await asOf(height, '/api/transfers/', { account: ANN });
    return status === 200 ? 200 : json.code;
  };
  const answers = async () => [await asked(1023), await asked(1024), await asked(1030)];
  expect(await answers()).toEqual([200, 200, 200]);
  // The new chain has reached the first range only.
  await change(hashIs(`0x${'05'.repeat(32)}`));
  expect(await answers()).toEqual([200, 'unsettled', 'unsettled']);
  await change('1 AS is_deleted');
  expect(await answers()).toEqual(['not_found', 'unsettled', 'unsettled']);
  await change(`0 AS is_deleted, ${hashIs(hash)}`);
  expect(await answers()).toEqual([200, 200, 200]);
});
