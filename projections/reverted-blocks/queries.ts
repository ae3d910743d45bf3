import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { descending } from '../descending.ts';
import type { ServedTables } from '../served.ts';
import { feltText } from '../transfer-reads.ts';

const revertedRow = z.object({ hash: feltText, parent: feltText, seq: z.coerce.number() });

export interface RevertedBlock {
  readonly parent: Felt;
  /** Version of its newest revert. */
  readonly seq: number;
}

/** The blocks that were reverted between two heights, both inclusive, by their hash. */
export async function revertedBetween(
  clickhouse: RowReader,
  tables: ServedTables,
  { from, to }: { readonly from: number; readonly to: number },
): Promise<Map<Felt, RevertedBlock>> {
  const sql = `SELECT hex(block_hash) AS hash, hex(parent_hash) AS parent, seq
    FROM ${tables.table('reverted_blocks')} FINAL
    WHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}`;
  const rows = await clickhouse.rows(
    { name: 'reverted-blocks.between', sql, row: revertedRow },
    { newest: descending(to), oldest: descending(from) },
    { settings: { max_threads: 1, max_result_rows: 0, select_sequential_consistency: 1 } },
  );
  return new Map(rows.map(({ hash, ...block }) => [hash, block]));
}
