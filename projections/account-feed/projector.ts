import { rowVersion, sides, transferColumns, transferRow } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

export const accountFeed: BlockProjection = {
  kind: 'clickhouse',
  name: 'account-feed',
  version: 5,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    account_feed: {
      columns: [
        { name: 'account', type: 'FixedString(32)' },
        { name: 'leg', type: 'UInt8' },
        ...transferColumns,
      ],
    },
  },
  project(item) {
    const version = rowVersion(item);
    return {
      account_feed: item.decoded.transfers.flatMap((transfer) => {
        const row = transferRow(item, transfer, version);
        return sides(transfer).map(({ account, leg }) => ({ account, leg, ...row }));
      }),
    };
  },
};
