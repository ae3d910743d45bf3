import { expect, test } from 'vitest';

import type { TableReport } from '../../../../../projections/engine/rebuild/compare-builds.ts';
import { comparedSoFar } from '../../../../../projections/engine/rebuild/rebuild.ts';
import { rebuildLines } from '../../../../../projections/engine/rebuild/report-lines.ts';

const range = (where: string, rows: number) => ({
  bucket: 0,
  where,
  ours: { rows, checksum: '1' },
  theirs: { rows, checksum: '2' },
});
const tables: TableReport[] = [
  { projection: 'transfers', table: 'transfers', rows: 50, differing: [], unsettled: [], samples: [] },
  {
    projection: 'transfer-counts',
    table: 'transfer_counts',
    rows: 30,
    differing: [],
    unsettled: [range('heights 0 to 1023', 10)],
    samples: [],
  },
  {
    projection: 'token-holders',
    table: 'token_holders',
    rows: 70,
    differing: [],
    unsettled: [range('all rows', 70)],
    samples: [],
  },
];

test('a rebuild calls nothing equal that was not compared', () => {
  const lines = rebuildLines({ builds: [], messages: 0, readMs: 0, tables, isSwapped: false, heldMs: null });
  expect(lines).toEqual([
    '  transfer_counts: not compared at heights 0 to 1023, which are being written',
    '  token_holders: not compared at all rows, which are being written',
    '  transfers: 50 rows, equal',
    '  transfer_counts: 20 rows, equal',
    'Not swapped.',
  ]);
});

test.each([
  [false, ' The old tables are kept: `tds builds drop transfers 1`.'],
  [true, ''],
])('a rebuild says that the old tables are kept unless it drops them (%s)', (dropsPrevious, kept) => {
  const builds = [{ projection: 'transfers', version: 1, before: 1, after: 2, isResumed: false }];
  const report = { builds, messages: 5, readMs: 0, tables: [], isSwapped: true, heldMs: 7 };
  expect(rebuildLines(report, dropsPrevious).at(-1)).toBe(`Swapped; writers waited 7 ms.${kept}`);
});

test('a rebuild counts no rows as compared that were not', () => {
  expect(comparedSoFar(tables)).toEqual({ rows: 70, differences: 0, differing: [] });
});
