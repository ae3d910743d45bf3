import { hash } from 'starknet';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { chainProjections } from '../../../projections/index.ts';
import { decodeBlock } from '../../../schemas/decode/index.ts';
import { eventName } from '../../../schemas/decode/names.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { BlockBody, ContractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { Answer } from '../../support/api-world.ts';
import { proofWorld } from '../../support/proof-world.ts';
import type { ProofWorld } from '../../support/proof-world.ts';
import { trueChain } from '../../support/true-chain.ts';

/** The raw events of blocks and transactions, compared with those of the simulated chain. */

let world: ProofWorld;
let chain: readonly BlockBody[];
let contracts: ContractsMap;

beforeAll(async () => {
  world = await proofWorld();
  ({ bodies: chain, contracts } = await trueChain({ blocks: 12, transfersPerBlock: 60 }));
  await world.write(chain, contracts);
});
afterAll(() => world?.close());

const get = (query: Readonly<Record<string, string | number>>): Promise<Answer> => {
  const search = Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]);
  return world.api.call('GET', `/api/events/?${new URLSearchParams(search).toString()}`, {
    headers: { 'api-key': world.apiKey },
  });
};
/** All pages, by their links. */
async function pagesOf(query: Readonly<Record<string, string | number>>): Promise<unknown[]> {
  const { json } = await get(query);
  const results = [...(json['results'] as unknown[])];
  let next = (json['links'] as { next: string | null }).next;
  while (next !== null) {
    const page = (await get(Object.fromEntries(new URLSearchParams(next)))).json;
    results.push(...(page['results'] as unknown[]));
    next = (page['links'] as { next: string | null }).next;
  }
  expect(results).toHaveLength(json['count'] as number);
  return results;
}

/** As the answer has to show them, from the block alone. */
const eventsOf = ({ height, hash: block_hash, transactions }: BlockBody) =>
  transactions
    .flatMap(({ hash: transaction_hash, events }) => events.map((event) => ({ ...event, transaction_hash })))
    .map((event, index) => ({ ...event, index, block: height, block_hash }));
const withoutNames = (events: unknown[]) =>
  events.map((event) => {
    const { name: _, ...rest } = event as Record<string, unknown>;
    return rest;
  });
const blockAt = (height: number): BlockBody =>
  chain.find((body) => body.height === height) ?? expect.fail('no block');

describe('GET /api/events/', () => {
  it('lists the events of a block as the chain has them, on pages of any size', async () => {
    for (const body of chain.slice(0, 4))
      expect(withoutNames(await pagesOf({ block: body.height, limit: 100 }))).toEqual(eventsOf(body));
    const body = blockAt(7);
    const all = eventsOf(body);
    expect(all.length).toBeGreaterThan(50);
    for (const limit of [7, 25]) {
      expect(withoutNames(await pagesOf({ block: 7, limit }))).toEqual(all);
      const last = (await get({ block: 7, limit, page: 'last' })).json['results'] as unknown[];
      expect(withoutNames(last)).toEqual(all.slice(Math.floor((all.length - 1) / limit) * limit));
    }
  });

  it('lists the events of a transaction with their index in the block', async () => {
    const body = blockAt(7);
    const all = eventsOf(body);
    const hashes = new Set(decodeBlock(body, contracts).transfers.map(({ txHash }) => txHash));
    expect(hashes.size).toBeGreaterThan(3);
    for (const txhash of hashes) {
      const own = all.filter(({ transaction_hash }) => transaction_hash === txhash);
      expect(withoutNames(await pagesOf({ txhash, limit: 2 }))).toEqual(own);
      expect((await get({ txhash, limit: 2, page: Math.ceil(own.length / 2) + 1 })).status).toBe(404);
    }
  });

  it.each([
    'Transfer',
    'TransferSingle',
    'TransferBatch',
    'Approval',
    'ApprovalForAll',
    'URI',
    'OwnershipTransferred',
    'RoleGranted',
    'Upgraded',
    'TransactionExecuted',
    'transaction_executed',
  ])('names %s by its selector, as the first or second key', (name) => {
    const selector = toFelt(BigInt(hash.getSelectorFromName(name)));
    expect(eventName([selector])).toBe(name);
    expect(eventName([toFelt(5n), selector])).toBe(name);
    expect(eventName([toFelt(5n), toFelt(6n), selector])).toBeNull();
  });

  it('gives the names of events, and null for those it does not know', async () => {
    const { results } = await world.client.listEvents({ query: { block: 7, limit: 100 } });
    for (const { keys, name } of results) expect(name).toBe(eventName(keys as never));
    expect(results.map(({ name }) => name)).toContain('Transfer');
    expect(eventName([])).toBeNull();
  });

  it('shows no event of a block that was reverted', async () => {
    const orphan = chain.at(-1) ?? expect.fail('no block');
    const { height } = orphan;
    const txhash = decodeBlock(orphan, contracts).transfers[0]?.txHash ?? expect.fail('no transfer');
    expect((await get({ txhash })).status).toBe(200);
    const first = await get({ block: height, limit: 1, as_of_block: height });
    const { next } = first.json['links'] as { next: string };
    const second = Object.fromEntries(new URLSearchParams(next));
    expect((await get(second)).json['results']).toMatchObject([{ index: 1, block_hash: orphan.hash }]);
    await world.write([orphan], contracts, 'block.reverted');
    expect((await get({ block: height })).status).toBe(404);
    expect((await get({ txhash })).status).toBe(404);
    const replacement = { ...orphan, hash: toFelt(77n), transactions: orphan.transactions.slice(1, 3) };
    await world.write([replacement], contracts);
    expect(withoutNames(await pagesOf({ block: height }))).toEqual(eventsOf(replacement));
    expect(await get(second)).toMatchObject({ status: 409, json: { code: 'reverted_block' } });
  });

  it('answers 503 while the events are not those of the indexed block', async () => {
    const late = { ...blockAt(7), height: 40, hash: toFelt(40n) };
    const write = async (body: BlockBody, isIndexed: boolean): Promise<void> =>
      await world.write(
        [body],
        contracts,
        'block.accepted',
        chainProjections.filter(({ name }) => (name === 'indexed-blocks') === isIndexed),
      );
    await write(late, true);
    expect((await get({ block: 40 })).json).toMatchObject({ code: 'events_not_kept' });
    await write({ ...late, hash: toFelt(41n) }, false);
    expect(await get({ block: 40 })).toMatchObject({ status: 503, json: { code: 'behind' } });
    await write(late, false);
    expect((await get({ block: 40 })).status).toBe(200);
  });

  it('answers 409 for a block whose events are not kept', async () => {
    const old = { ...blockAt(7), height: 50, hash: toFelt(50n), starknet_version: '0.13.1' };
    await world.write([old], contracts);
    expect(await get({ block: 50 })).toMatchObject({ status: 409, json: { code: 'events_not_kept' } });
  });

  it('requires either a block or a transaction that is indexed, and an existing page', async () => {
    const txhash = blockAt(7).transactions[0]?.hash ?? '';
    expect((await get({})).status).toBe(400);
    expect((await get({ block: 7, txhash })).status).toBe(400);
    const now = await get({ block: 7 });
    const then = await get({ block: 7, as_of_block: 7 });
    expect([then.status, then.json['results']]).toEqual([200, now.json['results']]);
    for (const asked of [{ block: 7 }, { txhash }])
      expect((await get({ ...asked, as_of_block: 6 })).status).toBe(404);
    for (const block of [1_000_000, '4294967296', '9'.repeat(30)])
      expect((await get({ block })).status).toBe(404);
    expect((await get({ txhash: '0x123' })).status).toBe(404);
    for (const page of ['0', 'x', 999_999, '9'.repeat(15)])
      expect((await get({ block: 7, page })).status).toBe(404);
  });
});
