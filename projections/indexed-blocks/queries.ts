import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { ServedBuilds } from '../served.ts';

type Tables = Pick<ServedBuilds, 'table'>;

const settings = { max_threads: 1 } as const;
const heightRow = z.object({ height: z.int() });

/** The newest indexed height whose block is no later than a time (unix seconds); `null` when there is none. */
export async function newestHeightAt(
  clickhouse: ClickHouse,
  tables: Tables,
  seconds: number,
): Promise<number | null> {
  const sql = `SELECT toUInt32(4294967295 - block_desc) AS height FROM ${tables.table('indexed_blocks')} FINAL
    WHERE timestamp <= {seconds:Int64} ORDER BY block_desc LIMIT 1`;
  const query = { name: 'indexed-blocks.newest-at', sql, row: heightRow };
  const [row] = await clickhouse.rows(query, { seconds }, { settings });
  return row?.height ?? null;
}

const count = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const chunkRow = z.object({
  chunk: z.string(),
  blocks: count,
  transfers: count,
  /** Highest height with a transfer; null when none has one. */
  latest_transfer_block: z.int().nullable(),
});
export type ChunkTotals = z.infer<typeof chunkRow>;

/** What each chunk has indexed; one without a block is missing. */
export async function chunkTotals(clickhouse: ClickHouse, tables: Tables): Promise<ChunkTotals[]> {
  const sql = `SELECT chunk, sum(blocks) AS blocks, sum(transfers) AS transfers,
      maxOrNullIf(latest_transfer_block, latest_transfer_block != 0xffffffff) AS latest_transfer_block
    FROM ${tables.table('indexed_block_ranges')} FINAL GROUP BY chunk`;
  return await clickhouse.rows({ name: 'indexed-blocks.chunks', sql, row: chunkRow }, {}, { settings });
}

const placeRow = z.object({ partition: z.int(), offset: count });

/** Where the message lies that accepted the block which is indexed at a height; null when none is. */
export async function placeOfBlock(
  clickhouse: ClickHouse,
  tables: Tables,
  height: number,
): Promise<z.infer<typeof placeRow> | null> {
  const sql = `SELECT log_partition AS partition, log_offset AS offset FROM ${tables.table('indexed_blocks')} FINAL
    WHERE block_desc = toUInt32(4294967295 - {height:UInt32})`;
  const query = { name: 'indexed-blocks.place', sql, row: placeRow };
  const [row] = await clickhouse.rows(query, { height }, { settings });
  return row ?? null;
}
