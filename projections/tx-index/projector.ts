import { rowVersion, versionColumns } from '../chain-rows.ts';
import { descending } from '../descending.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

export const txIndex: BlockProjection = {
  kind: 'clickhouse',
  name: 'tx-index',
  version: 2,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    tx_index: {
      columns: [
        { name: 'tx_hash', type: 'FixedString(32)' },
        { name: 'block_desc', type: 'UInt32' },
        { name: 'timestamp', type: 'UInt32' },
        { name: 'tokens', type: 'Array(FixedString(32))' },
        { name: 'positions', type: 'Array(UInt32)' },
        { name: 'items', type: 'Array(UInt32)' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { block } = item.message;
    const version = rowVersion(item);
    const byTransaction = Map.groupBy(item.decoded.transfers, ({ txHash }) => txHash);
    return {
      tx_index: [...byTransaction].map(([hash, transfers]) => ({
        tx_hash: hash,
        block_desc: descending(block.height),
        timestamp: block.timestamp,
        tokens: transfers.map(({ token }) => token),
        positions: transfers.map(({ position }) => position),
        items: transfers.map((transfer) => transfer.item),
        ...version,
      })),
    };
  },
};
