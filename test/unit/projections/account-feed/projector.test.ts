import { expect, test } from 'vitest';

import { accountFeed } from '../../../../projections/account-feed/projector.ts';
import { ZERO_FELT } from '../../../../schemas/felt.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { SEQUENCER } from '../../../support/chain-messages.ts';
import { ANNA, BERT, last, rowsOf, sampleMessage } from '../../../support/sample-block.ts';

test('makes one row for each account of a transfer, and one of a transfer to oneself', () => {
  expect(
    rowsOf(accountFeed, sampleMessage).map((row) => [
      row['account'],
      row['leg'],
      row['position_desc'],
      row['item_desc'],
    ]),
  ).toEqual([
    [ANNA, 1, last(0), last(0)],
    [BERT, 2, last(0), last(0)],
    [ANNA, 1, last(1), last(0)],
    [SEQUENCER, 2, last(1), last(0)],
    [ZERO_FELT, 1, last(2), last(0)],
    [BERT, 2, last(2), last(0)],
    [ANNA, 3, last(3), last(0)],
    [ANNA, 3, last(3), last(1)],
    [BERT, 1, last(4), last(0)],
    [ANNA, 2, last(4), last(0)],
  ]);
});

testBlockProjection(accountFeed);
