import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import type { Publisher } from '../../../infra/kafka/client.ts';
import type { Consumption } from '../../../infra/kafka/consumption.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { metadataOf } from '../../../projections/nft-metadata/queries.ts';
import { nftMetadata } from '../../../projections/nft-metadata/projector.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { until } from '../../support/projection-world.ts';
import { BOB, CAROL, COIN, MAX, MULTI, NFT, TX2, writeSmallChain } from '../../support/small-chain.ts';

/** The routes of NFTs over HTTP; the test answers requests on the log as the observer of metadata would. */

let world: ApiWorld;
let apiKey = '';
let run: ProjectionRun;
let asked: Consumption;
let publisher: Publisher;
let requests: string[] = [];
/** A contract of NFTs that are too large for a page. */
const LARGE = toFelt(0x1a46en);
/** What the observer makes of a request, by id. */
const finds = new Map<string, Partial<NftMessage> & Pick<NftMessage, 'type'>>();

beforeAll(async () => {
  world = await apiWorld({ IPFS_GATEWAY_URL: 'http://127.0.0.1:9/ipfs/' });
  ({ apiKey } = await writeSmallChain(world));
  publisher = world.kafka.publisher();
  run = await runPostgresProjection({
    kafka: world.kafka,
    pool: world.pool,
    projection: nftMetadata,
    groupId: 'nft-metadata',
    log: createLogger('test', 'silent'),
    metrics: createProjectionMetrics(createMetrics('test')),
  });
  asked = await world.kafka.consume({
    groupId: 'observer',
    topics: [topics.requests],
    startAt: async () => 0,
    async onBatch({ messages }) {
      for (const { value } of messages) {
        const message = requestsMessage.parse(JSON.parse(value.toString()));
        if (message.type !== 'nft.metadata_requested') continue;
        requests.push(message.token_id);
        const found = finds.get(message.token_id);
        if (found !== undefined) await publish(message.token, message.token_id, found);
      }
    },
    onCrash: () => {},
  });
});
afterAll(async () => {
  await asked.stop();
  await run.stop();
  await publisher.close();
  await world.close();
});
beforeEach(() => {
  requests = [];
});

async function publish(
  token: Felt,
  tokenId: string,
  found: Partial<NftMessage> & Pick<NftMessage, 'type'>,
): Promise<void> {
  const empty = { name: null, description: null, image: null, external_url: null, animation_url: null };
  const fetched = { uri: 'https://example.org/1.json', ...empty, attributes: [] };
  const failed = {
    uri: null,
    cause: 'unavailable',
    reason: 'HTTP 500',
    attempt: 1,
    retry_at: Date.now() + 300_000,
  };
  const value = topics.nft.schema.parse({
    v: 1,
    token,
    token_id: tokenId,
    observed_at: Date.now(),
    ...(found.type === 'nft.metadata_fetched' ? fetched : failed),
    ...found,
  });
  await publisher.publish(topics.nft, [{ key: `${token}:${tokenId}`, value }]);
}

async function folded(token: Felt, tokenId: string): Promise<void> {
  await until(async () => {
    const schema = (await servedBuilds(world.pool)).schema('nft-metadata');
    return (await metadataOf(world.pool, schema, [{ token, tokenId }])).size === 1;
  });
}

const get = (path: string): Promise<Answer> => world.call('GET', path, { headers: { 'api-key': apiKey } });
const metadata = (id: string | bigint, token: Felt = NFT): Promise<Answer> =>
  get(`/api/nft/metadata/?token_address=${token}&nft_token_id=${id}`);

const carolsCrab = {
  token_address: NFT,
  nft_token_id: MAX.toString(),
  last_transfer_block: 40,
  collection_name: 'Crabs',
  collection_symbol: 'CRAB',
  collection_logo: 'https://example.org/a.png',
  is_erc721: true,
  is_erc1155: false,
};
const carolsItem = (id: bigint) => ({
  token_address: MULTI,
  nft_token_id: id.toString(),
  last_transfer_block: 40,
  collection_name: null,
  collection_symbol: null,
  collection_logo: null,
  is_erc721: false,
  is_erc1155: true,
});

describe('/api/nft/owner/', () => {
  it('answers another method with the usual error body', async () => {
    const { status, json } = await world.call('POST', '/api/nft/owner/', { headers: { 'api-key': apiKey } });
    expect([status, json.success, json.code]).toEqual([405, false, 'method_not_allowed']);
  });

  it.each([
    ['an ERC-721', NFT, MAX.toString()],
    ['an id in hex', NFT, `0x${'f'.repeat(64)}`],
    ['an ERC-1155', MULTI, '0'],
  ])('returns the account that received %s last', async (_, token, id) => {
    const { status, json } = await get(`/api/nft/owner/?token_address=${token}&nft_token_id=${id}`);
    expect(status).toBe(200);
    expect(json).toEqual({
      success: true,
      data: {
        token_address: token,
        nft_token_id: BigInt(id).toString(),
        owner_address: CAROL,
        last_transfer_block: 40,
        last_transfer_timestamp: '2023-11-14T22:15:00Z',
        last_transfer_txhash: TX2,
      },
    });
  });

  it.each([
    ['another id', NFT, '1'],
    ['a coin', COIN, '0'],
  ])('is 404 of %s', async (_, token, id) => {
    const { status, json } = await get(`/api/nft/owner/?token_address=${token}&nft_token_id=${id}`);
    expect(status).toBe(404);
    expect(json).toMatchObject({ success: false, detail: 'No transfers of this NFT.' });
  });
});

describe('/api/nft/owned-by/', () => {
  const owned = (query: string): Promise<Answer> =>
    get(`/api/nft/owned-by/?account_address=${CAROL}${query}`);

  it('lists holdings by contract and id, without missing metadata', async () => {
    const { status, json } = await owned('');
    expect(status).toBe(200);
    expect(json).toEqual({
      success: true,
      page: 1,
      page_size: 20,
      count: 3,
      data: [carolsCrab, carolsItem(0n), carolsItem(1n << 128n)].toSorted((a, b) =>
        a.token_address < b.token_address ? -1 : 1,
      ),
    });
  });

  it.each([
    ['&page_size=2&page=2', 2, 2, 1],
    ['&page_size=2&page=last', 2, 2, 1],
    ['&page_size=1000', 1, 100, 3],
    ['&page_size=x', 1, 20, 3],
    [`&token_address=${MULTI}`, 1, 20, 2],
  ])('pages: %s', async (query, page, size, rows) => {
    const { json } = await owned(query);
    expect(json).toMatchObject({ page, page_size: size, count: query.includes('token_address') ? 2 : 3 });
    expect(json.data).toHaveLength(rows);
  });

  it.each(['2', '0', 'x', '99999999999'])('is 404 on page %s', async (page) => {
    const { status, json } = await owned(`&page=${page}`);
    expect([status, json.detail]).toEqual([404, 'Invalid page.']);
  });

  it('is empty for accounts that received nothing or sent it on, and for the zero address', async () => {
    for (const account of [BOB, ZERO_FELT, '0x1234']) {
      const { status, json } = await get(`/api/nft/owned-by/?account_address=${account}`);
      expect([status, json]).toEqual([200, { success: true, page: 1, page_size: 20, count: 0, data: [] }]);
    }
  });

  it('adds the five metadata fields only if fetched and not excluded', async () => {
    await publish(NFT, MAX.toString(), {
      type: 'nft.metadata_fetched',
      uri: 'ipfs://crab/{id}',
      image: 'ipfs://ipfs/crab/1 #.png',
      attributes: [{ trait_type: 'claws', value: '2' }],
    });
    await publish(MULTI, '0', { type: 'nft.metadata_failed', uri: 'https://example.org/x' });
    await Promise.all([folded(NFT, MAX.toString()), folded(MULTI, '0')]);
    const shown = {
      ...carolsCrab,
      name: null,
      image: 'http://127.0.0.1:9/ipfs/crab/1 %23.png',
      description: null,
      attributes: [{ trait_type: 'claws', value: '2' }],
      metadata_uri: 'ipfs://crab/{id}',
    };
    const entry = async (query: string, token: Felt): Promise<unknown> =>
      (await owned(`${query}&token_address=${token}`)).json.data[0];
    expect(await entry('', NFT)).toEqual(shown);
    expect(await entry('&include_metadata=yes', NFT)).toEqual(shown);
    expect(await entry('&include_metadata=false', NFT)).toEqual(carolsCrab);
    expect(await entry('', MULTI)).toEqual(carolsItem(0n));
  });
});

describe('/api/nft/metadata/', () => {
  it('fetches missing metadata once, and serves it from then on', async () => {
    finds.set('7', { type: 'nft.metadata_fetched', name: 'Seven', image: 'data:image/png;base64,AA==' });
    const expected = {
      success: true,
      data: {
        token_address: NFT,
        nft_token_id: '7',
        name: 'Seven',
        description: null,
        image: 'data:image/png;base64,AA==',
        external_url: null,
        animation_url: null,
        attributes: [],
        metadata_uri: 'https://example.org/1.json',
      },
    };
    for (const answer of [await metadata(7n), await metadata('0x7'), await metadata(7n)])
      expect([answer.status, answer.json]).toEqual([200, expected]);
    expect(requests).toEqual(['7']);
  });

  it('is 404 with the time of the next attempt, and fetches nothing before', async () => {
    const retryAt = Date.now() + 60_000;
    finds.set('8', { type: 'nft.metadata_failed', retry_at: retryAt });
    for (const { status, json } of [await metadata(8n), await metadata(8n)]) {
      expect(status).toBe(404);
      expect(json).toMatchObject({
        success: false,
        detail: 'Metadata unavailable.',
        retry_at: new Date(retryAt).toISOString(),
      });
      expect(json.permanent).toBeUndefined();
    }
    expect(requests).toEqual(['8']);
  });

  it("has the chain's own reason for detail where the contract reverted", async () => {
    finds.set('9', { type: 'nft.metadata_failed', cause: 'reverted', reason: 'ERC721: invalid token ID' });
    expect((await metadata(9n)).json).toMatchObject({ success: false, detail: 'ERC721: invalid token ID' });
  });

  it('says that it is permanent after the last attempt, and fetches nothing', async () => {
    await publish(NFT, '10', { type: 'nft.metadata_failed', attempt: 10, retry_at: null });
    await folded(NFT, '10');
    const { status, json } = await metadata(10n);
    expect(status).toBe(404);
    expect(json).toMatchObject({ success: false, detail: 'Metadata unavailable.', permanent: true });
    expect(json.retry_at).toBeUndefined();
    expect(requests).toEqual([]);
  });

  it('fetches again when the next attempt is due, and keeps the result', async () => {
    await publish(NFT, '11', { type: 'nft.metadata_failed', retry_at: Date.now() - 1 });
    await folded(NFT, '11');
    finds.set('11', { type: 'nft.metadata_fetched', name: 'Late' });
    expect((await metadata(11n)).json).toMatchObject({ data: { name: 'Late' } });
    expect(requests).toEqual(['11']);
    await publish(NFT, '11', { type: 'nft.metadata_failed', attempt: 2 });
    await publish(NFT, '12', { type: 'nft.metadata_failed' });
    await folded(NFT, '12');
    expect((await metadata(11n)).json).toMatchObject({ data: { name: 'Late' } });
  });

  it('is 503 when no observer answers in time', { timeout: 20_000 }, async () => {
    const { status, json, headers } = await metadata(13n);
    expect([status, json.code, headers.get('retry-after')]).toEqual([503, 'metadata_pending', '5']);
  });
});

describe('/api/nft/collection/', () => {
  it('lists the fetched NFTs of a contract by numeric id, and fetches nothing', async () => {
    for (const id of ['100', '20', '3']) {
      await publish(MULTI, id, { type: 'nft.metadata_fetched', name: `item ${id}`, image: 'ipfs://a/b' });
    }
    await publish(MULTI, '4', { type: 'nft.metadata_failed' });
    for (const id of ['100', '20', '3', '4']) await folded(MULTI, id);
    const list = (query: string): Promise<Answer> =>
      get(`/api/nft/collection/?token_address=${MULTI}${query}`);
    const { json } = await list('&page_size=2');
    expect(json).toMatchObject({ success: true, token_address: MULTI, page: 1, page_size: 2, count: 3 });
    expect(json.data.map((row: { nft_token_id: string }) => row.nft_token_id)).toEqual(['3', '20']);
    expect(json.data[0]).toEqual({
      nft_token_id: '3',
      name: 'item 3',
      description: null,
      image: 'http://127.0.0.1:9/ipfs/a/b',
      external_url: null,
      animation_url: null,
      attributes: [],
      metadata_uri: 'https://example.org/1.json',
    });
    expect((await list('&page_size=2&page=2')).json.data).toMatchObject([{ nft_token_id: '100' }]);
    expect((await list('&page_size=2&page=3')).status).toBe(404);
    expect((await get(`/api/nft/collection/?token_address=${COIN}`)).json).toMatchObject({
      count: 0,
      page: 1,
      data: [],
    });
    expect(requests).toEqual([]);
  });

  it('omits the long fields of an NFT that is too large for a page, and of no other', async () => {
    const art = (length: number): string => `data:image/png;base64,${'A'.repeat(length)}`;
    const large = {
      name: 'large',
      description: 'x'.repeat(8193),
      image: art(60_000),
      external_url: 'https://example.org/1',
      animation_url: art(20_000),
      attributes: Array.from({ length: 500 }, () => ({ trait_type: 'a'.repeat(10), value: 'b'.repeat(10) })),
    };
    const small = { ...large, name: 'small', attributes: [{ trait_type: 'a', value: 'b' }] };
    await publish(LARGE, '1', { type: 'nft.metadata_fetched', ...large });
    await publish(LARGE, '2', { type: 'nft.metadata_fetched', ...small });
    for (const id of ['1', '2']) await folded(LARGE, id);
    const { json } = await get(`/api/nft/collection/?token_address=${LARGE}`);
    const cut = { ...large, description: null, image: null, animation_url: null, attributes: [] };
    expect(json.data).toMatchObject([cut, small]);
    expect((await metadata('1', LARGE)).json.data).toMatchObject(large);
  });
});
