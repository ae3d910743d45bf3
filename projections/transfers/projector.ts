import { topics } from '../../schemas/topics.ts';
import { rowVersion, transferColumns, transferRow } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { ClickHouseProjection } from '../define.ts';

export const transfers: ClickHouseProjection = {
  kind: 'clickhouse',
  name: 'transfers',
  version: 3,
  topic: topics.chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: { transfers: { columns: transferColumns } },
  project(item) {
    const version = rowVersion(item);
    return { transfers: item.decoded.transfers.map((transfer) => transferRow(item, transfer, version)) };
  },
};
