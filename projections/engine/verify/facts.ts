import { hash } from 'node:crypto';

import type { ColumnSpec, Row } from '../../../infra/clickhouse/row-binary.ts';
import { checkEvents } from '../../../schemas/commitment/check.ts';
import { blockHash } from '../../../schemas/commitment/block-hash.ts';
import { contractsKey, countEvents } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockBody, EventCheck } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockItem, BlockProjection } from '../../define.ts';
import { MAX_UINT32 } from '../../descending.ts';
import { chainBlocks } from '../../streams.ts';

/** Stored where the header gives no count. */
export const NO_COUNT = MAX_UINT32;

export const factColumns: readonly ColumnSpec[] = [
  { name: 'height', type: 'UInt32' },
  { name: 'seq', type: 'UInt64' },
  { name: 'log_partition', type: 'UInt16' },
  { name: 'log_offset', type: 'UInt64' },
  { name: 'accepted', type: 'UInt8' },
  { name: 'hash', type: 'FixedString(32)' },
  { name: 'parent_hash', type: 'FixedString(32)' },
  // SHA-256 of the `contracts` map: the rows of a block depend on it.
  { name: 'contracts', type: 'FixedString(32)' },
  { name: 'transactions', type: 'UInt32' },
  { name: 'events', type: 'UInt32' },
  { name: 'header_transactions', type: 'UInt32' },
  { name: 'header_events', type: 'UInt32' },
  // Comparison of the events with the commitment in the header; empty where it is not asked for.
  { name: 'event_check', type: 'LowCardinality(String)' },
];

/** One row for each message of the log: what the checks of the log itself need. `commitments`: that of the events, too. */
export const factsOf = (commitments: boolean): BlockProjection => ({
  kind: 'clickhouse',
  name: 'verify',
  version: 1,
  topic: chainBlocks,
  ddl: `CREATE TABLE {{facts}} (${factColumns.map(({ name, type }) => `${name} ${type}`).join(', ')})
    ENGINE = MergeTree ORDER BY (height, seq);`,
  tables: { facts: { columns: factColumns } },
  project: (item) => ({ facts: [factOf(item, commitments)] }),
});

function factOf({ message, partition, offset }: BlockItem, commitments: boolean): Row {
  const { block } = message;
  const isChecked = commitments && message.type === 'block.accepted';
  return {
    height: block.height,
    seq: message.seq,
    log_partition: partition,
    log_offset: offset,
    accepted: message.type === 'block.accepted' ? 1 : 0,
    hash: block.hash,
    parent_hash: block.parent_hash,
    contracts: `0x${hash('sha256', contractsKey(message.contracts))}`,
    transactions: block.transactions.length,
    events: countEvents(block),
    header_transactions: block.transaction_count ?? NO_COUNT,
    header_events: block.event_count ?? NO_COUNT,
    event_check: isChecked ? checkOf(block) : '',
  };
}

/** A commitment counts for nothing in a header that does not give the hash of the block. */
function checkOf(block: BlockBody): EventCheck {
  const outcome = checkEvents(block, block.header?.event_commitment ?? null);
  return outcome === 'verified' && blockHash(block) !== block.hash ? 'no_commitment' : outcome;
}
