import { expect, test } from 'vitest';

import { indexedBlocks } from '../../../../projections/indexed-blocks/projector.ts';
import { STRK_TOKEN } from '../../../../schemas/felt.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ART, COIN, ITEMS, RIDDLE } from '../../../support/chain-messages.ts';
import { BLOCK_DESC, blockItem, rowsOf, sampleBlock, sampleMessage } from '../../../support/sample-block.ts';

test('stores what a block holds and where the log has it', () => {
  expect(rowsOf(indexedBlocks, sampleMessage)).toEqual([
    {
      block_desc: BLOCK_DESC,
      block_hash: sampleBlock.hash,
      parent_hash: sampleBlock.parent_hash,
      timestamp: 1_700_010_000,
      chunk: 'backfill-1',
      transactions: 3,
      events: 6,
      transfers: 6,
      malformed: 0,
      event_check: '',
      tokens: [COIN, STRK_TOKEN, ART, ITEMS, RIDDLE],
      log_partition: 3,
      log_offset: 7,
      seq: 100,
      is_deleted: 0,
    },
  ]);
});

test('stores whether the events match their commitment', () => {
  const block = { ...sampleBlock, event_check: 'verified' } as const;
  expect(rowsOf(indexedBlocks, { ...sampleMessage, block })).toMatchObject([{ event_check: 'verified' }]);
});

test('takes a block back before others stand in its place, but not one that is repaired', () => {
  const [accepted, reverted, repaired] = [
    sampleMessage,
    { ...sampleMessage, type: 'block.reverted', cause: 'reorg' } as const,
    { ...sampleMessage, type: 'block.reverted', cause: 'repair' } as const,
  ].map((message) => indexedBlocks.isRemoval?.(blockItem(message)));
  expect([accepted, reverted, repaired]).toEqual([false, true, false]);
});

testBlockProjection(indexedBlocks);
