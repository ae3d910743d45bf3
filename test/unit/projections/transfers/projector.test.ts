import { expect, test } from 'vitest';

import { transfers } from '../../../../projections/transfers/projector.ts';
import { STRK_TOKEN } from '../../../../schemas/felt.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ART, COIN, ITEMS, RIDDLE, SEQUENCER } from '../../../support/chain-messages.ts';
import {
  ANNA,
  BLOCK_DESC,
  last,
  rowsOf,
  sampleBlock,
  sampleHashes,
  sampleMessage,
} from '../../../support/sample-block.ts';

test('makes one row for each transfer, newest first in the key', () => {
  const rows = rowsOf(transfers, sampleMessage);
  expect(rows.map((row) => [row['token'], row['position_desc'], row['item_desc'], row['kind']])).toEqual([
    [COIN, last(0), last(0), 'erc20'],
    [STRK_TOKEN, last(1), last(0), 'erc20'],
    [ART, last(2), last(0), 'erc721'],
    [ITEMS, last(3), last(0), 'erc1155'],
    [ITEMS, last(3), last(1), 'erc1155'],
    [RIDDLE, last(4), last(0), 'unknown'],
  ]);
  expect(rows[1]).toEqual({
    token: STRK_TOKEN,
    block_desc: BLOCK_DESC,
    position_desc: last(1),
    item_desc: last(0),
    from_address: ANNA,
    to_address: SEQUENCER,
    kind: 'erc20',
    amount: 9n,
    token_id: 0n,
    tx_hash: sampleHashes[0],
    event_in_tx: 1,
    timestamp: 1_700_010_000,
    fee: 9n,
    fee_unit: STRK_TOKEN,
    is_fee: 1,
    execution_status: 'SUCCEEDED',
    block_hash: sampleBlock.hash,
    seq: 100,
    is_deleted: 0,
  });
  expect(rows.map((row) => row['amount'])).toEqual([12n, 9n, 1n, 10n, 20n, 4n]);
  expect(rows.map((row) => row['token_id'])).toEqual([0n, 0n, 77n, 1n, 2n, 0n]);
});

testBlockProjection(transfers);
