import { expect, test } from 'vitest';

import { accountLedger } from '../../../../projections/account-ledger/projector.ts';
import { STRK_TOKEN, ZERO_FELT } from '../../../../schemas/felt.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ART, COIN, ITEMS, SEQUENCER } from '../../../support/chain-messages.ts';
import { ANNA, BERT, blockItem, sampleMessage } from '../../../support/sample-block.ts';

test('makes two legs that sum to zero, and none of a contract of unknown standard', () => {
  const rows = accountLedger.project(blockItem(sampleMessage))['account_ledger'] ?? [];
  expect(rows.map((row) => [row['account'], row['token'], row['leg'], row['delta']])).toEqual([
    [ANNA, COIN, 1, -12n],
    [BERT, COIN, 2, 12n],
    [ANNA, STRK_TOKEN, 1, -9n],
    [SEQUENCER, STRK_TOKEN, 2, 9n],
    [ZERO_FELT, ART, 1, -1n],
    [BERT, ART, 2, 1n],
    [ANNA, ITEMS, 1, -10n],
    [ANNA, ITEMS, 2, 10n],
    [ANNA, ITEMS, 1, -20n],
    [ANNA, ITEMS, 2, 20n],
  ]);
});

test('sums the legs of each pair by block', () => {
  const rows = accountLedger.project(blockItem(sampleMessage))['account_ledger_by_block'] ?? [];
  expect(rows.map((row) => [row['account'], row['token'], row['delta'], row['legs']])).toEqual([
    [ANNA, COIN, -12n, 1],
    [BERT, COIN, 12n, 1],
    [ANNA, STRK_TOKEN, -9n, 1],
    [SEQUENCER, STRK_TOKEN, 9n, 1],
    [ZERO_FELT, ART, -1n, 1],
    [BERT, ART, 1n, 1],
    [ANNA, ITEMS, 0n, 4],
  ]);
  expect(new Set(rows.map((row) => [row['range'], row['block']].join()))).toEqual(new Set(['4,5000']));
});

testBlockProjection(accountLedger);
