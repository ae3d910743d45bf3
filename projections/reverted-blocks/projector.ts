import { versionColumns } from '../chain-rows.ts';
import { descending } from '../descending.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

export const revertedBlocks: BlockProjection = {
  kind: 'clickhouse',
  name: 'reverted-blocks',
  version: 1,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  isHistory: true,
  isRemoval: () => true,
  tables: {
    reverted_blocks: {
      columns: [
        { name: 'block_desc', type: 'UInt32' },
        { name: 'block_hash', type: 'FixedString(32)' },
        { name: 'parent_hash', type: 'FixedString(32)' },
        ...versionColumns,
      ],
    },
  },
  project({ message: { type, block, seq } }) {
    if (type !== 'block.reverted') return { reverted_blocks: [] };
    const row = {
      block_desc: descending(block.height),
      block_hash: block.hash,
      parent_hash: block.parent_hash,
      seq,
      is_deleted: 0,
    };
    return { reverted_blocks: [row] };
  },
};
