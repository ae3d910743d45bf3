import { expect, test } from 'vitest';

import { checkedHeights, chunkTotals } from '../../../../projections/indexed-blocks/queries.ts';

const NOTHING = {
  first: null,
  last: null,
  blocks: 0,
  verified: 0,
  old_version: 0,
  no_commitment: 0,
  mismatched: 0,
};

test.each([
  ['indexed_block_ranges_v1_b3', []],
  ['indexed_block_ranges_v2_b1', ['verified']],
  ['indexed_block_ranges_v3_b2', ['verified', 'old_version', 'no_commitment', 'mismatched']],
])('of %s these outcomes are read: %j', async (table, outcomes) => {
  const asked: string[] = [];
  const clickhouse = {
    rows: async ({ name, sql }: { readonly name: string; readonly sql: string }) => {
      asked.push(sql);
      return name === 'indexed-blocks.checked' ? ([NOTHING] as never[]) : [];
    },
  };
  const tables = { table: () => table };
  await chunkTotals(clickhouse, tables);
  await checkedHeights(clickhouse, tables);
  const [totals = '', checked = ''] = asked;
  expect(totals.includes('sum(verified)')).toBe(outcomes.includes('verified'));
  const columns = ['verified', 'old_version', 'no_commitment', 'mismatched'];
  expect(columns.filter((column) => checked.includes(`sum(${column})`))).toEqual(outcomes);
});
