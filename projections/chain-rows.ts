import type { ColumnSpec } from '../infra/clickhouse/row-binary.ts';
import type { Transfer } from '../schemas/decode/index.ts';
import type { Felt } from '../schemas/felt.ts';
import { heightsOf, rangeOf } from '../schemas/topics.ts';
import type { BlockItem, TouchedBlock } from './define.ts';
import { descending } from './descending.ts';

/** Rows of one message of `chain.blocks`: what the tables made from it share. */

export const versionColumns: readonly ColumnSpec[] = [
  { name: 'seq', type: 'UInt64' },
  { name: 'is_deleted', type: 'UInt8' },
];

/** The end of every row: a revert writes the same rows again, as tombstones under its own seq. */
export interface RowVersion {
  readonly seq: number;
  readonly is_deleted: 0 | 1;
}

export function rowVersion({ message }: BlockItem): RowVersion {
  return { seq: message.seq, is_deleted: message.type === 'block.reverted' ? 1 : 0 };
}

/** The columns of a transfer that is shown whole, in `transfers` and `account_feed`. */
export const transferColumns: readonly ColumnSpec[] = [
  { name: 'token', type: 'FixedString(32)' },
  { name: 'block_desc', type: 'UInt32' },
  { name: 'position_desc', type: 'UInt32' },
  { name: 'item_desc', type: 'UInt32' },
  { name: 'from_address', type: 'FixedString(32)' },
  { name: 'to_address', type: 'FixedString(32)' },
  { name: 'kind', type: 'LowCardinality(String)' },
  { name: 'amount', type: 'UInt256' },
  { name: 'token_id', type: 'UInt256' },
  { name: 'tx_hash', type: 'FixedString(32)' },
  { name: 'event_in_tx', type: 'UInt32' },
  { name: 'timestamp', type: 'UInt32' },
  { name: 'fee', type: 'UInt256' },
  { name: 'fee_unit', type: 'FixedString(32)' },
  { name: 'is_fee', type: 'UInt8' },
  { name: 'execution_status', type: 'LowCardinality(String)' },
  { name: 'block_hash', type: 'FixedString(32)' },
  ...versionColumns,
];

export function transferRow({ message: { block } }: BlockItem, transfer: Transfer, version: RowVersion) {
  return {
    token: transfer.token,
    block_desc: descending(block.height),
    position_desc: descending(transfer.position),
    item_desc: descending(transfer.item),
    from_address: transfer.from,
    to_address: transfer.to,
    kind: transfer.kind,
    amount: transfer.amount,
    token_id: transfer.tokenId ?? 0n,
    tx_hash: transfer.txHash,
    event_in_tx: transfer.eventInTx,
    timestamp: block.timestamp,
    fee: transfer.fee,
    fee_unit: transfer.feeToken,
    is_fee: transfer.isFee ? 1 : 0,
    execution_status: transfer.executionStatus,
    block_hash: block.hash,
    seq: version.seq,
    is_deleted: version.is_deleted,
  };
}

/** The accounts a transfer belongs to, and as what; a transfer to oneself belongs to one account once. */
export function sides({ from, to }: Transfer): readonly { account: Felt; leg: 1 | 2 | 3 }[] {
  return from === to
    ? [{ account: from, leg: 3 }]
    : [
        { account: from, leg: 1 },
        { account: to, leg: 2 },
      ];
}

/** Blocks of one range of heights, by their lowest and highest height. */
export interface HeightSpan {
  readonly range: number;
  readonly first: number;
  readonly last: number;
}

/** Groups blocks by their range of heights. */
export function heightSpans<B extends { readonly height: number }>(
  blocks: readonly B[],
): (HeightSpan & { readonly blocks: readonly B[] })[] {
  return [...Map.groupBy(blocks, ({ height }) => rangeOf(height))].map(([range, own]) => {
    const heights = own.map(({ height }) => height);
    return { range, first: Math.min(...heights), last: Math.max(...heights), blocks: own };
  });
}

/** A range of heights that a batch touched. */
interface TouchedRange extends HeightSpan {
  /** The range's own bounds, both inclusive. */
  readonly start: number;
  readonly end: number;
  /** The highest offset that touched it: the version of what is recomputed. */
  readonly offset: number;
}

/**
 * Whether these are new blocks of one range, the newest, that later blocks will complete. Nobody reads its sums yet: readers of
 * sums use only ranges that end below the height up to which they read.
 */
export function areNewInOpenRange(touched: readonly TouchedBlock[]): boolean {
  const [range, ...others] = touchedRanges(touched);
  if (range === undefined || others.length > 0 || range.last === range.end) return false;
  return touched.every(({ isNew }) => isNew);
}

/** All messages about a range lie in one partition, so their offsets order them. */
export function touchedRanges(touched: readonly TouchedBlock[]): TouchedRange[] {
  return heightSpans(touched).map(({ range, first, last, blocks }) => {
    const { from: start, to: end } = heightsOf(range);
    return { range, start, end, first, last, offset: Math.max(...blocks.map(({ offset }) => offset)) };
  });
}
