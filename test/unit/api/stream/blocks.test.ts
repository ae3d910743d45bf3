import { expect, test } from 'vitest';

import { withAllTransfers } from '../../../../api/stream/blocks.ts';
import type { BlockReading, RowsAhead } from '../../../../api/stream/blocks.ts';
import type { LinkedBlock } from '../../../../projections/indexed-blocks/queries.ts';
import type { VersionedTransfer } from '../../../../projections/transfers/queries.ts';
import { ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';

const HASH = toFelt(0xb10cn);
const block: LinkedBlock = {
  height: 7,
  hash: HASH,
  parent: ZERO_FELT,
  timestamp: 1_700_000_000,
  transfers: 1,
  seq: 5,
};

/** The one transfer of the block, in a version of its row. */
const row = (amount: string, change: Partial<VersionedTransfer> = {}): VersionedTransfer => ({
  transfer: {
    token: toFelt(1n),
    block: 7,
    position: 0,
    item: 0,
    from: toFelt(2n),
    to: toFelt(3n),
    kind: 'erc20',
    amount,
    token_id: '0',
    txhash: toFelt(4n),
    timestamp: 1_700_000_000,
    fee: '0',
    fee_unit: ZERO_FELT,
    is_fee: 0,
    execution_status: 'SUCCEEDED',
  },
  block_hash: HASH,
  seq: 5,
  isDeleted: false,
  ...change,
});

/** Amounts of the block where these rows were read ahead, and a later read finds the amount 2. */
async function amounts(heights: RowsAhead['heights'], ...rows: VersionedTransfer[]): Promise<string[]> {
  const reading = {
    clickhouse: { rows: async () => [row('2')] },
    pool: { query: async () => ({ rows: [] }) },
    served: { table: (name: string) => name, schema: (name: string) => name },
  } as unknown as BlockReading;
  const [whole] = await withAllTransfers(reading, [block], { heights, rows });
  return (whole?.transfers ?? []).map((transfer) => transfer.row.amount);
}

test.each([
  ['of its version', row('1'), ['1']],
  ['of an earlier version, which a repair has replaced', row('1', { seq: 4 }), ['2']],
  ['of a later version', row('1', { seq: 6 }), ['2']],
  ['of another fork', row('1', { block_hash: toFelt(0xbadn) }), ['2']],
  ['that were taken back', row('1', { isDeleted: true }), ['2']],
])('rows read ahead %s', async (_, ahead, expected) => {
  expect(await amounts({ from: 7, to: 10 }, ahead)).toEqual(expected);
});

test('a block beside the heights that were read ahead is read', async () => {
  expect(await amounts({ from: 8, to: 11 })).toEqual(['2']);
  expect(await amounts({ from: 7, to: 10 })).toEqual(['2']);
});
