import { hasCommitment } from '../../schemas/commitment/check.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import { rowVersion, versionColumns } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { descending } from '../descending.ts';
import { chainBlocks } from '../streams.ts';

export const blockEvents: BlockProjection = {
  kind: 'clickhouse',
  name: 'block-events',
  version: 1,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    block_events: {
      columns: [
        { name: 'block_desc', type: 'UInt32' },
        { name: 'block_hash', type: 'FixedString(32)' },
        { name: 'timestamp', type: 'UInt32' },
        { name: 'header', type: 'String' },
        { name: 'tx_hashes', type: 'Array(FixedString(32))' },
        { name: 'tx_events', type: 'Array(UInt32)' },
        { name: 'event_keys', type: 'Array(UInt32)' },
        { name: 'event_data', type: 'Array(UInt32)' },
        { name: 'felts', type: 'Array(FixedString(32))' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { type, block } = item.message;
    const { hash, transactions, event_check: _, ...header } = block;
    // A tombstone hides the row by its key alone.
    const isKept = type === 'block.accepted' && hasCommitment(block);
    return {
      block_events: [
        {
          block_desc: descending(block.height),
          block_hash: hash,
          timestamp: block.timestamp,
          header: isKept ? JSON.stringify(header) : '',
          ...listsOf(isKept ? transactions : []),
          ...rowVersion(item),
        },
      ],
    };
  },
};

/** Events as lists of columns, which need no encoding of their own. */
function listsOf(transactions: BlockBody['transactions']) {
  const lists = {
    tx_hashes: [] as Felt[],
    tx_events: [] as number[],
    event_keys: [] as number[],
    event_data: [] as number[],
    felts: [] as Felt[],
  };
  for (const { hash, events } of transactions) {
    if (events.length === 0) continue;
    lists.tx_hashes.push(hash);
    lists.tx_events.push(events.length);
    for (const { from_address, keys, data } of events) {
      lists.event_keys.push(keys.length);
      lists.event_data.push(data.length);
      lists.felts.push(from_address);
      for (const felt of keys) lists.felts.push(felt);
      for (const felt of data) lists.felts.push(felt);
    }
  }
  return lists;
}
