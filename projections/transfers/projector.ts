import { rowVersion, transferColumns, transferRow } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

export const transfers: BlockProjection = {
  kind: 'clickhouse',
  name: 'transfers',
  version: 4,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: { transfers: { columns: transferColumns } },
  project(item) {
    const version = rowVersion(item);
    return { transfers: item.decoded.transfers.map((transfer) => transferRow(item, transfer, version)) };
  },
};
