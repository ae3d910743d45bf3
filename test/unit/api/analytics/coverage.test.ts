import { expect, test } from 'vitest';

import { coverageHeaders } from '../../../../api/analytics/coverage.ts';
import { toFelt } from '../../../../schemas/felt.ts';

const asOf = { height: 7, hash: toFelt(7n), timestamp: 1_700_000_000, seq: 1 };

test.each([
  ['a block is derived', 5, null, { 'X-Indexed-Block': '5' }],
  ['a block is derived, as of another', 5, asOf, { 'X-Indexed-Block': '5' }],
  ['none is derived', -1, null, { 'X-Indexed-Block': null }],
  ['none is derived, as of a block: its height stays', -1, asOf, {}],
])('%s', (_, upTo, block, expected) => {
  expect(coverageHeaders({ upTo, isLate: true }, block)).toEqual(expected);
});
