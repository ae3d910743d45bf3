import { expect, test } from 'vitest';

import { txIndex } from '../../../../projections/tx-index/projector.ts';
import { STRK_TOKEN } from '../../../../schemas/felt.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ART, COIN, ITEMS, RIDDLE } from '../../../support/chain-messages.ts';
import { BLOCK_DESC, rowsOf, sampleHashes, sampleMessage } from '../../../support/sample-block.ts';

test('stores the full keys of a transaction’s transfers', () => {
  expect(rowsOf(txIndex, sampleMessage)).toEqual([
    {
      tx_hash: sampleHashes[0],
      block_desc: BLOCK_DESC,
      timestamp: 1_700_010_000,
      tokens: [COIN, STRK_TOKEN],
      positions: [0, 1],
      items: [0, 0],
      seq: 100,
      is_deleted: 0,
    },
    expect.objectContaining({ tx_hash: sampleHashes[1], tokens: [ART], positions: [2], items: [0] }),
    expect.objectContaining({
      tx_hash: sampleHashes[2],
      tokens: [ITEMS, ITEMS, RIDDLE],
      positions: [3, 3, 4],
      items: [0, 1, 0],
    }),
  ]);
});

testBlockProjection(txIndex);
