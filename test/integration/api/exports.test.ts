import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';

import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { openExport } from '../../../api/export/open.ts';
import { figure } from '../../../api/http/stated-limits.ts';
import type { TransferSearch } from '../../../api/transfers/filters.ts';
import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { createCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { createLogger } from '../../../infra/log.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import { withNames } from '../../../projections/define.ts';
import { chainStatus } from '../../../projections/chain-status/projector.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import { indexedBlocks } from '../../../projections/indexed-blocks/projector.ts';
import { prices } from '../../../projections/prices/projector.ts';
import { revertedBlocks } from '../../../projections/reverted-blocks/projector.ts';
import { tokens as tokensProjection } from '../../../projections/tokens/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { exportManifest } from '../../../schemas/api/exports.ts';
import { toFelt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { bulkRows, deleteBulk, sumOf, writeBulk } from '../../support/bulk-transfers.ts';
import type { Bulk } from '../../support/bulk-transfers.ts';
import {
  begin,
  fileOf,
  finish,
  firstDifference,
  formats,
  outcomeOf,
  rowsOf,
  sha256,
} from '../../support/export-client.ts';
import type { Download, FileRow, Format } from '../../support/export-client.ts';
import { startProxy } from '../../support/faults/proxy.ts';
import type { FaultProxy } from '../../support/faults/proxy.ts';
import { readEvents, readLines } from '../../support/stream-client.ts';
import type { StreamMessage } from '../../support/stream-client.ts';
import { atEnd, until } from '../../support/projection-world.ts';
import { createRandom } from '../../support/random.ts';
import { startSimulatedS3 } from '../../support/s3.ts';
import { COIN, NFT, writeSmallChain } from '../../support/small-chain.ts';
import { tds } from '../../support/tds.ts';
import { matching } from '../../support/transfer-oracle.ts';
import type { Query } from '../../support/transfer-oracle.ts';
import { aTransfer, hashAt, randomBlock, randomWorld, writeBlocks } from '../../support/transfer-world.ts';
import type { TableNames, WorldBlock } from '../../support/transfer-world.ts';

/** Exports of a random chain in every format, read by other programs, against a list in memory; also through reorgs. */

const HEIGHTS = 120;
const FORK = 110;
/** Accepted on L1 in the small chain's status. */
const L1 = 11;
const random = createRandom(20_261_126);
const [ACCOUNT = COIN, TOKEN = COIN] = [randomWorld.accounts[1], randomWorld.tokens[0]];
const BULK: Bulk = { token: toFelt(0xb01cn), perBlock: 2000, below: FORK };

let world: ApiWorld;
let owner: ClickHouse;
let names: TableNames;
let headers: Record<string, string>;
let seq = 1;

/** One with a described coin and an NFT beside its random transfers. */
function blockAt(height: number, hash = hashAt(height)): WorldBlock {
  const block = randomBlock(random, height, 15 + random.below(20));
  const about = { from: ACCOUNT, to: toFelt(BigInt(height)), txHash: toFelt(0xe0_0000n + BigInt(height)) };
  return {
    ...block,
    hash,
    transfers: [
      ...block.transfers,
      aTransfer({ ...about, token: COIN, position: 900, amount: BigInt(random.below(2 ** 31)) }),
      aTransfer({ ...about, token: NFT, position: 901, kind: 'erc721', tokenId: (1n << 256n) - 1n }),
    ],
  };
}

const base = Array.from({ length: FORK }, (_, height) => blockAt(height));
const tail = Array.from({ length: HEIGHTS - FORK }, (_, i) => blockAt(FORK + i));
const forkHash = (i: number) => (i < 0 ? hashAt(FORK - 1) : toFelt(0xf0_0000n + BigInt(i)));
const fork = Array.from({ length: HEIGHTS - FORK + 1 }, (_, i) => ({
  ...blockAt(FORK + i, forkHash(i)),
  parent: forkHash(i - 1),
}));
const chainOf = (blocks: readonly WorldBlock[]) => new Map(blocks.map((block) => [block.height, block]));
const chain = chainOf([...base, ...tail]);

/** Prices of the coin: long before the chain, then now and again; of one millisecond the later counts. */
const START_MS = 1_700_000_000_000;
const observed = (
  [
    [-40 * 86_400_000, '82.833611415'],
    [20_000, '1.5'],
    [20_000, '2.53'],
    [100_001, '8.71061538212986'],
    [130_000, '0.0000004651570000000000001'],
    [180_000, '4.65157'],
  ] as const
).map(([after, price]) => ({ at: START_MS + after, price }));

function priceAt(seconds: number): number | null {
  const known = observed.filter(({ at }) => at <= seconds * 1000);
  return known.length === 0 ? null : Number(known.at(-1)?.price);
}

const tokens: Readonly<Record<string, { symbol: string; decimals: number | null }>> = {
  [COIN]: { symbol: 'C\u2400OIN', decimals: 6 },
  [NFT]: { symbol: 'CRAB', decimals: null },
};

function expected(blocks: ReadonlyMap<number, WorldBlock>, query: Query): FileRow[] {
  return matching(blocks, { ...query })
    .toReversed()
    .map((row) => {
      const token = tokens[row.token];
      const isNft = row.kind === 'erc721' || row.kind === 'erc1155';
      const decimals = token?.decimals ?? (isNft ? 0 : null);
      return {
        block: String(row.block),
        block_hash: blocks.get(row.block)?.hash ?? '',
        timestamp: String(row.timestamp * 1000),
        txhash: row.txHash,
        event_index: String(row.item * 1_048_576 + row.position),
        token_address: row.token,
        token_symbol: token?.symbol ?? '',
        token_decimals: decimals === null ? null : String(decimals),
        kind: row.kind,
        from_address: row.from,
        to_address: row.to,
        value: String(row.amount),
        value_float: decimals === null ? null : Number(row.amount) / 10 ** decimals,
        nft_token_id: isNft ? String(row.tokenId ?? 0n) : '',
        is_fee: String(row.isFee),
        fee: String(row.fee),
        fee_unit: row.feeToken,
        execution_status: row.executionStatus,
        finality: row.block <= L1 ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2',
        price_usd: row.token === COIN ? priceAt(row.timestamp) : null,
      };
    });
}

async function writePrices(): Promise<void> {
  const run = await runClickHouseProjections({
    kafka: world.kafka,
    clickhouse: owner,
    pool: world.pool,
    projections: [prices],
    groupId: 'prices',
    log: createLogger('test', 'silent'),
    metrics: createProjectionMetrics(createMetrics('test')),
  });
  const publisher = world.kafka.publisher();
  const values = observed.map(({ at, price }) => ({
    type: 'price.observed' as const,
    v: 1 as const,
    token: COIN,
    price,
    source: 'one',
    confidence: null,
    observed_at: at,
  }));
  await publisher.publish(
    topics.prices,
    values.map((value) => ({ key: value.token, value })),
  );
  await until(async () => await atEnd(world.kafka, world.pool, topics.prices, [prices.name]));
  await publisher.close();
  await run.stop();
}

const write = async (blocks: readonly WorldBlock[], type?: 'block.reverted'): Promise<void> => {
  const version = { seq: (seq += 1), offset: 1000 * seq, ...(type === undefined ? {} : { type }) };
  await writeBlocks(owner, blocks, version, names);
};

beforeAll(async () => {
  world = await apiWorld();
  const made = await writeSmallChain(world, [...base, ...tail]);
  ({ names } = made);
  headers = { 'api-key': made.apiKey, te: 'trailers' };
  owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  // Every row twice, as after a replay.
  await writeBlocks(owner, base.slice(20, 40), { seq: 1, offset: 21 }, names);
  await writePrices();
});
afterAll(async () => {
  await owner?.close();
  await world?.close();
});

const pathOf = (format: Format, query: Query): string =>
  `/api/export/transfers.${format}?${new URLSearchParams(query).toString()}`;
const download = async (format: Format, query: Query, more: Record<string, string> = {}): Promise<Download> =>
  await finish(await begin(world.url + pathOf(format, query), { ...headers, ...more }));

const record = async (id: unknown) =>
  await world.call('GET', `/api/export/${String(id)}.json`, {
    headers: { 'api-key': headers['api-key'] ?? '' },
  });

const iso = (height: number): string => new Date(START_MS + height * 2000).toISOString();
const queries: readonly Query[] = [
  { token: COIN },
  { account: ACCOUNT },
  { from_account: ACCOUNT, token: TOKEN },
  { to_account: ACCOUNT, start_time: iso(30) },
  { from_block: '9', to_block: '60' },
  { start_time: iso(100), end_time: iso(5000) },
  { account: ACCOUNT, txhash: toFelt(0xe0_0005n) },
  { token: toFelt(0xdeadn) },
];

test.each(formats)('%s: every filter exports the rows of the list, with their sums', async (format) => {
  for (const query of queries) {
    const answer = await download(format, query);
    expect(answer.status).toBe(200);
    const file = fileOf(answer);
    const { rows } = await rowsOf(format, file);
    const wanted = expected(chain, query);
    expect(firstDifference(rows, wanted), JSON.stringify(query)).toBe(null);
    expect(sumOf(rows)).toBe(sumOf(wanted));
    const summary = { rows: wanted.length, sha256: sha256(file), bytes: file.length };
    expect(answer.trailers).toEqual({
      'x-export-rows': String(summary.rows),
      'x-export-sha256': summary.sha256,
    });
    const { 'x-export-id': id, 'x-export-block': block, 'x-export-block-hash': hash } = answer.headers;
    expect([block, hash]).toEqual([String(HEIGHTS - 1), hashAt(HEIGHTS - 1)]);
    expect((await record(id)).json).toEqual({
      id,
      format,
      block: HEIGHTS - 1,
      block_hash: hash,
      ...summary,
      complete: true,
    });
  }
});

test('columns have their order and types', async () => {
  const columns = Object.keys(expected(chain, { block: '5' })[0] ?? {});
  const types: Partial<Record<Format, Record<string, string>>> = {};
  for (const format of formats) {
    ({ types: types[format] } = await rowsOf(format, fileOf(await download(format, { token: COIN }))));
    if (format !== 'ndjson') expect(Object.keys(types[format] ?? {})).toEqual(columns);
  }
  const line =
    fileOf(await download('ndjson', { token: COIN }))
      .toString()
      .split('\n')[0] ?? '';
  expect(Object.keys(JSON.parse(line))).toEqual(columns);
  expect(JSON.parse(line)).toMatchObject({
    block: 0,
    event_index: 900,
    timestamp: '2023-11-14T22:13:20Z',
    token_decimals: 6,
    is_fee: false,
    value: expect.any(String),
    value_float: expect.any(Number),
  });
  expect(types.parquet).toMatchObject({
    block: 'BIGINT',
    event_index: 'BIGINT',
    timestamp: 'TIMESTAMP WITH TIME ZONE',
    value: 'VARCHAR',
    nft_token_id: 'VARCHAR',
    fee: 'VARCHAR',
    value_float: 'DOUBLE',
    is_fee: 'BOOLEAN',
  });
  expect(types.arrow).toMatchObject({
    block: 'Int64',
    timestamp: 'Timestamp<MILLISECOND, UTC>',
    value: 'Utf8',
    value_float: 'Float64',
  });
});

test('content codings leave the file as it is, and trailers are sent to who takes them', async () => {
  const plain = await download('csv', { token: COIN }, { te: '' });
  expect(plain.trailers).toEqual({});
  for (const [accepted, coding] of [
    ['gzip, deflate', 'gzip'],
    ['gzip;q=0.5, zstd', 'zstd'],
    ['gzip;q=0, br', undefined],
  ] as const) {
    const answer = await download('csv', { token: COIN }, { 'accept-encoding': accepted });
    expect(answer.headers['content-encoding']).toBe(coding);
    expect(fileOf(answer)).toEqual(plain.body);
    expect(answer.trailers['x-export-sha256']).toBe(sha256(plain.body));
  }
});

test('rows are counted also where a symbol has a line break and quotes', async () => {
  const { schema = '' } = (await openBuild(world.pool, owner, tokensProjection)).names;
  const rename = async (symbol: string) =>
    await world.pool.query(`UPDATE ${schema}.tokens SET symbol = $1 WHERE token = $2`, [symbol, COIN]);
  const { symbol: usual = '' } = tokens[COIN] ?? {};
  const wanted = expected(chain, { token: COIN });
  await rename('A"\n"B\n,');
  try {
    for (const format of ['csv', 'ndjson'] as const) {
      const answer = await download(format, { token: COIN });
      expect(answer.trailers['x-export-rows']).toBe(String(wanted.length));
      const { rows } = await rowsOf(format, fileOf(answer));
      expect(
        firstDifference(
          rows,
          wanted.map((row) => ({ ...row, token_symbol: 'A"\n"B\n,' })),
        ),
      ).toBe(null);
    }
  } finally {
    await rename(usual);
  }
});

test('an export needs a filter or a whole range, a known format, and its own user', async () => {
  const status = async (path: string) => (await world.call('GET', path, { headers })).status;
  expect(await status('/api/export/transfers.csv')).toBe(400);
  expect(await status('/api/export/transfers.csv?from_block=1&end_time=2024-01-01')).toBe(400);
  expect(await status(`/api/export/transfers.csv?block=1&txhash=${COIN}`)).toBe(400);
  expect(await status(`/api/export/transfers.csv?token=${COIN}&token_address=${NFT}`)).toBe(400);
  for (const name of ['search', 'order', 'page', 'limit', 'cursor']) {
    const { status: code, json } = await world.call(
      'GET',
      `${pathOf('csv', { token: COIN })}&${name}=${NFT}`,
      {
        headers,
      },
    );
    expect([code, json.errors]).toEqual([400, { [name]: ['Exports do not take this parameter.'] }]);
  }
  expect(await status(`/api/export/transfers.xlsx?token=${COIN}`)).toBe(404);
  expect(await status(`/api/export/transfers.csv/?token=${COIN}`)).toBe(200);
  expect((await world.call('GET', pathOf('csv', { token: COIN }))).status).toBe(401);
  const { headers: of } = await download('csv', { token: COIN });
  const other = await world.makeUser('other');
  const made = await world.call('POST', '/api/users/auth/create-api-key/', {
    token: other.token,
    json: { name: 'k' },
  });
  const path = `/api/export/${String(of['x-export-id'])}.json`;
  expect(await status(path)).toBe(200);
  expect((await world.call('GET', path, { headers: { 'api-key': made.json.key } })).status).toBe(404);
  const elsewhere = await world.anotherApi();
  expect((await elsewhere.call('GET', path, { headers })).json.complete).toBe(true);
});

test('the record of an export is found by another process for an hour', async () => {
  const { headers: sent } = await download('csv', { token: COIN });
  const path = `/api/export/${String(sent['x-export-id'])}.json`;
  const another = await world.anotherApi();
  const status = async () => (await another.call('GET', path, { headers })).status;
  const redis = new Redis(world.env['REDIS_URL'] ?? '');
  try {
    expect(await status()).toBe(200);
    const [key = ''] = await redis.keys(`*export:*:${String(sent['x-export-id'])}`);
    const seconds = await redis.ttl(key);
    expect(seconds).toBeGreaterThan(3600 - 120);
    expect(seconds).toBeLessThanOrEqual(3600);
    await redis.pexpire(key, 1);
    await vi.waitFor(async () => expect(await status()).toBe(404));
  } finally {
    redis.disconnect();
    await another.close();
  }
});

test('HEAD begins neither an export nor a stream', async () => {
  const head = async (path: string) => {
    const answer = await fetch(world.url + path, { method: 'HEAD', headers });
    const { headers: sent } = answer;
    return [answer.status, sent.get('content-type'), sent.get('content-encoding'), sent.get('x-export-id')];
  };
  expect(await head(pathOf('csv', { token: COIN }))).toEqual([200, 'text/csv; charset=utf-8', 'gzip', null]);
  expect((await head('/api/export/transfers.csv'))[0]).toBe(400);
  const stream = '/api/stream/transfers/?from=0';
  expect(await head(stream)).toEqual([200, 'application/x-ndjson', null, null]);
  expect((await head(`${stream}x`))[0]).toBe(400);
});

test('an export begins again where a reorg comes before its statement, and waits while a block is reverted', async () => {
  const real = new URL(world.env['API_CLICKHOUSE_URL'] ?? '');
  const proxy = await startProxy({ host: real.hostname, port: Number(real.port) });
  real.host = `${proxy.host}:${proxy.port}`;
  const slow = await world.anotherApi({ env: { API_CLICKHOUSE_URL: real.href } });
  const query = { token: COIN };
  try {
    const trap = proxy.trap({ request: /CSVWithNames/, act: 'hold' });
    const beginning = begin(slow.url + pathOf('csv', query), headers);
    await trap.sprung;
    await write(tail, 'block.reverted');
    trap.release();
    const answer = await finish(await beginning);
    expect(answer.headers['x-export-block-hash']).toBe(base.at(-1)?.hash);
    const { rows } = await rowsOf('csv', fileOf(answer));
    expect(firstDifference(rows, expected(chainOf(base), query))).toBe(null);
    // The rows of the last block are taken back, but the block is still indexed.
    const scratch = { indexed_blocks: 'scratch_blocks', indexed_block_ranges: 'scratch_ranges' };
    for (const [table, copy] of Object.entries(scratch))
      await owner.command(`CREATE TABLE ${copy} AS ${names[table]}`);
    const reverted = { seq: (seq += 1), offset: 1000 * seq, type: 'block.reverted' as const };
    await writeBlocks(owner, base.slice(-1), reverted, { ...names, ...scratch });
    expect((await download('csv', query)).status).toBe(503);
    // Then another one is there in its place, with a transfer that the filter of a stream has not.
    const [last] = base.slice(-1);
    if (last === undefined) throw new Error('no block');
    const other = last.transfers.map((one) => ({ ...one, from: toFelt(0x5eedn) }));
    const accepted = { seq: (seq += 1), offset: 1000 * seq };
    const replaced = { ...last, hash: toFelt(0xf0f0n), transfers: other };
    await writeBlocks(owner, [replaced], accepted, { ...names, ...scratch });
    const streamed = await fetch(
      `${world.url}/api/stream/transfers/?token=${COIN}&from_account=${ACCOUNT}&from=${last.height - 1}&wait=0`,
      { headers },
    );
    expect(streamed.status).toBe(200);
    const messages: StreamMessage[] = [];
    for await (const message of readLines(streamed)) messages.push(message);
    expect(messages.filter(({ type }) => type === 'block')).toHaveLength(1);
    expect(messages.filter(({ type }) => type === 'transfer')).toHaveLength(1);
    await write([replaced], 'block.reverted');
    await write(base.slice(-1));
    await write(tail);
    expect((await download('csv', query)).headers['x-export-block-hash']).toBe(tail.at(-1)?.hash);
  } finally {
    await slow.close();
    await proxy.close();
  }
});

test('an export waits while a reorg is indexed on one side of a border of height ranges only', async () => {
  const query = { token: toFelt(0xb04de4n), from_block: '2040', to_block: '2055' };
  /** The blocks of one fork, from a height on. */
  const forkFrom = (first: number, digit: bigint): WorldBlock[] => {
    const hashOf = (height: number) => toFelt((height < first ? 1n : digit) * 0x10_0000n + BigInt(height));
    return Array.from({ length: 2056 - first }, (_, i) => {
      const height = first + i;
      const about = { token: query.token, from: toFelt(digit), to: ACCOUNT, txHash: hashOf(height) };
      return {
        height,
        hash: hashOf(height),
        parent: hashOf(height - 1),
        timestamp: START_MS / 1000 + height * 2,
        chunk: 'live',
        transfers: [aTransfer({ ...about, position: 1 })],
      };
    });
  };
  const [old, fresh] = [forkFrom(2040, 1n), forkFrom(2044, 2n)];
  const isBelow = ({ height }: WorldBlock): boolean => height < 2048;
  const replace = async (by: readonly WorldBlock[]): Promise<void> => {
    await write(
      old.filter(({ height }) => by.some((block) => block.height === height)),
      'block.reverted',
    );
    await write(by);
  };
  const exported = async () => {
    const answer = await download('csv', query);
    if (answer.status !== 200) return [answer.status, JSON.parse(answer.body.toString()).code];
    const { rows } = await rowsOf('csv', fileOf(answer));
    return [answer.headers['x-export-block-hash'], ...rows.map((row) => row['block_hash'])];
  };
  const hashes = (blocks: readonly WorldBlock[]) => [blocks.at(-1)?.hash, ...blocks.map(({ hash }) => hash)];
  try {
    await write(old);
    expect(await exported()).toEqual(hashes(old));
    await replace(fresh.filter(isBelow));
    expect(await exported()).toEqual([503, 'unsettled']);
    // Blocks accepted on L1 are part of both forks.
    expect((await download('csv', { from_block: '5', to_block: String(L1) })).status).toBe(200);
    await write(fresh.filter(isBelow), 'block.reverted');
    await write(old.filter(isBelow));
    await replace(fresh.filter((block) => !isBelow(block)));
    expect(await exported()).toEqual([503, 'unsettled']);
    await replace(fresh.filter(isBelow));
    expect(await exported()).toEqual(hashes([...old.slice(0, 4), ...fresh]));
  } finally {
    await write([...old.slice(0, 4), ...fresh], 'block.reverted');
  }
});

test('an export has no cursor for a stream while blocks of its range are missing', async () => {
  const from = HEIGHTS + 10;
  const blocks = Array.from({ length: 4 }, (_, i) => blockAt(from + i));
  const cursorOf = async (first: number, last: number) => {
    const range = { from_block: String(first), to_block: String(last) };
    const { status, headers: answered } = await download('csv', { token: COIN, ...range });
    return [status, answered['x-stream-cursor'] !== undefined];
  };
  const written: WorldBlock[] = [];
  const add = async (...some: WorldBlock[]): Promise<void> => {
    await write(some);
    written.push(...some);
  };
  try {
    await add(...blocks.slice(0, 1), ...blocks.slice(2));
    expect(await cursorOf(from, from + 3)).toEqual([200, false]);
    expect(await cursorOf(from - 1, from)).toEqual([200, false]);
    expect(await cursorOf(from + 2, from + 3)).toEqual([200, true]);
    await add(...blocks.slice(1, 2));
    expect(await cursorOf(from, from + 3)).toEqual([200, true]);
    expect(await cursorOf(from, from + 9)).toEqual([200, true]);
  } finally {
    await write(written, 'block.reverted');
  }
  // The index begins with the lowest chunk.
  const { schema = '' } = (await openBuild(world.pool, owner, chainStatus)).names;
  await world.pool.query(`UPDATE ${schema}.chunks SET first_height = 5 WHERE first_height = 0`);
  await write(base.slice(0, 5), 'block.reverted');
  try {
    expect(await cursorOf(0, HEIGHTS)).toEqual([200, true]);
  } finally {
    await write(base.slice(0, 5));
    await world.pool.query(`UPDATE ${schema}.chunks SET first_height = 0 WHERE first_height = 5`);
  }
});

test.each(['folder', 'bucket'])(
  'files of heights accepted on L1 are written once to a %s, listed with their hashes and served by range',
  async (kind) => {
    const folder = mkdtempSync(join(tmpdir(), 'tds-export-'));
    const s3 = await startSimulatedS3();
    for (const [name, value] of Object.entries(s3.env)) vi.stubEnv(name, value);
    const to = kind === 'folder' ? folder : 's3://bucket/of transfers/';
    const build = async (...options: string[]) =>
      await tds({ ...world.env, ...s3.env }, 'export', 'build', '--to', to, ...options);
    const serving = await world.anotherApi({ env: { EXPORT_FILES: to } });
    const get = async (path: string, more: Record<string, string> = {}) =>
      await fetch(`${serving.url}/api/export/${path}`, { headers: { ...headers, ...more } });
    try {
      expect((await get('manifest.json')).status).toBe(404);
      const first = await build('--heights', '5');
      expect(first).toMatchObject({ code: 0, stderr: '' });
      const { heights, files } = exportManifest.parse(await (await get('manifest.json')).json());
      expect([heights, files.map((file) => [file.from_block, file.to_block])]).toEqual([
        5,
        [
          [0, 4],
          [5, 9],
        ],
      ]);
      for (const { url, rows, bytes, sha256: hash, from_block: from, to_block: to } of files) {
        const answer = await get(url);
        const body = Buffer.from(await answer.arrayBuffer());
        expect([answer.status, body.length, sha256(body)]).toEqual([200, bytes, hash]);
        const wanted = expected(chain, { from_block: String(from), to_block: String(to) });
        expect(wanted).toHaveLength(rows);
        expect(firstDifference((await rowsOf('parquet', body)).rows, wanted)).toBe(null);
        for (const [range, start, end] of [
          ['bytes=0-3', 0, 4],
          [`bytes=${bytes - 4}-`, bytes - 4, bytes],
          ['bytes=-8', bytes - 8, bytes],
          [`bytes=10-${bytes + 10}`, 10, bytes],
        ] as const) {
          const part = await get(url, { range });
          expect([part.status, part.headers.get('content-range')]).toEqual([
            206,
            `bytes ${start}-${end - 1}/${bytes}`,
          ]);
          expect(Buffer.from(await part.arrayBuffer()).equals(body.subarray(start, end))).toBe(true);
        }
        expect((await get(url, { range: `bytes=${bytes}-` })).status).toBe(416);
        const tag = `"${hash}"`;
        expect(answer.headers.get('etag')).toBe(tag);
        for (const [header, value, status, length] of [
          ['if-range', tag, 206, 4],
          ['if-range', '"other"', 200, bytes],
          ['if-range', `W/${tag}`, 200, bytes],
          ['if-range', answer.headers.get('date') ?? '', 200, bytes],
          ['if-none-match', tag, 304, 0],
          ['if-none-match', `"other", W/${tag}`, 304, 0],
          ['if-none-match', '*', 304, 0],
          ['if-none-match', '"other"', 206, 4],
          ['if-match', tag, 206, 4],
          ['if-match', `"other", ${tag}`, 206, 4],
          ['if-match', '*', 206, 4],
        ] as const) {
          const conditional = await get(url, { range: 'bytes=0-3', [header]: value });
          const size = (await conditional.arrayBuffer()).byteLength;
          expect([value, conditional.status, size, conditional.headers.get('etag')]).toEqual([
            value,
            status,
            length,
            tag,
          ]);
        }
        for (const value of ['"other"', `W/${tag}`, '"other",']) {
          const failed = await get(url, { 'if-match': value, 'if-none-match': tag });
          expect([value, failed.status, failed.headers.get('etag')]).toEqual([value, 412, tag]);
        }
        const head = await fetch(`${serving.url}/api/export/${url}`, {
          method: 'HEAD',
          headers: { ...headers, range: 'bytes=0-3' },
        });
        expect([head.status, head.headers.get('content-length'), head.headers.get('accept-ranges')]).toEqual([
          200,
          String(bytes),
          'bytes',
        ]);
      }
      expect((await build('--heights', '5')).stdout).toContain(
        'No new range of 5 heights is complete: blocks up to 11 are',
      );
      expect((await get('files/manifest.json')).status).toBe(404);
      expect((await build('--heights', '6')).code).toBe(1);
      expect([...s3.objects.keys()].length).toBe(kind === 'folder' ? 0 : files.length + 1);
    } finally {
      await s3.close();
      vi.unstubAllEnvs();
      await serving.close();
      rmSync(folder, { recursive: true, force: true });
    }
  },
);

test('a stream goes on behind an export, also where its blocks were reverted', async () => {
  const behind = async (query: Query) => {
    const { headers: answered } = await download('csv', query);
    return answered['x-stream-cursor'];
  };
  /** Heights of the blocks and transfers that a stream sends behind a cursor, and the height that an undo goes back to. */
  const follow = async ({ account, token }: Query, from: unknown) => {
    const filters = {
      ...(account === undefined ? {} : { account }),
      ...(token === undefined ? {} : { token }),
    };
    const query = new URLSearchParams({ ...filters, from: String(from), wait: '0', limit: '10000' });
    const seen: { undo: (number | undefined)[]; blocks: number[]; transfers: string[] } = {
      undo: [],
      blocks: [],
      transfers: [],
    };
    for await (const message of readLines(
      await fetch(`${world.url}/api/stream/transfers/?${query.toString()}`, { headers }),
    )) {
      if (message.type === 'undo') seen.undo.push(message.data.last_valid?.height);
      if (message.type === 'block') seen.blocks.push(message.data.height);
      if (message.type === 'transfer')
        seen.transfers.push(`${message.data.block} ${message.data.event_index}`);
    }
    return seen;
  };
  const transfersOf = (blocks: ReadonlyMap<number, WorldBlock>, query: Query, from: number): string[] =>
    expected(blocks, { ...query, from_block: String(from) }).map(
      (row) => `${row['block']} ${row['event_index']}`,
    );
  const heights = (from: number, to: number): number[] =>
    Array.from({ length: to - from + 1 }, (_, i) => from + i);

  const [all, of, late] = [
    { account: ACCOUNT },
    { token: COIN },
    { token: COIN, from_block: '115', to_block: '999' },
  ];
  const early = { token: COIN, to_block: '60' };
  const cursors = new Map(
    await Promise.all([all, of, late, early].map(async (query) => [query, await behind(query)] as const)),
  );
  for (const query of [all, of, late])
    expect(await follow(query, cursors.get(query))).toEqual({ undo: [], blocks: [], transfers: [] });
  expect(await follow(early, cursors.get(early))).toEqual({
    undo: [],
    blocks: heights(61, HEIGHTS - 1),
    transfers: transfersOf(chain, of, 61),
  });
  expect(await behind({ token: COIN, txhash: toFelt(0xe0_0005n) })).toBe(undefined);
  expect(await behind({ token: COIN, from_block: '500', to_block: '600' })).toBe(undefined);

  const { names: reverts } = await openBuild(world.pool, owner, revertedBlocks);
  await writeBlocks(owner, tail, { seq, offset: 1, type: 'block.reverted' }, reverts, [revertedBlocks]);
  await write(tail, 'block.reverted');
  await write(fork);
  const forked = chainOf([...base, ...fork]);
  for (const [query, from] of [
    [all, FORK],
    [of, FORK],
    [late, 115],
  ] as const)
    // Nothing notifies this process of blocks.
    await vi.waitFor(
      async () =>
        expect(await follow(query, cursors.get(query))).toEqual({
          undo: [FORK - 1],
          blocks: heights(from, HEIGHTS),
          transfers: transfersOf(forked, { ...query, to_block: '999' }, from),
        }),
      { timeout: 60_000 },
    );
  await write(fork, 'block.reverted');
  await write(tail);
});

test('every export has one whole chain, that of its block hash, while the chain changes', async () => {
  const chains = new Map(
    [[...base, ...tail], base, [...base, ...fork]].map((blocks) => [blocks.at(-1)?.hash, chainOf(blocks)]),
  );
  const seen = new Map<string, number>();
  let isOver = false;
  const flip = (async () => {
    for (let isForked = false; !isOver; isForked = !isForked) {
      await write(isForked ? fork : tail, 'block.reverted');
      await write(isForked ? tail : fork);
    }
    return null;
  })();
  const end = Date.now() + 8000;
  while (Date.now() < end || seen.size < 2) {
    const format = random.pick(formats);
    const query = random.pick(queries.slice(0, 6));
    const answer = await download(format, query);
    if (answer.status === 503) continue;
    const hash = String(answer.headers['x-export-block-hash']);
    const { rows } = await rowsOf(format, fileOf(answer));
    const wanted = expected(chains.get(hash as typeof COIN) ?? new Map(), query);
    expect(firstDifference(rows, wanted), `${hash} ${JSON.stringify(query)}`).toBe(null);
    seen.set(hash, (seen.get(hash) ?? 0) + 1);
  }
  isOver = true;
  await flip;
});

test('an export that a reorg overtakes has what the chain was, in every format', async () => {
  const count = await writeBulk(owner, names, BULK);
  const wanted = bulkRows(BULK, chain, L1);
  expect(wanted).toHaveLength(count);
  const { below, perBlock } = BULK;
  const sum = BigInt((below * perBlock * (perBlock - 1)) / 2);
  // A process sends one export of a user at a time.
  const apis = await Promise.all(formats.map(async () => await world.anotherApi()));
  try {
    const begun = await Promise.all(
      formats.map(async (format, i) => {
        const answer = await begin(`${apis[i]?.url}${pathOf(format, { token: BULK.token })}`, headers);
        return { format, answer, id: answer.headers['x-export-id'] };
      }),
    );
    // Blocks are reverted and all rows deleted while the clients have read next to nothing.
    await write(base.slice(-50), 'block.reverted');
    await deleteBulk(owner, names, BULK);
    for (const { format, id } of begun) expect((await record(id)).json.complete, format).toBe(false);
    // All are read before one is checked: a client that takes nothing for a minute is disconnected, and checking a file takes
    // so long that the connection of the next request may have been closed meanwhile.
    const files = await Promise.all(
      begun.map(async ({ format, answer, id }) => {
        const whole = await finish(answer);
        return { format, whole, recorded: await record(id) };
      }),
    );
    for (const { format, whole, recorded } of files) {
      const file = fileOf(whole);
      const { rows } = await rowsOf(format, file);
      expect(firstDifference(rows, wanted), format).toBe(null);
      expect(sumOf(rows)).toBe(sum);
      expect(whole.trailers).toEqual({ 'x-export-rows': String(count), 'x-export-sha256': sha256(file) });
      expect(recorded.json).toMatchObject({ rows: count, complete: true });
    }
  } finally {
    await Promise.all(apis.map((api) => api.close()));
    await write(base.slice(-50));
  }
});

test('a long export does not begin while its last block is reverted', async () => {
  const scratch = { indexed_blocks: 'scratch_blocks', indexed_block_ranges: 'scratch_ranges' };
  for (const [table, copy] of Object.entries(scratch))
    await owner.command(`CREATE TABLE IF NOT EXISTS ${copy} AS ${names[table]}`);
  await writeBulk(owner, names, BULK);
  const bulk = aTransfer({
    token: BULK.token,
    from: ACCOUNT,
    to: ACCOUNT,
    position: 1,
    txHash: toFelt(0xe1n),
  });
  const last = tail.slice(-1).map((block) => ({ ...block, transfers: [...block.transfers, bulk] }));
  const reverted = { seq: (seq += 1), offset: 1000 * seq, type: 'block.reverted' as const };
  await writeBlocks(owner, last, reverted, { ...names, ...scratch });
  const query = { token: BULK.token };
  const early = await begin(world.url + pathOf('csv', query), headers);
  expect([early.statusCode, early.headers['retry-after']]).toEqual([503, '2']);
  early.destroy();
  await write(last, 'block.reverted');
  await write(tail.slice(-1));
  const answer = await begin(world.url + pathOf('csv', query), headers);
  expect(answer.statusCode).toBe(200);
  answer.destroy();
  await deleteBulk(owner, names, BULK);
});

test.each<[string, (proxy: FaultProxy) => unknown]>([
  [
    'its query fails',
    async () =>
      await owner.command(
        `KILL QUERY WHERE current_database = currentDatabase() AND Settings['log_comment'] = 'export.transfers' ASYNC`,
      ),
  ],
  ['the connection of ClickHouse is cut', async (proxy: FaultProxy) => proxy.reset()],
])('an export breaks off visibly when %s', async (_, harm) => {
  await writeBulk(owner, names, BULK);
  const real = new URL(world.env['API_CLICKHOUSE_URL'] ?? '');
  const proxy = await startProxy({ host: real.hostname, port: Number(real.port) });
  real.host = `${proxy.host}:${proxy.port}`;
  const broken = await world.anotherApi({ env: { API_CLICKHOUSE_URL: real.href } });
  try {
    for (const format of formats) {
      const answer = await begin(broken.url + pathOf(format, { token: BULK.token }), headers);
      expect(answer.statusCode).toBe(200);
      await harm(proxy);
      expect(await outcomeOf(answer), format).toBe('Error: aborted');
      const { json } = await record(answer.headers['x-export-id']);
      expect(json).toMatchObject({ format, complete: false, rows: null, sha256: null });
      await vi.waitFor(() => expect(proxy.connections()).toBeLessThan(20));
    }
  } finally {
    await broken.close();
    await proxy.close();
  }
});

test('nothing is final that the tables may still have to undo', async () => {
  const { schema = '' } = (await openBuild(world.pool, owner, chainStatus)).names;
  const { build } = await openBuild(world.pool, owner, indexedBlocks);
  const log = { topic: topics.chainBlocks, topicId: 'any' };
  await createCheckpoints(world.pool, { consumer: indexedBlocks.name, build }, log, new Map([[0, 5]]));
  const accepted = {
    type: 'l1.accepted' as const,
    v: 1 as const,
    observed_at: 1,
    height: 60,
    final: { height: 60, log_ends: [6] },
  };
  const meta = { partition: 0, offset: 100, timestamp: 1, schema };
  await inTransaction(world.pool, async (tx) => await chainStatus.fold(tx, accepted, meta));
  const folder = mkdtempSync(join(tmpdir(), 'tds-export-'));
  const call = async (path: string) => await world.call('GET', `/api/${path}`, { headers });
  /** Highest heights: of a list, of a stream, of an export, of the files. */
  const finals = async () => {
    const { results } = (await call(`transfers/?token=${COIN}&from_block=5&to_block=70&order=asc&limit=100`))
      .json;
    const onL1 = (row: { status: string }): boolean => row.status === 'ACCEPTED_ON_L1';
    const stream = await fetch(`${world.url}/api/stream/transfers/?token=${COIN}&finality=l1&from=5&wait=0`, {
      headers,
    });
    const messages: StreamMessage[] = [];
    for await (const message of readLines(stream)) messages.push(message);
    const { rows } = await rowsOf('csv', fileOf(await download('csv', { token: COIN })));
    await tds(world.env, 'export', 'build', '--to', folder, '--heights', '10');
    const manifest = exportManifest.parse(JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')));
    const traced = (await call(`track-transfers/?token=${COIN}&account=${ACCOUNT}`)).json;
    return {
      list: Math.max(...results.filter(onL1).map((row: { block: number }) => row.block)),
      trace: Math.max(...traced.filter(onL1).map((row: { block: number }) => row.block)),
      blocks: messages.flatMap(({ type, data }) => (type === 'block' ? [data.height] : [])).at(-1),
      message: messages.flatMap(({ type, data }) => (type === 'final' ? [data.height] : [])),
      exported: rows.filter(({ finality }) => finality === 'ACCEPTED_ON_L1').at(-1)?.['block'],
      file: manifest.files.at(-1)?.to_block,
    };
  };
  const all = (height: number, file: number) => ({
    list: height,
    trace: height,
    blocks: height,
    message: [height],
    exported: String(height),
    file,
  });
  try {
    expect(await finals()).toEqual(all(L1, 9));
    await world.pool.query('UPDATE tds.checkpoints SET next_offset = 6 WHERE consumer = $1', [
      indexedBlocks.name,
    ]);
    // The tail is read anew by the first stream.
    await vi.waitFor(async () => expect(await finals()).toEqual(all(60, 59)), { timeout: 60_000 });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('a stream names the parameter that it does not accept', async () => {
  const path = (query: string): string => `/api/stream/transfers/?wait=0&${query}`;
  const ask = async (query: string, more: Record<string, string> = {}) => {
    const answer = await fetch(world.url + path(query), { headers: { ...headers, ...more } });
    const named = answer.status === 400 ? Object.keys(JSON.parse(await answer.text()).errors) : [];
    await answer.body?.cancel().catch(() => {});
    return [answer.status, ...named];
  };
  const read = async (query: string): Promise<StreamMessage[]> => {
    const messages: StreamMessage[] = [];
    for await (const message of readLines(await fetch(world.url + path(query), { headers })))
      messages.push(message);
    return messages;
  };
  const [first] = await read(`token=${COIN}&from=3&limit=1`);
  const cursor = first?.cursor ?? '';
  const forged = Buffer.from(cursor, 'base64url');
  forged.fill(1, 18, 50);
  for (const from of [
    '-1',
    '1.5',
    '1e3',
    '0x10',
    '4294967295',
    '99999999999999999999',
    cursor.slice(0, -1),
    cursor.slice(1),
    `${cursor}A`,
    `B${cursor.slice(1)}`,
    'A'.repeat(88),
    'A'.repeat(6000),
    forged.toString('base64url'),
    '%00',
  ]) {
    expect([from, ...(await ask(`token=${COIN}&from=${from}`))]).toEqual([from, 400, 'from']);
  }
  for (const [query, name] of [
    [`token=${NFT}&from=${cursor}`, 'from'],
    [`token=${COIN}&finality=l1&from=${cursor}`, 'from'],
    [`token=${COIN}&from=5&from=${cursor}x`, 'from'],
    ['token=0x', 'token'],
    [`token=${COIN}&token_address=${NFT}`, 'token_address'],
    ['finality=l3', 'finality'],
    ['wait=61', 'wait'],
    ['wait=-1', 'wait'],
    ['wait=1.5', 'wait'],
  ] as const) {
    expect([query, ...(await ask(query))]).toEqual([query, 400, name]);
  }
  const events = { accept: 'text/event-stream' };
  expect(await ask('from=0', { ...events, 'last-event-id': cursor })).toEqual([400, 'Last-Event-ID']);
  expect(await ask('from=0', { ...events, 'last-event-id': '7' })).toEqual([400, 'Last-Event-ID']);
  expect(await ask('from=0', { 'last-event-id': '7' })).toEqual([200]);
  // Above the newest block; and of duplicates the last counts, as everywhere.
  expect((await read('from=4294967294')).filter(({ type }) => type !== 'final')).toEqual([]);
  expect((await read(`token=${COIN}&from=x&from=3&limit=1`)).map((message) => message.cursor)).toEqual([
    cursor,
  ]);
});

test('a stream is of events only for a client that prefers them', async () => {
  const typeOf = async (accept: string) => {
    const answer = await fetch(`${world.url}/api/stream/transfers/?wait=0`, {
      headers: { ...headers, accept },
    });
    await answer.body?.cancel();
    return answer.headers.get('content-type');
  };
  for (const accept of ['text/event-stream', 'text/event-stream, */*;q=0.1', 'Text/Event-Stream;q=0.5'])
    expect(await typeOf(accept)).toBe('text/event-stream; charset=utf-8');
  for (const accept of [
    '*/*',
    'text/html, image/gif, *; q=.2, */*; q=.2',
    'application/json',
    'text/event-stream;q=0',
    'text/event-stream;q=x, application/x-ndjson',
    ';;;,',
  ])
    expect([accept, await typeOf(accept)]).toEqual([accept, 'application/x-ndjson']);
});

test('a stream reads blocks with many transfers in parts', async () => {
  const token = toFelt(0xb02cn);
  const rows = await writeBulk(owner, names, { token, perBlock: 500, below: FORK });
  const answer = await fetch(`${world.url}/api/stream/transfers/?token=${token}&from=0`, {
    headers: { ...headers, accept: 'text/event-stream' },
  });
  const seen = new Set<string>();
  for await (const message of readEvents(answer)) {
    if (message.type === 'transfer') seen.add(`${message.data.block} ${message.data.event_index}`);
    if (message.type === 'block' && message.data.height === FORK) break;
  }
  expect(seen.size).toBe(rows);
});

/** Begins an export whose statement, and the count of its rows, have so little memory. */
async function openWithin(
  bytes: number,
  query: Partial<TransferSearch>,
  asked: { readonly format: Format; readonly maxPrices?: number },
) {
  const limited: Pick<ClickHouse, 'rows' | 'file'> = {
    rows: async (read, params, options = {}) => {
      const limit = read.name === 'export.count' ? { max_memory_usage: bytes } : {};
      return await owner.rows(read, params, { ...options, settings: { ...options.settings, ...limit } });
    },
    file: async (statement, params, options) => {
      const settings = { ...options.settings, max_memory_usage: bytes };
      return await owner.file(statement, params, { ...options, settings });
    },
  };
  const { signal } = new AbortController();
  const clickhouse = { ...owner, ...limited };
  const none = { felts: {}, block: null, startTime: null, endTime: null, asOf: null };
  const search = { ...none, fromBlock: null, toBlock: null, order: 'asc' as const, ...query };
  const reading = { clickhouse, pool: world.pool, signal, servedBuilds: () => servedBuilds(world.pool) };
  return await openExport(reading, { ...asked, search });
}

test('an export holds the prices of its range, or if these are too many those of the hours in which it has transfers', async () => {
  const token = toFelt(0x9a1dn);
  const hourMs = 3_600_000;
  const start = Math.ceil(START_MS / hourMs + 1) * hourMs;
  const hours = 520;
  // A price every second: none in some hours, and in others none in the first half.
  const isPriced = (ms: number): boolean => {
    const hour = Math.floor(ms / hourMs);
    return hour % 5 !== 0 && (hour % 5 !== 1 || ms % hourMs >= hourMs / 2);
  };
  const priceOf = (ms: number): number | null => {
    for (let k = Math.floor((ms - 1 - start) / 1000); k >= 0; k -= 1)
      if (isPriced(start + 1 + k * 1000)) return (k + 1) / 8;
    return null;
  };
  const { names: tables } = await openBuild(world.pool, owner, prices);
  const [points = '', hourly = ''] = [tables['price_points'], tables['ohlc_hourly']];
  const tokenSql = `toFixedString(unhex('${token.slice(2)}'), 32)`;
  await owner.command(`INSERT INTO ${points} (token, hour, observed_at, price, usd, source, seq, is_deleted)
    SELECT ${tokenSql}, intDiv(at, ${hourMs}) AS h, ${start} + 1 + number * 1000 AS at, number + 1, toDecimalString((number + 1) / 8, 40), 'one', number, 0
    FROM numbers(${hours * 3600}) WHERE h % 5 != 0 AND (h % 5 != 1 OR at % ${hourMs} >= ${hourMs / 2})`);
  const touched = Array.from({ length: hours }, (_, i) => ({ token, hour: start / hourMs + i }));
  for (const { sql, params } of prices.derive?.(touched) ?? [])
    await owner.command(withNames(sql, tables), { params });
  const blocks = Array.from({ length: 31 }, (_, i): WorldBlock => {
    const height = HEIGHTS + i;
    const about = {
      token,
      from: ACCOUNT,
      to: ACCOUNT,
      position: 1,
      txHash: toFelt(0x9a1d_0000n + BigInt(i)),
    };
    const timestamp = start / 1000 + i * 17 * 3600 + i * 113 - 1;
    return { height, timestamp, chunk: 'live', transfers: [aTransfer(about)] };
  });
  const wanted = blocks.map(({ timestamp }) => priceOf(timestamp * 1000));
  const used = new Set(blocks.map(({ timestamp }) => Math.floor((timestamp * 1000) / hourMs)));
  const pointsIn = (hour: number): number => (hour * hourMs < start ? 0 : ([0, 1800][hour % 5] ?? 3600));
  const needed = Array.from({ length: 512 }, (_, i) => start / hourMs + i - 1)
    .map((hour) => (used.has(hour) ? pointsIn(hour) + 3 : Math.min(pointsIn(hour), 1)))
    .reduce((sum, n) => sum + n, 0);
  const tooMany = (prices: string) => ({
    non_field_errors: [`The export needs more than ${prices} prices; ask for a shorter range.`],
  });
  const setPoints = async (hour: number): Promise<void> =>
    await owner.command(`INSERT INTO ${hourly} SELECT * REPLACE (4000000000 AS points, seq + 1 AS seq)
      FROM ${hourly} FINAL WHERE token = ${tokenSql} AND hour = ${hour}`);
  const unused = touched.find(({ hour }) => hour % 5 > 1 && !used.has(hour))?.hour ?? 0;
  const last = Math.max(...[...used].filter((hour) => hour % 5 > 1));
  const reads = vi.spyOn(owner, 'rows');
  try {
    await write(blocks);
    for (const query of [
      { felts: { token } },
      { felts: { account: ACCOUNT }, fromBlock: HEIGHTS },
      { fromBlock: HEIGHTS, toBlock: HEIGHTS + 30 },
    ])
      for (const [bytes, maxPrices] of [
        [160_000_000, 6_000_000],
        // Other tests left removed rows of a token with prices.
        [100_000_000, needed + 100],
      ] as const) {
        const { file } = await openWithin(bytes, query, { format: 'csv', maxPrices });
        const { rows } = await rowsOf('csv', await buffer(file));
        expect(rows.map((row) => row['price_usd'])).toEqual(wanted);
        const isByHours = reads.mock.calls.some(([{ name }]) => name === 'export.hours');
        expect(isByHours).toBe(maxPrices < 6_000_000);
        reads.mockClear();
      }
    const openWith = async (maxPrices: number) =>
      await openWithin(100_000_000, { felts: { token } }, { format: 'csv', maxPrices });
    (await openWith(needed)).file.destroy();
    const errors = tooMany(figure(needed - 1));
    await expect(openWith(needed - 1)).rejects.toMatchObject({ status: 400, errors });
    // An hour with so many prices that they would not fit into memory.
    await setPoints(unused);
    const { rows } = await rowsOf('csv', (await download('csv', { token })).body);
    expect(rows.map((row) => row['price_usd'])).toEqual(wanted);
    await setPoints(last);
    const { status, body } = await download('csv', { token });
    expect([status, JSON.parse(body.toString()).errors]).toEqual([400, tooMany('6,000,000')]);
  } finally {
    reads.mockRestore();
    await write(blocks, 'block.reverted');
  }
});

test('more transfers than fit into the memory of a statement are exported', async () => {
  // The last test: their token is that of other transfers, which every block names.
  const written = await writeBulk(owner, names, { token: COIN, perBlock: 30_000, below: FORK });
  // The rows of Parquet are counted before it begins.
  const ofToken = await openWithin(250_000_000, { felts: { token: COIN } }, { format: 'parquet' });
  expect(ofToken.rows).toBeGreaterThan(written);
  ofToken.file.destroy();
  const { file } = await openWithin(700_000_000, { fromBlock: 0, toBlock: HEIGHTS }, { format: 'ndjson' });
  // It is sorted before it begins.
  const [first] = (await once(file, 'data')) as [Buffer];
  expect(JSON.parse(first.toString().split('\n')[0] ?? '')).toMatchObject({ block: 0 });
  file.destroy();
});
