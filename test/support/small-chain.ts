import { createClickHouse } from '../../infra/clickhouse/client.ts';
import { inTransaction } from '../../infra/postgres/client.ts';
import { balances } from '../../projections/balances/projector.ts';
import { openBuild } from '../../projections/engine/builds.ts';
import { latestPrices } from '../../projections/latest-prices/projector.ts';
import { nftMetadata } from '../../projections/nft-metadata/projector.ts';
import { servedBuilds } from '../../projections/served.ts';
import { chainStatus } from '../../projections/chain-status/projector.ts';
import { tokens } from '../../projections/tokens/projector.ts';
import { toFelt } from '../../schemas/felt.ts';
import type { ChainStatusMessage } from '../../schemas/messages/chain-status.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import type { ApiWorld } from './api-world.ts';
import { aTransfer, worldProjections, writeBlocks } from './transfer-world.ts';
import type { TableNames, WorldBlock } from './transfer-world.ts';

/** A chain of six transfers, with its tokens and status, small enough to check by hand. */

const felt = (value: number | bigint) => toFelt(BigInt(value));
export const [COIN, NFT, MULTI, ODD, NAMELESS, HIDDEN] = [
  felt(0xc01),
  felt(0xaf7),
  felt(0x1155),
  felt(0x0dd),
  felt(0xae0),
  felt(0x41dd),
];
export const [ALICE, BOB, CAROL] = [felt(0xa11ce), felt(0xb0b), felt(0xca201)];
export const [TX1, TX2] = [felt(0xf1), felt(0xf2)];
export const MAX = (1n << 256n) - 1n;

/** Newest last; heights 10 and 11 are accepted on L1. */
const blocks: readonly WorldBlock[] = [
  {
    height: 10,
    timestamp: 1_700_000_010,
    chunk: 'blocks-0',
    transfers: [
      aTransfer({ token: COIN, from: ALICE, to: BOB, position: 0, txHash: TX1, amount: 0n }),
      aTransfer({ token: COIN, from: ALICE, to: ALICE, position: 3, txHash: TX1, amount: MAX, isFee: true }),
    ],
  },
  { height: 11, timestamp: 1_700_000_012, chunk: 'blocks-0', transfers: [] },
  {
    height: 40,
    timestamp: 1_700_000_100,
    chunk: 'live',
    transfers: [
      aTransfer({ token: NFT, from: BOB, to: CAROL, position: 1, txHash: TX2, kind: 'erc721', tokenId: MAX }),
      aTransfer({
        token: MULTI,
        from: BOB,
        to: CAROL,
        position: 2,
        item: 0,
        txHash: TX2,
        kind: 'erc1155',
        tokenId: 0n,
        amount: 1n << 128n,
      }),
      aTransfer({
        token: MULTI,
        from: BOB,
        to: CAROL,
        position: 2,
        item: 1,
        txHash: TX2,
        kind: 'erc1155',
        tokenId: 1n << 128n,
        amount: 7n,
      }),
      aTransfer({
        token: ODD,
        from: CAROL,
        to: BOB,
        position: 4,
        txHash: TX2,
        kind: 'unknown',
        amount: 99n,
        executionStatus: 'REVERTED',
        fee: MAX,
      }),
    ],
  },
];

export const NAME = `a'b"c;\\ %_ \u{1F980} \u202e`;

const described = (token: string, fields: Partial<Extract<TokensMessage, { type: 'token.described' }>>) => ({
  type: 'token.described' as const,
  v: 1 as const,
  token: felt(BigInt(token)),
  standard: 'erc20' as const,
  class_hash: null,
  name: null,
  symbol: null,
  decimals: null,
  block: 10,
  observed_at: 1,
  ...fields,
});

const tokenMessages: readonly TokensMessage[] = [
  described(COIN, { name: NAME, symbol: 'C\0OIN', decimals: 6 }),
  described(NFT, { standard: 'erc721', name: 'Crabs', symbol: 'CRAB' }),
  described(MULTI, { standard: 'erc1155' }),
  described(NAMELESS, {}),
  described(HIDDEN, { name: 'Scam coin', symbol: 'SCAM', decimals: 255 }),
  {
    type: 'token.listed',
    v: 1,
    token: NFT,
    common: true,
    verified: true,
    logo: 'https://example.org/a.png',
    observed_at: 2,
  },
  { type: 'token.listed', v: 1, token: HIDDEN, hidden: true, public: true, observed_at: 2 },
];

const at = { v: 1 as const, observed_at: 1 };
const statusMessages: readonly ChainStatusMessage[] = [
  {
    type: 'network.identified',
    ...at,
    chain_id: felt(0x534e5f53494dn),
    spec_version: '0.10.2',
    has_header_counts: true,
    has_l1_tag: true,
  },
  { type: 'chunk.opened', ...at, name: 'blocks-0', start: 0, end: 20 },
  { type: 'chunk.opened', ...at, name: 'blocks-21', start: 21, end: 30 },
  { type: 'chunk.opened', ...at, name: 'blocks-31', start: 31, end: 31 },
  { type: 'chunk.opened', ...at, name: 'live', start: 32, end: null },
  { type: 'l1.accepted', ...at, height: 11, final: { height: 11, log_ends: [] } },
];

/** Fills the stores of an API with the chain, or these blocks instead, through the projectors; returns an API key. */
export async function writeSmallChain(
  world: ApiWorld,
  written: readonly WorldBlock[] = blocks,
): Promise<{ apiKey: string; names: TableNames }> {
  const owner = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const builds = [];
  for (const projection of worldProjections) builds.push(await openBuild(world.pool, owner, projection));
  const names = Object.assign({}, ...builds.map((build) => build.names));
  await writeBlocks(owner, written, { seq: 1, offset: 1 }, names);
  const schemaOf = async (projection: Parameters<typeof openBuild>[2]): Promise<string> =>
    (await openBuild(world.pool, owner, projection)).names['schema'] ?? '';
  const [tokenSchema, statusSchema] = [await schemaOf(tokens), await schemaOf(chainStatus)];
  await owner.close();
  const meta = { partition: 0, timestamp: 1 };
  await inTransaction(world.pool, async (tx) => {
    for (const [offset, message] of tokenMessages.entries()) {
      await tokens.fold(tx, message, { ...meta, offset, schema: tokenSchema });
    }
    for (const [offset, message] of statusMessages.entries()) {
      await chainStatus.fold(tx, message, { ...meta, offset, schema: statusSchema });
    }
  });
  const user = await world.makeUser('reader');
  const made = await world.call('POST', '/api/users/auth/create-api-key/', {
    token: user.token,
    json: { name: 'k' },
  });
  return { apiKey: made.json.key, names };
}

const place = { partition: 0, offset: 0, timestamp: 0 };

/** A balance that the observer would have read after a block. */
export async function writeBalance(
  world: ApiWorld,
  read: {
    readonly account: string;
    readonly token: string;
    readonly balance: string;
    readonly block: number;
  },
): Promise<void> {
  const now = Date.now();
  const observed = balances.topic.schema.parse({
    type: 'balance.observed',
    v: 1,
    ...read,
    block_hash: toFelt(0xb10c_0000n + BigInt(read.block)),
    observed_at: now,
    requested_at: now,
    l1_height: null,
  });
  const schema = (await servedBuilds(world.pool)).schema('balances');
  await inTransaction(world.pool, async (tx) => {
    await balances.fold(tx, observed, { ...place, schema });
  });
}

/** What the observer would have fetched: a balance, a price and the metadata of an NFT. */
export async function writeObserved(world: ApiWorld): Promise<void> {
  await writeBalance(world, { account: BOB, token: NFT, balance: '3', block: 40 });
  const now = Date.now();
  const priced = latestPrices.topic.schema.parse({
    type: 'price.observed',
    v: 1,
    token: COIN,
    price: '1.5',
    source: 'test',
    confidence: null,
    observed_at: now,
    requested_at: now,
  });
  const fetched = nftMetadata.topic.schema.parse({
    type: 'nft.metadata_fetched',
    v: 1,
    token: NFT,
    token_id: '77',
    uri: 'ipfs://crab/77',
    name: 'Crab 77',
    description: null,
    image: 'ipfs://crab/77.png',
    external_url: null,
    animation_url: null,
    attributes: [],
    observed_at: now,
  });
  const served = await servedBuilds(world.pool);
  await inTransaction(world.pool, async (tx) => {
    await nftMetadata.fold(tx, fetched, { ...place, schema: served.schema('nft-metadata') });
    await latestPrices.fold(tx, priced, { ...place, schema: served.schema('latest-prices') });
  });
}
