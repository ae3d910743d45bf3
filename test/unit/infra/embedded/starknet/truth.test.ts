import { hash } from 'starknet';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';

import { createChain, type SimulatedChain } from '../../../../../infra/embedded/starknet/chain.ts';
import type { SimBlock } from '../../../../../infra/embedded/starknet/blocks.ts';
import { simulatedLedger } from '../../../../../infra/embedded/starknet/ledger.ts';
import { item } from '../../../../../infra/embedded/starknet/hash.ts';
import { layoutNames } from '../../../../../infra/embedded/starknet/layouts.ts';
import { chainOptionsOf } from '../../../../../infra/embedded/starknet/node.ts';
import { blockWithReceipts } from '../../../../../infra/embedded/starknet/rpc.ts';
import { selectors } from '../../../../../infra/embedded/starknet/selectors.ts';
import { tokenTable, tokens } from '../../../../../infra/embedded/starknet/tokens.ts';
import { parseBlockWithReceipts } from '../../../../../pipeline/node/parse.ts';
import { independentBlockHash } from '../../../../support/block-hash.ts';
import { independentCommitment, independentRoot } from '../../../../support/event-commitment.ts';

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const HEAD = 3000;
const FEE_TOKENS: Record<string, bigint> = {
  FRI: 0x04718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938dn,
  WEI: 0x049d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7n,
};
const HALF = 1n << 128n;
const { at: tokenAt } = tokenTable();

/** A chain with a reorg every 60 blocks. The tests check its canonical blocks. */
function grown(malformed: number): SimulatedChain {
  const options = chainOptionsOf({ initialHead: 10, genesisTime: 1_700_000_000, malformed });
  const chain = createChain({ ...options, reorgs: { every: 60, maxDepth: 12 } });
  while (chain.head() < HEAD) chain.tick();
  return chain;
}

const committedPairs = z.array(
  z.object({
    transaction: z.object({ signature: z.array(z.string()).optional() }),
    receipt: z.object({
      transaction_hash: z.string(),
      actual_fee: z.object({ amount: z.string() }),
      revert_reason: z.string().optional(),
      messages_sent: z.array(
        z.object({ from_address: z.string(), to_address: z.string(), payload: z.array(z.string()) }),
      ),
      execution_resources: z.object({ l1_gas: z.number(), l1_data_gas: z.number() }),
    }),
  }),
);

/** What the receipt of a transaction is hashed from. */
function receiptLeaf(receipt: z.infer<typeof committedPairs>[number]['receipt']) {
  const { transaction_hash, actual_fee, messages_sent, revert_reason, execution_resources } = receipt;
  const messages = messages_sent.flatMap(({ from_address, to_address, payload }) => [
    from_address,
    to_address,
    payload.length,
    ...payload,
  ]);
  return [
    transaction_hash,
    actual_fee.amount,
    hash.computePoseidonHashOnElements([messages_sent.length, ...messages]),
    revert_reason === undefined ? 0 : hash.starknetKeccak(revert_reason),
    0,
    execution_resources.l1_gas,
    execution_resources.l1_data_gas,
  ];
}

let chain: SimulatedChain;
let blocks: SimBlock[];
beforeAll(() => {
  chain = grown(0);
  blocks = Array.from({ length: chain.head() + 1 }, (_, height) => chain.block(height));
});

describe('a chain of 3,000 blocks with forks', () => {
  test('has correct counts in its headers', () => {
    for (const block of blocks) {
      const events = block.txs.reduce((sum, tx) => sum + tx.events.length, 0);
      expect([block.counts['event_count'], block.counts['transaction_count']]).toEqual([
        events,
        block.txs.length,
      ]);
      for (const tx of block.txs) expect(tx.receipt['events']).toBe(tx.events);
    }
  });

  test('has its true commitments and hashes in its headers', () => {
    const has = (is: (tx: SimBlock['txs'][number]) => boolean) =>
      blocks.findIndex(({ txs, height }) => height > 0 && txs.some(is));
    const sample = [
      0,
      1,
      500,
      has(({ transaction }) => transaction['type'] === 'L1_HANDLER'),
      has(({ receipt }) => receipt['execution_status'] === 'REVERTED'),
      has(({ receipt }) => JSON.stringify(receipt['messages_sent']) !== '[]'),
    ];
    for (const height of sample) {
      const block = item(blocks, height);
      const given = blockWithReceipts({ block, status: 'ACCEPTED_ON_L2' });
      const pairs = committedPairs.parse(given['transactions']);
      const roots = {
        transaction_commitment: independentRoot(
          pairs.map(({ transaction, receipt }) => [
            receipt.transaction_hash,
            ...(transaction.signature ?? []),
          ]),
        ),
        event_commitment: independentCommitment(block.txs),
        receipt_commitment: independentRoot(pairs.map(({ receipt }) => receiptLeaf(receipt))),
      };
      for (const [name, root] of Object.entries(roots))
        expect(BigInt(String(given[name])), `${name} of ${height}`).toBe(root);
      const { body } = parseBlockWithReceipts(given, 1);
      expect(BigInt(block.hash)).toBe(independentBlockHash(body));
      expect(block.parentHash).toBe(height === 0 ? '0x0' : item(blocks, height - 1).hash);
    }
  });

  test('uses every layout within 1,000 blocks', () => {
    for (const from of [1, 1000, 2000]) {
      const seen = new Set(
        blocks.slice(from, from + 1000).flatMap(({ transfers }) => transfers.map((one) => one.layout)),
      );
      expect([...seen].sort()).toEqual([...layoutNames].sort());
    }
  });

  test('matches intended transfers and token events', () => {
    for (const block of blocks.slice(0, 200)) {
      const events = block.txs.flatMap((tx, txIndex) =>
        tx.events.map((event, eventIndex) => ({ event, txIndex, eventIndex, hash: tx.hash })),
      );
      const pointed = new Set<number>();
      for (const transfer of block.transfers) {
        const at = events[transfer.position];
        expect(at).toMatchObject({
          txIndex: transfer.txIndex,
          eventIndex: transfer.eventIndex,
          hash: transfer.txHash,
        });
        const felts = [...(at?.event.keys ?? []), ...(at?.event.data ?? [])].map(BigInt);
        expect(BigInt(at?.event.from_address ?? 0)).toBe(transfer.token);
        for (const value of [transfer.from, transfer.to]) expect(felts).toContain(value);
        const number = transfer.tokenId ?? transfer.amount;
        if (transfer.layout !== 'erc20:3/0')
          expect(felts.includes(number) || felts.includes(number % HALF)).toBe(true);
        pointed.add(transfer.position);
      }
      for (const [position, { event }] of events.entries()) {
        if (!event.keys.some((key) => transferSelectors.has(key)) || pointed.has(position)) continue;
        // Only an empty batch (two empty spans) has no transfer.
        expect(event.keys).toContain(BATCH);
        expect(event.data.slice(event.keys.length === 1 ? 3 : 0)).toEqual(['0x0', '0x0']);
      }
    }
  });

  test('pays the fee of the receipt to the sequencer in the last event, in the token of its unit', () => {
    let checked = 0;
    for (const block of blocks.slice(1, 1000)) {
      for (const [index, tx] of block.txs.entries()) {
        const fees = block.transfers.filter((transfer) => transfer.txIndex === index && transfer.isFee);
        const paid = tx.receipt['actual_fee'] as { amount: string; unit: string };
        if (tx.transaction['type'] === 'L1_HANDLER') {
          expect([fees.length, paid.amount]).toEqual([0, '0x0']);
          continue;
        }
        const last = tx.events.at(-1);
        expect(fees).toHaveLength(1);
        expect(fees[0]).toMatchObject({
          eventIndex: tx.events.length - 1,
          token: FEE_TOKENS[paid.unit],
          amount: BigInt(paid.amount),
          to: BigInt(String(block.header['sequencer_address'])),
          from: BigInt(String(tx.transaction['sender_address'] ?? tx.receipt['contract_address'])),
        });
        expect(last?.data.includes(paid.amount)).toBe(true);
        expect(paid.unit).toBe(tx.transaction['version'] === '0x3' ? 'FRI' : 'WEI');
        if (tx.receipt['execution_status'] === 'REVERTED') {
          expect(tx.events).toHaveLength(1);
          expect(tx.receipt['revert_reason']).toEqual(expect.any(String));
        }
        checked++;
      }
    }
    expect(checked).toBeGreaterThan(8000);
  });

  test('has transactions of all kinds, without duplicate hashes', () => {
    const kinds = new Map<string, number>();
    const seen = new Set<string>();
    for (const { txs } of blocks) {
      for (const tx of txs) {
        const kind = `${String(tx.transaction['type'])} ${String(tx.transaction['version'])} ${String(tx.receipt['execution_status'])}`;
        kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
        expect(seen.has(tx.hash)).toBe(false);
        seen.add(tx.hash);
      }
    }
    for (const kind of [
      'INVOKE 0x3 SUCCEEDED',
      'INVOKE 0x1 SUCCEEDED',
      'INVOKE 0x3 REVERTED',
      'INVOKE 0x1 REVERTED',
      'L1_HANDLER 0x0 SUCCEEDED',
      'DEPLOY_ACCOUNT 0x3 SUCCEEDED',
      'DECLARE 0x3 SUCCEEDED',
    ]) {
      expect([kind, (kinds.get(kind) ?? 0) > 20]).toEqual([kind, true]);
    }
  });

  test('transfers NFTs from their owners only, has no negative balances, and computes the same balances', () => {
    const owners = new Map<string, bigint>();
    const balances = new Map<string, bigint>();
    const heights = [0, 1, 64, 511, 512, 513, 1500, HEAD];
    for (const block of blocks) {
      for (const { standard, token, tokenId, from, to, amount } of block.transfers) {
        if (standard === 'erc721') {
          const key = `${token}:${tokenId}`;
          expect(from).toBe(owners.get(key) ?? 0n);
          owners.set(key, to);
        }
        const unit = standard === 'erc1155' ? `${token}:${tokenId}` : `${token}`;
        for (const [account, delta] of [[from, -amount] as const, [to, amount] as const]) {
          const key = `${unit}/${account}`;
          const balance = (balances.get(key) ?? 0n) + delta;
          if (balance < 0n && account !== 0n) expect([block.height, key, balance]).toBe('not negative');
          balances.set(key, balance);
        }
      }
      if (heights.includes(block.height)) compare(block.height, balances, owners);
    }
  });

  function compare(height: number, balances: Map<string, bigint>, owners: Map<string, bigint>) {
    let compared = 0;
    const minted = new Map<string, bigint>();
    for (const [key, balance] of balances) {
      const [unit = '', account = ''] = key.split('/');
      const [address = '', id] = unit.split(':');
      const token = tokenAt(BigInt(address));
      const holder = chain.source.actors.find(BigInt(account));
      if (token === null || holder === null) throw new Error(`unknown ${key}`);
      if (account === '0') minted.set(unit, -balance);
      if (account === '0' || compared++ % 7 !== 0) continue;
      const computed = chain.balances.balance(
        chain.fork(),
        height,
        token,
        holder,
        id === undefined ? null : BigInt(id),
      );
      expect([key, computed]).toEqual([key, balance]);
    }
    for (const token of tokens.filter(({ standard }) => standard !== 'erc1155')) {
      const supply = chain.balances.supply(chain.fork(), height, token);
      expect([token.key, supply]).toEqual([token.key, minted.get(`${token.address}`) ?? 0n]);
    }
    for (const [key, owner] of owners) {
      const [address = '', id = ''] = key.split(':');
      const token = tokenAt(BigInt(address));
      if (token === null) throw new Error(`unknown ${key}`);
      const computed = chain.balances.ownerOf(chain.fork(), height, token, BigInt(id));
      expect(computed === null ? 0n : chain.source.actors.address(computed)).toBe(owner);
    }
  }

  test('has 256-bit amounts and ids, zero amounts, transfers to oneself and to the sequencer', () => {
    const all = blocks.slice(1).flatMap(({ transfers }) => transfers);
    const sequencers = new Set(blocks.map(({ header }) => BigInt(String(header['sequencer_address']))));
    expect(all.some(({ amount }) => amount >= HALF)).toBe(true);
    expect(all.some(({ tokenId }) => tokenId !== null && tokenId >= 1n << 251n)).toBe(true);
    expect(all.some(({ amount, layout }) => amount === 0n && layout !== 'erc20:3/0')).toBe(true);
    expect(all.some(({ from, to }) => from === to)).toBe(true);
    expect(all.some(({ to, isFee }) => !isFee && sequencers.has(to))).toBe(true);
    expect(all.some(({ item }) => item > 3)).toBe(true);
    expect(all.every(({ from, to }) => from !== 0n || to !== 0n)).toBe(true);
  });
});

describe('copied tokens', () => {
  const table = tokenTable(300);
  const copies = table.list.slice(tokens.length);

  test('have their own addresses and names, and a third of them are NFT contracts', () => {
    expect(new Set(table.list.map(({ address }) => address)).size).toBe(tokens.length + 300);
    const names = copies.flatMap(({ name }) => (name.as === 'revert' ? [] : [name.bytes.toString('hex')]));
    expect(new Set(names).size).toBe(names.length);
    for (const { name } of copies) {
      // A felt holds 31 bytes.
      expect(name.as === 'felt' ? name.bytes.length : 0).toBeLessThanOrEqual(31);
    }
    expect(copies.filter(({ standard }) => standard === 'erc721' || standard === 'erc1155')).toHaveLength(
      100,
    );
  });

  test('are all transferred, in every layout, and answer to calls', () => {
    const options = chainOptionsOf({ initialHead: 400, transfersPerBlock: 125, copiedTokens: 300 });
    const mixed = createChain({ ...options, genesisTime: 1_700_000_000 });
    const seen = new Set<bigint>();
    const layouts = new Set<string>();
    for (let height = 1; height <= 400; height++) {
      for (const { token, layout } of mixed.block(height).transfers) {
        seen.add(token);
        layouts.add(layout);
      }
    }
    expect(copies.filter(({ address }) => !seen.has(address))).toEqual([]);
    expect([...layouts].sort()).toEqual([...layoutNames].sort());
    const ledger = simulatedLedger(mixed);
    for (const { address, name } of copies) {
      const answer = ledger.contracts.call({
        address,
        selector: BigInt(selectors.name),
        calldata: [],
        height: 400,
      });
      if (answer.is !== 'result' || name.as !== 'felt') continue;
      expect(BigInt(answer.felts[0] ?? 0)).toBe(BigInt(`0x${name.bytes.toString('hex')}`));
    }
  });
});

const BATCH = '0x2563683c757f3abe19c4b7237e2285d8993417ddffe0b54a19eb212ea574b08';
const transferSelectors = new Set([
  '0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9',
  '0x182d859c0807ba9db63baf8b9d9fdbfeb885d820be6e206b9dab626d995c433',
  BATCH,
]);

describe('malformed events', () => {
  test('are listed separately and change no transfers', () => {
    const spoilt = grown(0.05);
    const kinds = new Set<string>();
    for (let height = 1; height <= 1000; height++) {
      const block = spoilt.block(height);
      const events = block.txs.flatMap((tx) => tx.events);
      for (const { position, token, kind } of block.malformed) {
        expect(BigInt(events[position]?.from_address ?? 0)).toBe(token);
        expect(block.transfers.some((transfer) => transfer.position === position)).toBe(false);
        kinds.add(kind);
      }
      expect(block.counts['event_count']).toBe(events.length);
    }
    expect(kinds.size).toBe(10);
    expect(blocks.every(({ malformed }) => malformed.length === 0)).toBe(true);
  });
});
