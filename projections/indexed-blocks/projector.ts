import { countEvents, eventCheck } from '../../schemas/messages/chain-blocks.ts';
import { rowVersion, touchedRanges, versionColumns } from '../chain-rows.ts';
import { MAX_UINT32, ascendingSql, descending } from '../descending.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

const CHECKS = eventCheck.options;

/**
 * Recomputes every chunk that has blocks in the range, or had when the range was last recomputed: a chunk without blocks
 * gets a tombstone. The derived table is read only to find these chunks.
 */
const RECOMPUTE_RANGE = `
INSERT INTO {{indexed_block_ranges}}
  (chunk, range, blocks, transfers, ${CHECKS.join(', ')}, first_block, last_block, latest_transfer_block, seq, is_deleted)
SELECT chunk, {range:UInt32}, countIf(indexed) AS found, sumIf(moved, indexed),
  ${CHECKS.map((outcome) => `countIf(outcome = '${outcome}')`).join(', ')}, minIf(height, indexed), maxIf(height, indexed),
  if(countIf(indexed AND moved > 0) = 0, ${MAX_UINT32}, maxIf(height, indexed AND moved > 0)), {offset:UInt64}, found = 0
FROM (
  SELECT chunk, ${ascendingSql('block_desc')} AS height, transfers AS moved, true AS indexed, event_check AS outcome
  FROM {{indexed_blocks}} FINAL
  WHERE block_desc BETWEEN {newest_desc:UInt32} AND {oldest_desc:UInt32}
  UNION ALL
  SELECT chunk, toUInt32(0), toUInt32(0), false, '' FROM {{indexed_block_ranges}} FINAL WHERE range = {range:UInt32}
)
GROUP BY chunk`;

export const indexedBlocks: BlockProjection = {
  kind: 'clickhouse',
  name: 'indexed-blocks',
  version: 3,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  insertLast: true,
  // A repair writes the same block again at once: it stays indexed.
  isRemoval: ({ message }) => message.type === 'block.reverted' && message.cause !== 'repair',
  tables: {
    indexed_blocks: {
      columns: [
        { name: 'block_desc', type: 'UInt32' },
        { name: 'block_hash', type: 'FixedString(32)' },
        { name: 'parent_hash', type: 'FixedString(32)' },
        { name: 'timestamp', type: 'UInt32' },
        { name: 'chunk', type: 'LowCardinality(String)' },
        { name: 'transactions', type: 'UInt32' },
        { name: 'events', type: 'UInt32' },
        { name: 'transfers', type: 'UInt32' },
        { name: 'malformed', type: 'UInt32' },
        { name: 'event_check', type: 'LowCardinality(String)' },
        { name: 'tokens', type: 'Array(FixedString(32))' },
        { name: 'log_partition', type: 'UInt16' },
        { name: 'log_offset', type: 'UInt64' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { block, chunk } = item.message;
    const { transfers, malformed } = item.decoded;
    return {
      indexed_blocks: [
        {
          block_desc: descending(block.height),
          block_hash: block.hash,
          parent_hash: block.parent_hash,
          timestamp: block.timestamp,
          chunk,
          transactions: block.transactions.length,
          events: countEvents(block),
          transfers: transfers.length,
          malformed: malformed.length,
          event_check: block.event_check ?? '',
          tokens: [...new Set(transfers.map(({ token }) => token))],
          log_partition: item.partition,
          log_offset: item.offset,
          ...rowVersion(item),
        },
      ],
    };
  },
  derive: (touched) =>
    touchedRanges(touched).map(({ range, start, end, offset }) => ({
      sql: RECOMPUTE_RANGE,
      params: { range, newest_desc: descending(end), oldest_desc: descending(start), offset },
    })),
};
