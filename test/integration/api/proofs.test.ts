import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { verifyProof } from '../../../client/src/proof.ts';
import { serveOnLoopback } from '../../../infra/embedded/loopback.ts';
import { parseBlockWithReceipts } from '../../../pipeline/node/parse.ts';
import { chainProjections } from '../../../projections/index.ts';
import { decodeBlock, eventIndex } from '../../../schemas/decode/index.ts';
import type { Transfer } from '../../../schemas/decode/index.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BlockBody, BlockHeader, ContractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { Answer } from '../../support/api-world.ts';
import { independentCommitment } from '../../support/event-commitment.ts';
import { proofWorld } from '../../support/proof-world.ts';
import type { ProofWorld } from '../../support/proof-world.ts';
import { createRandom } from '../../support/random.ts';
import { trueChain, withTrueHash } from '../../support/true-chain.ts';
import { readRecordedBlock, whySkipped } from '../../support/recorded-blocks.ts';

/** Proofs of transfers of every layout, verified by the client alone against hashes computed by starknet.js. */

const BLOCKS = 30;
const random = createRandom(3);
let world: ProofWorld;
let chain: readonly BlockBody[];
let contracts: ContractsMap;

beforeAll(async () => {
  world = await proofWorld();
  ({ bodies: chain, contracts } = await trueChain({ blocks: BLOCKS, transfersPerBlock: 40 }));
  await world.write(chain, contracts);
});
afterAll(() => world?.close());

const get = (query: Readonly<Record<string, string>>): Promise<Answer> =>
  world.api.call('GET', `/api/transfers/proof/?${new URLSearchParams(query).toString()}`, {
    headers: { 'api-key': world.apiKey },
  });
const answerOf = ({
  txHash,
  position,
  item,
}: Pick<Transfer, 'txHash' | 'position' | 'item'>): Promise<Answer> =>
  get({ txhash: txHash, event_index: String(eventIndex(position, item)) });
const transfersOf = (body: BlockBody): Transfer[] => decodeBlock(body, contracts).transfers;
const firstOf = (body: BlockBody): Transfer => transfersOf(body)[0] ?? expect.fail('no transfer');

/** A block on top of the chain; each has its own height. */
let height = BLOCKS;
const nextBlock = (of: Partial<BlockBody> = {}): BlockBody => {
  const copied = chain[5] ?? expect.fail('no block');
  height += 1;
  // Hashes of transactions are unique to the height.
  const transactions = copied.transactions.map((transaction, index) => ({
    ...transaction,
    hash: toFelt(BigInt(height) * 1_000_000n + BigInt(index)),
  }));
  return rehashed({ ...copied, height, transactions, ...of });
};

/** With the hash that it had without the changes of its header. */
function withHeader(changed: Partial<BlockHeader>): BlockBody {
  const body = nextBlock();
  return body.header === undefined ? body : { ...body, header: { ...body.header, ...changed } };
}

/** With the counts, commitment and hash of its transactions. */
function rehashed(body: BlockBody): BlockBody {
  const { transactions, header } = body;
  if (header === undefined) return body;
  const event_commitment = toFelt(independentCommitment(transactions));
  const event_count = transactions.reduce((sum, { events }) => sum + events.length, 0);
  const counts = { transaction_count: transactions.length, event_count };
  return withTrueHash({ ...body, ...counts, header: { ...header, event_commitment } }, body.parent_hash);
}

/** What the example prints. */
async function runExample(
  args: readonly string[],
  nodeUrl: string,
  serviceUrl = world.api.url,
): Promise<string> {
  const file = resolve(import.meta.dirname, '../../../client/examples/verify-transfer.ts');
  const env = {
    PATH: process.env['PATH'] ?? '',
    TDS_URL: serviceUrl,
    TDS_KEY: world.apiKey,
    NODE_URL: nodeUrl,
  };
  const child = spawn(process.execPath, ['--conditions=source', file, ...args], { env });
  let printed = '';
  for (const output of [child.stdout, child.stderr])
    output.on('data', (part: Buffer) => (printed += part.toString()));
  await once(child, 'close');
  return printed;
}

describe('GET /api/transfers/proof/', () => {
  it('proves transfers of every layout, and random ones', async () => {
    const all = chain.flatMap((body) => {
      const events = body.transactions.flatMap((transaction) => transaction.events);
      return transfersOf(body).map((transfer) => ({ body, transfer, event: events[transfer.position] }));
    });
    const shapes = Map.groupBy(all, ({ transfer: { kind, item }, event }) =>
      [kind, event?.keys.length, event?.data.length, item > 0 ? 'later item' : ''].join(' '),
    );
    expect([...shapes.keys()].length).toBeGreaterThan(8);
    expect([...shapes.keys()].some((shape) => shape.includes('later item'))).toBe(true);
    const chosen = [
      ...[...shapes.values()].map((ones) => random.pick(ones)),
      ...Array.from({ length: 60 }, () => random.pick(all)),
    ];
    for (const { body, transfer } of chosen) {
      const proof = await world.prove(transfer);
      expect(await verifyProof(proof)).toEqual({ number: body.height, hash: body.hash });
      const { txHash: txhash, to, token } = transfer;
      const query = { txhash, to_account: to, token, limit: 100 };
      const { results } = await world.client.listTransfers({ query });
      expect(results).toContainEqual(proof.transfer);
      expect(proof.transfer.event_index).toBe(eventIndex(transfer.position, transfer.item));
      expect(proof.event.index).toBe(transfer.position);
      expect(proof.root).toBe(body.header?.event_commitment);
      expect(proof.finality).toBe(body.height <= 11 ? 'ACCEPTED_ON_L1' : 'ACCEPTED_ON_L2');
    }
  });

  it('finds no transfer of another transaction, position or item, nor where an event is none', async () => {
    const body = chain[7] ?? expect.fail('no block');
    const transfer = firstOf(body);
    const positions = new Set(transfersOf(body).map(({ position }) => position));
    const quiet = Array.from({ length: body.event_count ?? 0 }, (_, at) => at).find(
      (at) => !positions.has(at),
    );
    for (const other of [
      { ...transfer, txHash: toFelt(1n) },
      { ...transfer, position: transfer.position + 1000 },
      { ...transfer, item: transfer.item + 1 },
      { ...transfer, position: quiet ?? 2000 },
    ])
      expect(await answerOf(other)).toMatchObject({ status: 404, json: { code: 'not_found' } });
  });

  it('proves a transfer as of a block, which was not accepted on L1 then', async () => {
    const transfer = firstOf(chain[7] ?? expect.fail('no block'));
    const index = String(eventIndex(transfer.position, transfer.item));
    const asked = { txhash: transfer.txHash, event_index: index };
    const { status, json } = await get({ ...asked, as_of_block: '7' });
    const now = (await get(asked)).json;
    expect(now.finality).toBe('ACCEPTED_ON_L1');
    const finality = 'ACCEPTED_ON_L2';
    const expected = { ...now, finality, transfer: { ...now.transfer, status: finality } };
    expect([status, json]).toEqual([200, expected]);
    expect((await get({ ...asked, as_of_block: '6' })).status).toBe(404);
  });

  it('refuses parameters by name', async () => {
    const { txHash: txhash } = firstOf(chain[7] ?? expect.fail('no block'));
    expect((await get({})).json.errors).toHaveProperty('txhash');
    expect((await get({ txhash })).json.errors).toHaveProperty('event_index');
    expect((await get({ txhash, event_index: '-1' })).status).toBe(400);
    expect((await get({ txhash, event_index: String(2 ** 52) })).status).toBe(400);
    expect((await get({ txhash, event_index: String(2 ** 52 - 1) })).status).toBe(404);
  });

  it.each<[string, () => BlockBody]>([
    ['no header', () => nextBlock({ header: undefined })],
    ['an old version', () => nextBlock({ starknet_version: '0.13.1' })],
    ['no commitment', () => withHeader({ event_commitment: ZERO_FELT })],
    ['no price of L2 gas', () => withHeader({ l2_gas_price: null })],
    ['a hash that its header does not give', () => ({ ...nextBlock(), sequencer_address: toFelt(7n) })],
    ['events that do not match', () => ({ ...nextBlock(), transactions: nextBlock().transactions })],
  ])('answers 409 for a block with %s', async (_what, make) => {
    const body = make();
    await world.write([body], contracts);
    const { status, json } = await answerOf(firstOf(body));
    expect([status, json.code]).toEqual([409, 'unverifiable']);
    expect(
      (await world.client.listTransfers({ query: { block: body.height } })).results.length,
    ).toBeGreaterThan(0);
  });

  it('answers 409 for a block whose events are not kept, and 503 for one that is not indexed yet', async () => {
    const unkept = nextBlock();
    await world.write(
      [unkept],
      contracts,
      'block.accepted',
      chainProjections.filter(({ name }) => name !== 'block-events'),
    );
    expect((await answerOf(firstOf(unkept))).json.code).toBe('unverifiable');
    const late = nextBlock();
    const first = chainProjections.filter(({ name }) => name !== 'indexed-blocks');
    await world.write([late], contracts, 'block.accepted', first);
    expect((await answerOf(firstOf(late))).json.code).toBe('behind');
    await world.write([late], contracts);
    expect((await verifyProof(await world.prove(firstOf(late)))).hash).toBe(late.hash);
  });

  it('proves what is in the canonical block after a reorg, and nothing of the other', async () => {
    const orphan = nextBlock();
    await world.write([orphan], contracts);
    const transfer = firstOf(orphan);
    expect((await verifyProof(await world.prove(transfer))).hash).toBe(orphan.hash);
    await world.write([orphan], contracts, 'block.reverted');
    expect((await answerOf(transfer)).status).toBe(404);

    // The same transaction is now the last of its block, and another is left out.
    const [first, , ...others] = orphan.transactions;
    if (first === undefined) expect.fail('no transaction');
    const moved = rehashed({ ...orphan, parent_hash: toFelt(77n), transactions: [...others, first] });
    await world.write([moved], contracts);
    const found = transfersOf(moved).find(({ txHash }) => txHash === transfer.txHash) ?? expect.fail('none');
    expect(found.position).not.toBe(transfer.position);
    const proof = await world.prove(found);
    expect(await verifyProof(proof)).toEqual({ number: moved.height, hash: moved.hash });
    expect((await answerOf(transfer)).status).toBe(404);
  });

  it('is checked by the example with a node of its own', async () => {
    const [body, other] = chain.slice(6);
    if (body === undefined || other === undefined) expect.fail('no block');
    const { txHash, position, item } = firstOf(body);
    const args = [txHash, String(eventIndex(position, item))];
    let served = body;
    const node = await serveOnLoopback((_request, response) => {
      const result = { block_hash: served.hash.replace(/^0x0+/, '0x') };
      response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result }));
    });
    try {
      expect(await runExample(args, node.url)).toMatch(new RegExp(`^block ${body.height} of the node has`));
      served = other;
      expect(await runExample(args, node.url)).toContain(
        `the node has no block ${body.height} with the hash`,
      );
    } finally {
      await node.close();
    }
  });

  it('is refused by the example if it is a true proof of another event', async () => {
    const body = chain[6] ?? expect.fail('no block');
    const all = transfersOf(body);
    const isSibling = (one: Transfer, other: Transfer): boolean =>
      one !== other && one.txHash === other.txHash;
    const asked =
      all.find((one) => all.some((other) => isSibling(one, other))) ?? expect.fail('no transaction with two');
    const others = [
      all.find((one) => isSibling(one, asked)) ?? expect.fail('no sibling'),
      all.find(({ txHash }) => txHash !== asked.txHash) ?? expect.fail('no other transaction'),
    ];
    let served = asked;
    const service = await serveOnLoopback((_request, response) => {
      void answerOf(served).then(({ text }) => {
        response.setHeader('content-type', 'application/json');
        response.end(text);
      });
    });
    const node = await serveOnLoopback((_request, response) => {
      response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result: { block_hash: body.hash } }));
    });
    const run = async (): Promise<string> => {
      const index = String(eventIndex(asked.position, asked.item));
      return await runExample([asked.txHash.toUpperCase().replace('0X', '0x'), index], node.url, service.url);
    };
    try {
      expect(await run()).toMatch(new RegExp(`^block ${body.height} of the node has`));
      for (served of others) expect(await run()).toContain('which was not asked for');
    } finally {
      await service.close();
      await node.close();
    }
  });

  it.skipIf(whySkipped !== '')(`${whySkipped}proves the transfers of a recorded block`, async () => {
    const { body } = parseBlockWithReceipts(readRecordedBlock(), 1);
    await world.write([body], { [STRK_TOKEN]: { standard: 'erc20', class_hash: null } });
    const transactions: Felt[] = body.transactions.map(({ hash }) => hash);
    for (const [position, txHash] of transactions.entries()) {
      const proof = await world.prove({ txHash, position, item: 0 });
      expect(await verifyProof(proof)).toEqual({ number: 3_100_000, hash: body.hash });
    }
  });
});
