import { expect, test } from 'vitest';

import { transferCounts } from '../../../../projections/transfer-counts/projector.ts';
import { STRK_TOKEN, ZERO_FELT } from '../../../../schemas/felt.ts';
import { testBlockProjection } from '../../../support/block-projection.ts';
import { ART, COIN, ITEMS, RIDDLE, SEQUENCER } from '../../../support/chain-messages.ts';
import { ANNA, BERT, rowsOf, sampleMessage } from '../../../support/sample-block.ts';

test('counts transfers by token, and by account as its feed shows them', () => {
  const rows = rowsOf(transferCounts, sampleMessage);
  expect(new Set(rows.map((row) => [row['range'], row['block']].join()))).toEqual(new Set(['4,5000']));
  const counts = (kind: number): unknown =>
    Object.fromEntries(
      rows.filter((row) => row['subject_kind'] === kind).map((row) => [row['subject'], row['transfers']]),
    );
  expect(counts(1)).toEqual({ [COIN]: 1, [STRK_TOKEN]: 1, [ART]: 1, [ITEMS]: 2, [RIDDLE]: 1 });
  expect(counts(2)).toEqual({ [ANNA]: 5, [BERT]: 3, [SEQUENCER]: 1, [ZERO_FELT]: 1 });
});

testBlockProjection(transferCounts);
