import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { felt } from '../../schemas/messages/common.ts';
import { HEIGHT_RANGE } from '../../schemas/topics.ts';
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

const blockRow = z.object({ height: z.int(), hash: felt, timestamp: z.int() });

/** A block that is indexed; its time is unix seconds. */
export interface IndexedBlock {
  readonly height: number;
  readonly hash: Felt;
  readonly timestamp: number;
}

const BLOCK = `toUInt32(4294967295 - block_desc) AS height, concat('0x', lower(hex(block_hash))) AS hash, timestamp`;

/** The newest block that can be queried; null before the first. */
export async function newestBlock(
  clickhouse: Pick<ClickHouse, 'rows'>,
  tables: Tables,
): Promise<IndexedBlock | null> {
  const sql = `SELECT ${BLOCK} FROM ${tables.table('indexed_blocks')} FINAL ORDER BY block_desc LIMIT 1`;
  const [row] = await clickhouse.rows(
    { name: 'indexed-blocks.newest', sql, row: blockRow },
    {},
    { settings },
  );
  return row ?? null;
}

/** The blocks that are indexed at these heights, by height. */
export async function blocksAt(
  clickhouse: Pick<ClickHouse, 'rows'>,
  tables: Tables,
  heights: readonly number[],
): Promise<Map<number, IndexedBlock>> {
  if (heights.length === 0) return new Map();
  const sql = `SELECT ${BLOCK} FROM ${tables.table('indexed_blocks')} FINAL WHERE block_desc IN {descs:Array(UInt32)}`;
  const descs = [...new Set(heights)].map((height) => 0xffff_ffff - height);
  const rows = await clickhouse.rows(
    { name: 'indexed-blocks.at', sql, row: blockRow },
    { descs },
    { settings: { ...settings, max_result_rows: descs.length } },
  );
  return new Map(rows.map((row) => [row.height, row]));
}

const lowestRow = z.object({ n: count, lowest: z.int() });

/**
 * The lowest height from which on every block up to this one is indexed; null when this one is not. Three small reads:
 * the ranges of 1024 heights that are whole, and the blocks of the two that the run begins and ends in.
 */
export async function runStart(
  clickhouse: Pick<ClickHouse, 'rows'>,
  tables: Tables,
  height: number,
): Promise<number | null> {
  const range = Math.floor(height / HEIGHT_RANGE);
  // In a run that ends at x, the n-th from the end is x - n + 1; after a gap it is less.
  const runOf = async (name: string, values: string, end: number): Promise<number | null> => {
    const sql = `SELECT count() AS n, toUInt32(min(value)) AS lowest FROM (
        SELECT value, row_number() OVER (ORDER BY value DESC) AS nth FROM (${values})
      ) WHERE value + nth = ${end + 1}`;
    const [row] = await clickhouse.rows({ name, sql, row: lowestRow }, {}, { settings });
    return row === undefined || row.n === 0 ? null : row.lowest;
  };
  const inRange = (end: number): Promise<number | null> =>
    runOf(
      'indexed-blocks.run',
      `SELECT toUInt32(4294967295 - block_desc) AS value FROM ${tables.table('indexed_blocks')} FINAL
       WHERE block_desc BETWEEN ${0xffff_ffff - end} AND ${0xffff_ffff - end + (end % HEIGHT_RANGE)}`,
      end,
    );
  const [last, whole] = await Promise.all([
    inRange(height),
    runOf(
      'indexed-blocks.whole-ranges',
      `SELECT range AS value FROM ${tables.table('indexed_block_ranges')} FINAL WHERE range < ${range}
       GROUP BY range HAVING sum(blocks) = ${HEIGHT_RANGE}`,
      range - 1,
    ),
  ]);
  if (last === null || last > range * HEIGHT_RANGE || range === 0) return last;
  const first = (whole ?? range) * HEIGHT_RANGE;
  return first === 0 ? 0 : ((await inRange(first - 1)) ?? first);
}
