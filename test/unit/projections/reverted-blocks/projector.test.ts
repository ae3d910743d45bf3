import { expect, test } from 'vitest';

import { encodeRows } from '../../../../infra/clickhouse/row-binary.ts';
import { revertedBlocks } from '../../../../projections/reverted-blocks/projector.ts';
import { reverted } from '../../../support/chain-messages.ts';
import { BLOCK_DESC, rowsOf, sampleBlock, sampleMessage } from '../../../support/sample-block.ts';

test('keeps a reverted block with its parent', () => {
  const rows = rowsOf(revertedBlocks, reverted(sampleBlock, 101));
  expect(rows).toEqual([
    {
      block_desc: BLOCK_DESC,
      block_hash: sampleBlock.hash,
      parent_hash: sampleBlock.parent_hash,
      seq: 101,
      is_deleted: 0,
    },
  ]);
  const columns = revertedBlocks.tables['reverted_blocks']?.columns ?? [];
  expect(encodeRows(columns, rows).length).toBeGreaterThan(0);
});

test('keeps nothing of an accepted block, so that a block that comes back stays known', () => {
  expect(rowsOf(revertedBlocks, sampleMessage)).toEqual([]);
});
