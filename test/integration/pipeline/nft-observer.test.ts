import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';

import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';

import { loadConfig } from '../../../infra/config.ts';
import { createSimulatedGateway } from '../../support/simulated-gateway.ts';
import type { SimulatedGateway } from '../../support/simulated-gateway.ts';
import { parseNetwork } from '../../../infra/networks.ts';
import { createEgress } from '../../../pipeline/egress/egress.ts';
import { createNodeMetrics } from '../../../pipeline/node/metrics.ts';
import { createNode } from '../../../pipeline/node/node.ts';
import { createBlockFeed } from '../../../pipeline/observe/block-feed.ts';
import { createBackfillCheck } from '../../../pipeline/observe/backfill.ts';
import { isRebuilding } from '../../../projections/engine/builds.ts';
import { createObserverMetrics } from '../../../pipeline/observe/metrics.ts';
import { runNftObserver } from '../../../pipeline/observe/nft/observer.ts';
import { createNftStore } from '../../../pipeline/observe/nft/store.ts';
import type { ObserverRun } from '../../../pipeline/observe/observer.ts';
import type { KnownNft } from '../../../projections/nft-transfers/queries.ts';
import { ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import { nftMessage } from '../../../schemas/messages/nft.ts';
import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { ART, ITEMS, accepted, batchEvent, makeBlock, transferEvent } from '../../support/chain-messages.ts';
import { observerWorld } from '../../support/observer-world.ts';
import type { ObserverWorld } from '../../support/observer-world.ts';
import { uriNode } from '../../support/uri-node.ts';
import type { UriNode } from '../../support/uri-node.ts';
import { isConsumed, logOf } from '../../support/topic.ts';

/** The NFT observer with Kafka and PostgreSQL; node, gateway and hosts are simulated at their wire protocols. */

const [ANNA, BERT] = [toFelt(0xa11an), toFelt(0xbe47n)];
const CID = 'QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG';
/** A request this much before the retry time causes an attempt, because clocks differ. */
const CLOCK_SKEW_MS = 5000;
const DAY_MS = 86_400_000;
const LOOPBACK = ['127.0.0.0/8'].flatMap((text) => parseNetwork(text) ?? []);

let world: ObserverWorld;
let node: UriNode;
let gateway: SimulatedGateway;
/** The NFT observer and its feed, which is stopped first. */
let running: ObserverRun[] = [];
let releases: (() => Promise<void>)[] = [];
/** The observer's clock, which only the tests advance. */
let now = 1_700_000_000_000;
let height = 0;
/** Every NFT of a test has an id of its own. */
let nextId = 1000n;
let transferred: KnownNft[] = [];

beforeAll(async () => {
  world = await observerWorld();
  node = await uriNode();
  gateway = await createSimulatedGateway();
});
afterAll(async () => {
  await gateway.close();
  await node.close();
  await world.close();
});
beforeEach(() => {
  gateway.faults.clear();
  Object.assign(node, { isUnavailable: false, reason: 'Not minted' });
  transferred = [];
  now += 7 * 86_400_000;
});
afterEach(() => stop());

async function start(
  settings: Readonly<Record<string, string>> = {},
  { allowNetworks = [] as typeof LOOPBACK } = {},
): Promise<void> {
  const config = loadConfig({ IPFS_GATEWAY_URL: gateway.url, NFT_TIMEOUT_MS: '20000', ...settings });
  const rpc = createNode({
    url: node.url,
    timeoutMs: 30_000,
    maxConcurrent: 64,
    attempts: 1,
    metrics: createNodeMetrics(new Registry()),
  });
  const egress = createEgress({ allowNetworks, ownPorts: [] });
  const gatewayEgress = createEgress({ allowNetworks: LOOPBACK, ownPorts: [] });
  releases = [() => rpc.close(), () => egress.close(), () => gatewayEgress.close()];
  const { pool, kafka, log } = world;
  const isBackfilling = createBackfillCheck(pool, kafka, () => isRebuilding(pool));
  const blocks = createBlockFeed({ pool, kafka, log, isBackfilling });
  const observer = await runNftObserver({
    blocks,
    isBackfilling,
    config,
    node: rpc,
    pool,
    kafka,
    egress,
    gatewayEgress,
    schema: async () => null,
    nftsAfter: async (after) => (after === null ? transferred : []),
    log,
    observers: createObserverMetrics(new Registry()),
    metrics: new Registry(),
    now: () => now,
    pollMs: 20,
  });
  running = [observer];
  running.unshift(await blocks.start());
}

async function stop(): Promise<void> {
  for (const run of running.splice(0)) {
    await run.stop();
    await run.done;
  }
  for (const release of releases.splice(0)) await release();
}

const openStore = () =>
  createNftStore(
    world.pool,
    async () => null,
    () => [],
    DAY_MS,
  );

/** Mints an NFT of `ART` with this URI; without one its contract reverts. */
function mint(uri: string | null): bigint {
  const id = (nextId += 1n);
  if (uri !== null) node.uris.set(id, uri);
  return id;
}

async function transfer(ids: readonly bigint[]): Promise<void> {
  const events = ids.map((id) => transferEvent(ART, ANNA, BERT, id));
  await publishBlock(events);
}

async function publishBlock(
  events: Parameters<typeof makeBlock>[0]['transactions'][number]['events'],
): Promise<void> {
  height += 1;
  const value = accepted(makeBlock({ height, transactions: [{ events }] }), height);
  const publisher = world.kafka.publisher();
  await publisher.publish(topics.chainBlocks, [{ value, partition: partitionOfHeight(height) }]);
  await publisher.close();
}

async function request(id: bigint): Promise<void> {
  const publisher = world.kafka.publisher();
  await publisher.publish(topics.requests, [
    {
      key: `${ART}:${id}`,
      value: { type: 'nft.metadata_requested', v: 1, token: ART, token_id: String(id), requested_at: now },
    },
  ]);
  await publisher.close();
}

async function publishedFor(id: bigint): Promise<NftMessage[]> {
  const found: NftMessage[] = [];
  for await (const { key, value } of logOf(world.kafka, topics.nft)) {
    const message = nftMessage.parse(JSON.parse(value.toString()));
    expect(key).toBe(`${message.token}:${message.token_id}`);
    if (message.token_id === String(id)) found.push(message);
  }
  return found;
}

async function untilPublished(id: bigint, times = 1): Promise<NftMessage> {
  return await vi.waitFor(
    async () => {
      const messages = await publishedFor(id);
      expect(messages.length).toBeGreaterThanOrEqual(times);
      return messages[times - 1]!;
    },
    { timeout: 20_000, interval: 50 },
  );
}

interface Row {
  failures: number;
  troubles: number;
  next_at: number | null;
}
async function rowOf(id: bigint): Promise<Row | undefined> {
  const { rows } = await world.pool.query<Row>('SELECT * FROM tds.nft_fetches WHERE token_id = $1', [
    String(id),
  ]);
  return rows[0];
}

/** Waits until the log is consumed and no task is due or in progress. */
async function untilDone(): Promise<void> {
  await vi.waitFor(
    async () => {
      expect(await isConsumed(world, 'observe-tokens', topics.chainBlocks)).toBe(true);
      expect(await isConsumed(world, 'observe-nft', topics.requests)).toBe(true);
      const { rows } = await world.pool.query(
        'SELECT token_id FROM tds.nft_fetches WHERE next_at <= $1 OR (failures = 0 AND next_at IS NOT NULL)',
        [now],
      );
      expect(rows).toEqual([]);
    },
    { timeout: 20_000, interval: 30 },
  );
}

const callsOf = (part: string): number => gateway.calls.filter((path) => path.includes(part)).length;

it('fetches every NFT transferred in blocks, single and batch, once however often the blocks are read', async () => {
  const first = mint(`ipfs://${CID}/foxes/1`);
  const placeholder = mint(`ipfs://${CID}/items/{id}.json`);
  const doubled = mint(`https://other.example/ipfs/ipfs://${CID}/foxes/2.json`);
  const onChain = mint('data:application/json,{"name":"On chain","image":"ipfs://a/b","attributes":{"a":1}}');
  const wide = (1n << 255n) + 5n;
  node.uris.set(wide, `ipfs://ipfs/${CID}/foxes/3`);
  await start();
  await publishBlock([
    transferEvent(ART, ANNA, BERT, first),
    transferEvent(ART, BERT, ANNA, first),
    transferEvent(ART, BERT, ANNA, onChain),
    batchEvent(ITEMS, ANNA, BERT, [
      [placeholder, 3n],
      [doubled, 1n],
      [wide, 1n],
    ]),
  ]);
  await untilDone();
  await transfer([first, onChain]);
  await stop();
  // Without its checkpoints, as after restoring a backup, the observer reads everything and fetches nothing again.
  await world.pool.query("DELETE FROM tds.checkpoints WHERE starts_with(consumer, 'observe-')");
  await start();
  await untilDone();

  expect(await publishedFor(first)).toEqual([
    {
      type: 'nft.metadata_fetched',
      v: 1,
      token: ART,
      token_id: String(first),
      uri: `ipfs://${CID}/foxes/1`,
      name: 'foxes #1',
      description: 'Number 1 of foxes, on a simulated chain.',
      image: `ipfs://${CID}/foxes/1.svg`,
      external_url: 'https://foxes.example/1',
      animation_url: null,
      attributes: expect.arrayContaining([{ trait_type: 'is first', value: 'true' }]),
      observed_at: now,
    },
  ]);
  expect(await publishedFor(placeholder)).toMatchObject([{ token: ITEMS, name: `items #${placeholder}` }]);
  expect(await publishedFor(doubled)).toMatchObject([{ name: 'foxes #2' }]);
  expect(await publishedFor(wide)).toMatchObject([{ token: ITEMS, name: 'foxes #3' }]);
  expect(await publishedFor(onChain)).toMatchObject([
    { name: 'On chain', image: 'ipfs://a/b', attributes: [{ trait_type: 'a', value: '1' }] },
  ]);
  expect(callsOf('/foxes/1')).toBe(1);
});

describe('the retry schedule', () => {
  it('makes ten attempts with growing delays and none before its time, whatever is requested', async () => {
    const id = mint(`ipfs://${CID}/foxes/10`);
    gateway.faults.add({ kind: 'status', status: 502, path: '/foxes/10' });
    await start();
    await transfer([id]);
    let expected = 300_000;
    for (let attempt = 1; attempt <= 10; attempt += 1) {
      const message = await untilPublished(id, attempt);
      const retryAt = attempt === 10 ? null : now + Math.min(expected, 86_400_000);
      expect(message).toMatchObject({
        type: 'nft.metadata_failed',
        cause: 'unavailable',
        reason: 'HTTP 502',
        attempt,
        retry_at: retryAt,
        observed_at: now,
      });
      await untilDone();
      expect(await rowOf(id)).toMatchObject({ failures: attempt, next_at: retryAt });
      // Just before its time, neither a request nor a transfer causes an attempt.
      now = retryAt === null ? now + 30 * 86_400_000 : retryAt - CLOCK_SKEW_MS - 1;
      await request(id);
      await transfer([id]);
      await untilDone();
      expect(callsOf('/foxes/10')).toBe(attempt);
      if (retryAt !== null) now = retryAt;
      expected *= 2;
    }
    // The NFT stays given up after a restart.
    await stop();
    gateway.faults.clear();
    transferred = [{ token: ART, tokenId: String(id), standard: 'erc721' }];
    await start();
    await untilDone();
    expect(callsOf('/foxes/10')).toBe(10);
    expect((await publishedFor(id)).length).toBe(10);
  });

  it('restarts after a success', async () => {
    const id = mint(`ipfs://${CID}/foxes/11`);
    gateway.faults.add({ kind: 'status', path: '/foxes/11', times: 2 });
    await start();
    await transfer([id]);
    await untilPublished(id, 1);
    await untilDone();
    now += 300_000;
    await untilPublished(id, 2);
    await untilDone();
    now += 600_000;
    expect(await untilPublished(id, 3)).toMatchObject({ type: 'nft.metadata_fetched', name: 'foxes #11' });
    await untilDone();
    expect(await rowOf(id)).toMatchObject({ failures: 0, next_at: null });
  });

  it('restarts at once when an NFT is minted after it was requested', async () => {
    const id = mint(null);
    await start();
    await request(id);
    await untilPublished(id, 1);
    await untilDone();
    now += 300_000;
    // Without a known transfer it is retried on request only.
    await request(id);
    expect(await untilPublished(id, 2)).toMatchObject({ attempt: 2 });
    await untilDone();
    await transfer([id]);
    expect(await untilPublished(id, 3)).toMatchObject({
      cause: 'reverted',
      attempt: 1,
      retry_at: now + 300_000,
    });
    await untilDone();
    // A second transfer is not a mint.
    await transfer([id]);
    await untilDone();
    expect(await publishedFor(id)).toHaveLength(3);
  });

  it('restarts at once when an NFT is minted again', async () => {
    const id = mint(null);
    await start();
    await transfer([id]);
    await untilPublished(id, 1);
    await untilDone();
    now += 300_000;
    expect(await untilPublished(id, 2)).toMatchObject({ attempt: 2 });
    await untilDone();
    node.uris.set(id, `ipfs://${CID}/foxes/12`);
    await publishBlock([transferEvent(ART, ZERO_FELT, BERT, id)]);
    expect(await untilPublished(id, 3)).toMatchObject({ type: 'nft.metadata_fetched', name: 'foxes #12' });
    await untilDone();
    expect(await rowOf(id)).toMatchObject({ failures: 0, next_at: null });
    // Fetched metadata is not fetched again.
    await publishBlock([transferEvent(ART, ZERO_FELT, BERT, id)]);
    await untilDone();
    expect(await publishedFor(id)).toHaveLength(3);
  });

  it("publishes the contract's reason of a revert", async () => {
    node.reason = 'ERC721: invalid token ID';
    const id = mint(null);
    await start();
    await transfer([id]);
    expect(await untilPublished(id)).toMatchObject({
      cause: 'reverted',
      reason: 'ERC721: invalid token ID',
      uri: null,
      attempt: 1,
    });
  });

  it('does not count attempts while the node is unavailable', async () => {
    node.isUnavailable = true;
    const id = mint('data:application/json,{}');
    await start();
    await transfer([id]);
    await vi.waitFor(async () => expect(await rowOf(id)).toMatchObject({ failures: 0, troubles: 1 }), {
      timeout: 30_000,
    });
    node.isUnavailable = false;
    now += 60_000;
    expect(await untilPublished(id)).toMatchObject({ type: 'nft.metadata_fetched' });
    await untilDone();
    expect(await rowOf(id)).toMatchObject({ failures: 0, troubles: 0, next_at: null });
  });

  it('publishes the message that was stored before a crash', async () => {
    const id = mint('data:application/json,{"name":"new"}');
    const message = {
      type: 'nft.metadata_fetched',
      v: 1,
      token: ART,
      token_id: String(id),
      uri: 'x',
      name: 'old',
      description: null,
      image: null,
      external_url: null,
      animation_url: null,
      attributes: [],
      observed_at: now - 1,
    };
    await world.pool.query(
      "INSERT INTO tds.nft_fetches (token, token_id, standard, next_at, message) VALUES ($1, $2, 'erc721', $3, $4)",
      [ART, String(id), now, JSON.stringify(message)],
    );
    await start();
    expect(await untilPublished(id)).toEqual(message);
  });
});

it('fetches a requested NFT without a transfer', async () => {
  const id = mint(`ipfs://${CID}/foxes/20`);
  await start();
  await request(id);
  expect(await untilPublished(id)).toMatchObject({ type: 'nft.metadata_fetched', name: 'foxes #20' });
});

it('claims requested NFTs only, where nothing else may be fetched', async () => {
  const [requested, other] = [mint(null), mint(null)].map((id) => ({ token: ART, tokenId: String(id) }));
  const store = openStore();
  await store.add([{ ...other!, standard: 'erc721' }], now);
  store.request([requested!], now);
  const claimed = async (which: 'all' | 'requested') =>
    (await store.claim(10, now, which)).map(({ task }) => task.tokenId);
  expect(await claimed('requested')).toEqual([requested!.tokenId]);
  // Besides NFTs of other tests that are due again.
  expect(await claimed('all')).toContain(other!.tokenId);
});

it('claims the NFT that one caller requests among a thousand of another, and those of neither once they failed', async () => {
  const store = openStore();
  const nfts = Array.from({ length: 1001 }, () => ({ token: ITEMS, tokenId: String(mint(null)) }));
  const [wanted, ...flood] = nfts;
  store.request(
    flood.map((nft) => ({ ...nft, caller: 'a' })),
    now,
  );
  store.request([{ ...wanted!, caller: 'b' }], now);
  const claims = await store.claim(8, now, 'requested');
  expect(claims.map(({ task }) => task.tokenId)).toContain(wanted!.tokenId);
  expect(claims).toHaveLength(8);

  const claim = claims.find(({ task }) => task.tokenId === wanted!.tokenId)!;
  const retryAt = now + 1000;
  await store.done(claim, now, {
    type: 'nft.metadata_failed',
    v: 1,
    token: ITEMS,
    token_id: wanted!.tokenId,
    uri: null,
    cause: 'reverted',
    reason: 'no',
    attempt: 1,
    retry_at: retryAt,
    observed_at: now,
  });
  const claimed = async () => (await store.claim(2000, retryAt, 'all')).map(({ task }) => task.tokenId);
  expect(await claimed()).not.toContain(wanted!.tokenId);
  store.request([{ ...wanted!, caller: 'b' }], retryAt);
  expect(await claimed()).toContain(wanted!.tokenId);
  // The observers of other tests would fetch them.
  await world.pool.query('DELETE FROM tds.nft_fetches WHERE token_id = ANY ($1)', [
    nfts.map(({ tokenId }) => tokenId),
  ]);
});

it('claims as many requested NFTs as it may behind those that wait for their backoff', async () => {
  const store = openStore();
  // Before any task of another test is due.
  const at = 1_600_000_000_000;
  const nfts = Array.from({ length: 110 }, () => ({
    token: ITEMS,
    tokenId: String(mint(null)),
    caller: 'a',
  }));
  const [waiting, wanted] = [nfts.slice(0, 100), nfts.slice(100)];
  await store.add(
    waiting.map((nft) => ({ ...nft, standard: 'unknown' })),
    at + 60_000,
  );
  store.request(nfts, at);
  const claimed = async () => (await store.claim(8, at, 'requested')).map(({ task }) => task.tokenId);
  const ids = wanted.map(({ tokenId }) => tokenId);
  expect(new Set(await claimed())).toEqual(new Set(ids.slice(0, 8)));
  expect(new Set(await claimed())).toEqual(new Set(ids.slice(8)));
  // The observers of other tests would fetch them.
  await world.pool.query('DELETE FROM tds.nft_fetches WHERE token_id = ANY ($1)', [
    nfts.map(({ tokenId }) => tokenId),
  ]);
});

it('claims NFTs at once that a clock ahead has scheduled, and none before its longest backoff', async () => {
  const store = openStore();
  const nfts = [mint(null), mint(null), mint(null)].map((id) => ({ token: ART, tokenId: String(id) }));
  const [known, requested, waiting] = nfts;
  const claimed = async () =>
    (await store.claim(2000, now, 'all')).flatMap(({ task: { tokenId } }) =>
      nfts.flatMap((nft, i) => (nft.tokenId === tokenId ? [i] : [])),
    );
  await store.add([{ ...waiting!, standard: 'erc721' }], now + DAY_MS);
  const ahead = now + 40 * DAY_MS;
  await store.add([{ ...known!, standard: 'erc721' }], ahead);
  await store.add([{ ...requested!, standard: 'unknown' }], ahead);
  expect(await claimed()).toEqual([]);
  await store.bringForward(now);
  expect(await claimed()).toEqual([0]);
  store.request([requested!], now);
  expect(await claimed()).toEqual([1]);
});

it('stores outcomes that come together each for its own claim, and none for a claim that was lost', async () => {
  const ids = [mint(null), mint(null), mint(null)].map(String);
  const store = openStore();
  await store.add(
    ids.map((tokenId) => ({ token: ART, tokenId, standard: 'erc721' as const })),
    now,
  );
  const claims = (await store.claim(100, now, 'all')).filter(({ task }) => ids.includes(task.tokenId));
  const [fetched, failed, lost] = ids.map((id) => claims.find(({ task }) => task.tokenId === id)!);
  const about = (tokenId: string) => ({ v: 1 as const, token: ART, token_id: tokenId, observed_at: now });
  const messages: NftMessage[] = [
    {
      ...about(ids[0]!),
      type: 'nft.metadata_fetched',
      uri: 'ipfs://a',
      name: null,
      description: null,
      image: null,
      external_url: null,
      animation_url: null,
      attributes: [],
    },
    ...[ids[1]!, ids[2]!].map((id) => ({
      ...about(id),
      type: 'nft.metadata_failed' as const,
      uri: null,
      cause: 'unavailable' as const,
      reason: `no ${id}`,
      attempt: 3,
      retry_at: now + 1000,
    })),
  ];
  const together = [fetched!, failed!, lost!].map((claim, index) => ({ claim, message: messages[index]! }));
  const all = async (end: (one: (typeof together)[number]) => Promise<boolean>): Promise<boolean[]> =>
    await Promise.all(together.map(end));
  await world.pool.query('UPDATE tds.nft_fetches SET next_at = next_at + 1 WHERE token_id = $1', [ids[2]]);

  expect(await all(({ claim, message }) => store.prepare(claim, message))).toEqual([true, true, false]);
  const stored = async () =>
    await world.pool.query(
      `SELECT token_id::text, message ->> 'type' AS message, failures, next_at, last_error, done_at FROM tds.nft_fetches
       WHERE token_id = ANY ($1) ORDER BY token_id`,
      [ids],
    );
  const claimedUntil = fetched!.next_at;
  const none = { failures: 0, last_error: null, done_at: null };
  expect((await stored()).rows).toEqual([
    { token_id: ids[0], message: 'nft.metadata_fetched', next_at: claimedUntil, ...none },
    { token_id: ids[1], message: 'nft.metadata_failed', next_at: claimedUntil, ...none },
    { token_id: ids[2], message: null, next_at: claimedUntil + 1, ...none },
  ]);
  expect(await all(({ claim, message }) => store.done(claim, now + 7, message))).toEqual([true, true, false]);
  expect((await stored()).rows).toEqual([
    { token_id: ids[0], message: null, ...none, next_at: null, done_at: now + 7 },
    {
      token_id: ids[1],
      message: null,
      failures: 3,
      next_at: now + 1000,
      last_error: `no ${ids[1]}`,
      done_at: now + 7,
    },
    { token_id: ids[2], message: null, next_at: claimedUntil + 1, ...none },
  ]);
});

it('stores nothing for a claim whose task was claimed anew, also when both end together', async () => {
  const tokenId = String(mint(null));
  const store = openStore();
  await store.add([{ token: ART, tokenId, standard: 'erc721' }], now);
  const claim = async () =>
    (await store.claim(100, now, 'all')).find(({ task }) => task.tokenId === tokenId)!;
  const lost = await claim();
  await world.pool.query('UPDATE tds.nft_fetches SET next_at = $2 WHERE token_id = $1', [tokenId, now - 1]);
  now += 1;
  const held = await claim();
  const message: NftMessage = {
    type: 'nft.metadata_failed',
    v: 1,
    token: ART,
    token_id: tokenId,
    uri: null,
    cause: 'unavailable',
    reason: 'away',
    attempt: 1,
    retry_at: null,
    observed_at: now,
  };
  const prepared = [lost, held].map((one) => store.prepare(one, message));
  expect(await Promise.all(prepared)).toEqual([false, true]);
  const done = [held, lost].map((one) => store.done(one, now, message));
  expect(await Promise.all(done)).toEqual([true, false]);
});

it('fetches a transferred NFT without a task', async () => {
  const id = mint(`ipfs://${CID}/foxes/21`);
  transferred = [{ token: ART, tokenId: String(id), standard: 'erc721' }];
  await start();
  expect(await untilPublished(id)).toMatchObject({ type: 'nft.metadata_fetched', name: 'foxes #21' });
});

describe('a metadata document', () => {
  it.each([
    ['is huge', { kind: 'huge' }, 'answer larger than 1048576 bytes'],
    ['is nested too deep', { kind: 'nested' }, 'the metadata is nested deeper than 64'],
    ['is not JSON', { kind: 'body' }, 'the metadata is not a JSON object'],
    ['breaks off', { kind: 'drop' }, /^connection: /],
    [
      'redirects to this machine',
      { kind: 'redirect', to: 'http://127.0.0.1:1/' },
      'blocked address: blocked address',
    ],
    [
      'redirects to a private network',
      { kind: 'redirect', to: 'https://10.1.2.3/x' },
      'blocked address: blocked address',
    ],
    [
      'redirects to a metadata service',
      { kind: 'redirect', to: 'http://169.254.169.254/latest' },
      'blocked address: blocked address',
    ],
    ['redirects to a file', { kind: 'redirect', to: 'file:///etc/passwd' }, 'unsupported URI scheme file:'],
    ['redirects without end', { kind: 'redirect', to: '?again' }, 'more than 3 redirects'],
    ['is missing', { kind: 'status', status: 404 }, 'HTTP 404'],
  ] as const)('fails with a reason where it %s', async (_, fault, reason) => {
    const id = (nextId += 1n);
    node.uris.set(id, `ipfs://${CID}/foxes/${id}`);
    gateway.faults.add({ ...fault, path: `/foxes/${id}` });
    await start();
    await transfer([id]);
    expect(await untilPublished(id)).toMatchObject({
      type: 'nft.metadata_failed',
      cause: 'unavailable',
      reason: typeof reason === 'string' ? reason : expect.stringMatching(reason),
    });
  });

  it.each([
    ['http://127.0.0.1:1/x', 'blocked address: blocked address'],
    ['https://[::1]/x', 'blocked address: blocked address'],
    ['https://user:word@x.example/', /password/],
    ['gopher://x.example/', 'unsupported URI scheme gopher:'],
    ['not a uri', 'the URI is not valid'],
  ])('is not requested from %s', async (uri, reason) => {
    const id = mint(uri);
    await start();
    await transfer([id]);
    expect(await untilPublished(id)).toMatchObject({
      reason: typeof reason === 'string' ? reason : expect.stringMatching(reason),
    });
  });

  it('is read with a repeated Content-Type', async () => {
    const body = '{"name":"Twice"}';
    const head = ['HTTP/1.1 200 OK', 'Content-Type: a/b', 'Content-Type: c/d', 'Connection: close'];
    const server = createServer();
    server.on('connection', (socket) => {
      socket.once('data', () =>
        socket.end([...head, `Content-Length: ${body.length}`, '', body].join('\r\n')),
      );
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      const id = mint(`http://127.0.0.1:${port}/1`);
      await start({}, { allowNetworks: LOOPBACK });
      await transfer([id]);
      expect(await untilPublished(id)).toMatchObject({ type: 'nft.metadata_fetched', name: 'Twice' });
    } finally {
      server.close();
    }
  });

  it('is read with wrong types in every field', async () => {
    const id = (nextId += 1n);
    node.uris.set(id, `ipfs://${CID}/foxes/${id}`);
    const text =
      '{"name":5,"description":{},"image":[],"external_url":1,"animation_url":null,"attributes":"x"}';
    gateway.faults.add({ kind: 'body', text, type: 'application/json', path: `/foxes/${id}` });
    await start();
    await transfer([id]);
    expect(await untilPublished(id)).toMatchObject({
      type: 'nft.metadata_fetched',
      name: '5',
      description: null,
      image: null,
      external_url: null,
      animation_url: null,
      attributes: [],
    });
  });
});

describe('a hanging host', () => {
  let hanging: Server;
  let requests = 0;
  beforeAll(async () => {
    hanging = createServer(() => {
      requests += 1;
    });
    hanging.listen(0, '127.0.0.1');
    await once(hanging, 'listening');
  });
  afterAll(() => {
    hanging.close();
    hanging.closeAllConnections();
  });

  it('delays only its own NFTs', async () => {
    const { port } = hanging.address() as AddressInfo;
    const stuck = Array.from({ length: 40 }, (_, i) => mint(`http://127.0.0.1:${port}/${i}`));
    const others = Array.from({ length: 40 }, (_, i) => mint(`ipfs://${CID}/foxes/${5000 + i}`));
    await start(
      { NFT_CONCURRENCY: '8', NFT_HOST_CONCURRENCY: '2', NFT_TIMEOUT_MS: '40000' },
      { allowNetworks: LOOPBACK },
    );
    await transfer(stuck);
    await vi.waitFor(() => expect(requests).toBe(2), { timeout: 20_000 });
    await transfer(others);
    // Postponed tasks are due again after a second of the observer's clock.
    const ticking = setInterval(() => (now += 100), 20);
    for (const id of others) expect(await untilPublished(id)).toMatchObject({ type: 'nft.metadata_fetched' });
    clearInterval(ticking);
    expect(requests).toBe(2);
    expect(await publishedFor(stuck[0]!)).toEqual([]);
  });
});
