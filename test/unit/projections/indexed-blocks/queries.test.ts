import { expect, test } from 'vitest';

import { chunkTotals } from '../../../../projections/indexed-blocks/queries.ts';

test.each([
  ['indexed_block_ranges_v1_b3', false],
  ['indexed_block_ranges_v2_b1', true],
])('chunkTotals of %s reads the verified blocks: %s', async (table, isRead) => {
  const asked: string[] = [];
  const clickhouse = {
    rows: async ({ sql }: { readonly sql: string }) => {
      asked.push(sql);
      return [];
    },
  };
  await chunkTotals(clickhouse, { table: () => table });
  expect(asked.map((sql) => [sql.includes(`FROM ${table} `), sql.includes('sum(verified)')])).toEqual([
    [true, isRead],
  ]);
});
