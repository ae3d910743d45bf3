import { rangeOf } from '../../schemas/topics.ts';
import { rowVersion, sides, touchedRanges, versionColumns } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { BlockProjection } from '../define.ts';
import { chainBlocks } from '../streams.ts';

const TOKEN = 1;
const ACCOUNT = 2;

/**
 * Recomputes the subjects that appear in the touched heights, over their whole range. FINAL hides removed rows, so the
 * tombstones of the touched heights are added with zero transfers: a subject without others must get a tombstone here.
 */
const RECOMPUTE_SUBJECTS = `
INSERT INTO {{transfer_counts}} (subject_kind, subject, range, transfers, seq, is_deleted)
SELECT subject_kind, subject, {range:UInt32}, sum(alive) AS total, {offset:UInt64}, total = 0
FROM (
  SELECT subject_kind, subject, block, transfers AS alive FROM {{transfer_counts_by_block}} FINAL
  WHERE range = {range:UInt32}
  UNION ALL
  SELECT subject_kind, subject, block, toUInt32(0) FROM {{transfer_counts_by_block}}
  WHERE range = {range:UInt32} AND block BETWEEN {first:UInt32} AND {last:UInt32} AND is_deleted = 1
)
GROUP BY subject_kind, subject HAVING countIf(block BETWEEN {first:UInt32} AND {last:UInt32}) > 0`;

export const transferCounts: BlockProjection = {
  kind: 'clickhouse',
  name: 'transfer-counts',
  version: 2,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: {
    transfer_counts_by_block: {
      columns: [
        { name: 'range', type: 'UInt32' },
        { name: 'subject_kind', type: 'UInt8' },
        { name: 'subject', type: 'FixedString(32)' },
        { name: 'block', type: 'UInt32' },
        { name: 'transfers', type: 'UInt32' },
        ...versionColumns,
      ],
    },
  },
  project(item) {
    const { height } = item.message.block;
    const tokens = new Map<string, number>();
    const accounts = new Map<string, number>();
    for (const transfer of item.decoded.transfers) {
      tokens.set(transfer.token, (tokens.get(transfer.token) ?? 0) + 1);
      for (const { account } of sides(transfer)) accounts.set(account, (accounts.get(account) ?? 0) + 1);
    }
    const rows = (kind: number, counts: ReadonlyMap<string, number>) =>
      [...counts].map(([subject, transfers]) => ({
        range: rangeOf(height),
        subject_kind: kind,
        subject,
        block: height,
        transfers,
        ...rowVersion(item),
      }));
    return { transfer_counts_by_block: [...rows(TOKEN, tokens), ...rows(ACCOUNT, accounts)] };
  },
  derive: (touched) =>
    touchedRanges(touched).map(({ range, first, last, offset }) => ({
      sql: RECOMPUTE_SUBJECTS,
      params: { range, first, last, offset },
    })),
};
