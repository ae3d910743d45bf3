import { expect, test } from 'vitest';

import { nftTransfers } from '../../../../projections/nft-transfers/projector.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ART, ITEMS } from '../../../support/chain-messages.ts';
import { rowsOf, sampleMessage } from '../../../support/sample-block.ts';

test('makes rows only of transfers with a token id', () => {
  expect(
    rowsOf(nftTransfers, sampleMessage).map((row) => [row['token'], row['token_id'], row['amount']]),
  ).toEqual([
    [ART, 77n, 1n],
    [ITEMS, 1n, 10n],
    [ITEMS, 2n, 20n],
  ]);
});

testBlockProjection(nftTransfers);
