import { topics } from '../../schemas/topics.ts';
import { descending, rowVersion, versionColumns } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { ClickHouseProjection } from '../define.ts';

export const accountLedger: ClickHouseProjection = {
  kind: 'clickhouse',
  name: 'account-ledger',
  version: 1,
  topic: topics.chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    account_ledger: {
      columns: [
        { name: 'account', type: 'FixedString(32)' },
        { name: 'token', type: 'FixedString(32)' },
        { name: 'block_desc', type: 'UInt32' },
        { name: 'position_desc', type: 'UInt32' },
        { name: 'item_desc', type: 'UInt32' },
        { name: 'leg', type: 'UInt8' },
        { name: 'delta', type: 'Int256' },
        { name: 'kind', type: 'LowCardinality(String)' },
        { name: 'token_id', type: 'UInt256' },
        { name: 'timestamp', type: 'UInt32' },
        { name: 'tx_hash', type: 'FixedString(32)' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { block } = item.message;
    const version = rowVersion(item);
    return {
      account_ledger: item.decoded.transfers.flatMap((transfer) => {
        // What an unknown contract's number means cannot be told, so it counts in no balance.
        if (transfer.kind === 'unknown') return [];
        const leg = (account: string, number: 1 | 2, delta: bigint) => ({
          account,
          token: transfer.token,
          block_desc: descending(block.height),
          position_desc: descending(transfer.position),
          item_desc: descending(transfer.item),
          leg: number,
          // Modulo 2^256: any contract may emit an amount of 2^255 or more, and a sum of deltas wraps the same way.
          delta: BigInt.asIntN(256, delta),
          kind: transfer.kind,
          token_id: transfer.tokenId ?? 0n,
          timestamp: block.timestamp,
          tx_hash: transfer.txHash,
          ...version,
        });
        return [leg(transfer.from, 1, -transfer.amount), leg(transfer.to, 2, transfer.amount)];
      }),
    };
  },
};
