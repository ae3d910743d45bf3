import { describe, expect, test } from 'vitest';

import { blockEvents } from '../../../../projections/block-events/projector.ts';
import { STRK_TOKEN, ZERO_FELT, toFelt } from '../../../../schemas/felt.ts';
import {
  COIN,
  SEQUENCER,
  accepted,
  madeUpHeader as header,
  makeBlock,
  reverted,
  transferEvent,
} from '../../../support/chain-messages.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ANNA, BERT, rowsOf } from '../../../support/sample-block.ts';

testBlockProjection(blockEvents);

const other = { from_address: COIN, keys: [], data: [toFelt(1n)] };
const transfer = transferEvent(STRK_TOKEN, ANNA, BERT, 7n);
const block = {
  ...makeBlock({
    height: 9,
    transactions: [{ events: [transfer, other] }, { events: [] }, { events: [other] }],
  }),
  event_check: 'verified' as const,
  header,
};
const empty = { tx_hashes: [], tx_events: [], event_keys: [], event_data: [], felts: [] };

describe('block-events', () => {
  test('keeps the header, and the events of all transactions in order', () => {
    const [row] = rowsOf(blockEvents, accepted(block, 5));
    expect(row).toMatchObject({
      block_hash: block.hash,
      tx_hashes: [block.transactions[0]?.hash, block.transactions[2]?.hash],
      tx_events: [2, 1],
      event_keys: [3, 0, 0],
      event_data: [2, 1, 1],
      felts: [STRK_TOKEN, ...transfer.keys, ...transfer.data, COIN, toFelt(1n), COIN, toFelt(1n)],
      seq: 5,
      is_deleted: 0,
    });
    expect(JSON.parse(String(row?.['header']))).toEqual({
      height: 9,
      parent_hash: block.parent_hash,
      timestamp: block.timestamp,
      sequencer_address: SEQUENCER,
      starknet_version: '0.14.0',
      transaction_count: 3,
      event_count: 3,
      header,
    });
  });

  test.each([
    ['has no header', { ...block, header: undefined }],
    ['is older than 0.13.2', { ...block, starknet_version: '0.13.1' }],
    ['has events and no commitment', { ...block, header: { ...header, event_commitment: ZERO_FELT } }],
  ])('keeps nothing of a block that %s', (_what, one) => {
    expect(rowsOf(blockEvents, accepted(one, 5))).toEqual([
      expect.objectContaining({ block_hash: block.hash, header: '', ...empty, is_deleted: 0 }),
    ]);
  });

  test('deletes the row of a reverted block', () => {
    expect(rowsOf(blockEvents, reverted(block, 6))).toEqual([
      expect.objectContaining({ header: '', ...empty, seq: 6, is_deleted: 1 }),
    ]);
  });
});
