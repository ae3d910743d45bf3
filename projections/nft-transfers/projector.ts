import { rowVersion, versionColumns } from '../chain-rows.ts';
import { descending } from '../descending.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

export const nftTransfers: BlockProjection = {
  kind: 'clickhouse',
  name: 'nft-transfers',
  version: 1,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    nft_transfers: {
      columns: [
        { name: 'token', type: 'FixedString(32)' },
        { name: 'token_id', type: 'UInt256' },
        { name: 'block_desc', type: 'UInt32' },
        { name: 'position_desc', type: 'UInt32' },
        { name: 'item_desc', type: 'UInt32' },
        { name: 'from_address', type: 'FixedString(32)' },
        { name: 'to_address', type: 'FixedString(32)' },
        { name: 'kind', type: 'LowCardinality(String)' },
        { name: 'amount', type: 'UInt256' },
        { name: 'tx_hash', type: 'FixedString(32)' },
        { name: 'timestamp', type: 'UInt32' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { block } = item.message;
    const version = rowVersion(item);
    return {
      nft_transfers: item.decoded.transfers.flatMap((transfer) =>
        transfer.tokenId === null
          ? []
          : [
              {
                token: transfer.token,
                token_id: transfer.tokenId,
                block_desc: descending(block.height),
                position_desc: descending(transfer.position),
                item_desc: descending(transfer.item),
                from_address: transfer.from,
                to_address: transfer.to,
                kind: transfer.kind,
                amount: transfer.amount,
                tx_hash: transfer.txHash,
                timestamp: block.timestamp,
                ...version,
              },
            ],
      ),
    };
  },
};
