import { describe, expect, test } from 'vitest';
import { z } from 'zod';

import { decodeBlock, tokenContracts } from '../../../../schemas/decode/index.ts';
import type { ContractsMap } from '../../../../schemas/messages/chain-blocks.ts';
import { block, contract, felt, transaction } from './builders.ts';
import { readRecordedBlock, whySkipped } from '../../../support/recorded-blocks.ts';

/** What these tests read of `starknet_getBlockWithReceipts`. */
const recorded = z.object({
  sequencer_address: z.string(),
  transactions: z.array(
    z.object({
      transaction: z.object({ sender_address: z.string().optional() }),
      receipt: z.object({
        transaction_hash: z.string(),
        /** The account that a DEPLOY_ACCOUNT made, and that pays for it. */
        contract_address: z.string().optional(),
        actual_fee: z.object({ amount: z.string(), unit: z.enum(['WEI', 'FRI']) }),
        execution_status: z.enum(['SUCCEEDED', 'REVERTED']),
        events: z.array(
          z.object({ from_address: z.string(), keys: z.array(z.string()), data: z.array(z.string()) }),
        ),
      }),
    }),
  ),
});

function load(file: string) {
  const raw = recorded.parse(readRecordedBlock(file));
  const body = block(
    raw.transactions.map(({ receipt }) =>
      transaction(
        receipt.events.map((event) => ({
          from_address: felt(event.from_address),
          keys: event.keys.map(felt),
          data: event.data.map(felt),
        })),
        {
          hash: felt(receipt.transaction_hash),
          fee: BigInt(receipt.actual_fee.amount).toString(),
          fee_unit: receipt.actual_fee.unit,
          execution_status: receipt.execution_status,
        },
      ),
    ),
  );
  return { raw, body: { ...body, sequencer_address: felt(raw.sequencer_address) } };
}

const TRANSFER = '0x99cd8bde557814842a3121e8ddfd433a539b8c9f14bf31ebf108d12e6196e9';
const SHORT_FEE_TOKENS = {
  WEI: '0x49d36570d4e46f48e99674bd3fcc84644ddd6b96f7c741b1562b82f9e004dc7',
  FRI: '0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d',
};

/** Every transfer of these blocks is (1, 4): walked in the raw document, its texts compared by value. */
function walk(raw: z.infer<typeof recorded>) {
  const rows = [];
  let position = 0;
  for (const [txIndex, { receipt }] of raw.transactions.entries()) {
    for (const [eventInTx, event] of receipt.events.entries()) {
      if (event.keys[0] === TRANSFER) {
        const [from = '', to = '', low = '', high = ''] = event.data;
        const isFee =
          event === receipt.events.at(-1) &&
          event.from_address === SHORT_FEE_TOKENS[receipt.actual_fee.unit] &&
          to === raw.sequencer_address &&
          low === receipt.actual_fee.amount &&
          high === '0x0';
        rows.push({
          token: `0x${event.from_address.slice(2).padStart(64, '0')}`,
          from: `0x${from.slice(2).padStart(64, '0')}`,
          to: `0x${to.slice(2).padStart(64, '0')}`,
          number: BigInt(low) + BigInt(high) * 2n ** 128n,
          position,
          txIndex,
          eventInTx,
          txHash: `0x${receipt.transaction_hash.slice(2).padStart(64, '0')}`,
          fee: BigInt(receipt.actual_fee.amount),
          isFee,
        });
      }
      position += 1;
    }
  }
  return rows;
}

const blocks = [
  // paid without an event, as all of early mainnet did
  { file: 'mainnet-2500.json', transfers: 8, fees: 0 },
  { file: 'mainnet-2800.json', transfers: 16, fees: 0 },
  { file: 'mainnet-65000.json', transfers: 512, fees: 232 },
  { file: 'sepolia-3100000.json', transfers: 3, fees: 3 },
];

describe.each(blocks)('$file', ({ file, transfers: count, fees }) => {
  test.skipIf(whySkipped !== '')(`${whySkipped}${count} transfers, ${fees} of them fees, row for row`, () => {
    const { raw, body } = load(file);
    const expected = walk(raw);
    expect(expected).toHaveLength(count);
    expect(expected.filter(({ isFee }) => isFee)).toHaveLength(fees);

    for (const standard of ['erc20', 'erc721', 'unknown'] as const) {
      const contracts: ContractsMap = Object.assign(
        {},
        ...tokenContracts(body).map((token) => contract(standard, token)),
      );
      const { transfers, malformed } = decodeBlock(body, contracts);
      expect(malformed).toEqual([]);
      expect(transfers).toEqual(
        expected.map(({ number, isFee, ...row }) => ({
          ...row,
          kind: standard,
          amount: standard === 'erc721' ? 1n : number,
          tokenId: standard === 'erc721' ? number : null,
          item: 0,
          isFee: isFee && standard !== 'erc721',
          executionStatus: 'SUCCEEDED',
          feeToken: felt(SHORT_FEE_TOKENS[file.startsWith('mainnet') ? 'WEI' : 'FRI']),
        })),
      );
    }
  });

  test.skipIf(whySkipped !== '')(
    `${whySkipped}asks for the standards of exactly the contracts that emit a Transfer`,
    () => {
      const { raw, body } = load(file);
      expect(new Set(tokenContracts(body))).toEqual(new Set(walk(raw).map(({ token }) => token)));
      expect(tokenContracts(body)).toHaveLength(new Set(tokenContracts(body)).size);
    },
  );
});

test.skipIf(whySkipped !== '')(
  `${whySkipped}block 65000: each transaction that paid ends in one fee transfer, from who sent it`,
  () => {
    const { raw, body } = load('mainnet-65000.json');
    const payers = raw.transactions
      .filter(({ receipt }) => receipt.actual_fee.amount !== '0x0')
      .map(({ transaction: { sender_address: sender }, receipt }) =>
        felt(sender ?? receipt.contract_address ?? ''),
      );
    const marked = decodeBlock(body, {}).transfers.filter(({ isFee }) => isFee);
    expect(marked.map(({ from }) => from)).toEqual(payers);
  },
);
