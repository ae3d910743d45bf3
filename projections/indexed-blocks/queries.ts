import { z } from 'zod';

import type { ClickHouse, Params, RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { eventCheck } from '../../schemas/messages/chain-blocks.ts';
import type { EventCheck } from '../../schemas/messages/chain-blocks.ts';
import { felt } from '../../schemas/messages/common.ts';
import { HEIGHT_RANGE, rangeOf } from '../../schemas/topics.ts';
import type { ServedTables } from '../served.ts';
import { MAX_UINT32, ascendingSql, descending } from '../descending.ts';
import { feltSql } from '../sql-terms.ts';
import { count } from '../transfer-reads.ts';

const settings = { max_threads: 1 } as const;
/** The other rows of a block that is read are there too: they were inserted before it. */
const consistent = { ...settings, max_result_rows: 0, select_sequential_consistency: 1 } as const;
const heightRow = z.object({ height: z.int() });

/** The newest indexed height whose block is no later than a time (unix seconds); `null` when there is none. */
export async function newestHeightAt(
  clickhouse: ClickHouse,
  tables: ServedTables,
  seconds: number,
): Promise<number | null> {
  const sql = `SELECT ${ascendingSql('block_desc')} AS height FROM ${tables.table('indexed_blocks')} FINAL
    WHERE timestamp <= {seconds:Int64} ORDER BY block_desc LIMIT 1`;
  const query = { name: 'indexed-blocks.newest-at', sql, row: heightRow };
  const [row] = await clickhouse.rows(query, { seconds }, { settings });
  return row?.height ?? null;
}

const newestOfRow = z.object({ since: z.coerce.number(), height: z.int() });

/** The same for several times (unix seconds, ascending), in their order, in two statements. */
export async function newestHeightsAt(
  clickhouse: ClickHouse,
  tables: ServedTables,
  times: readonly number[],
): Promise<(number | null)[]> {
  const [first, last] = [times[0], times.at(-1)];
  if (first === undefined || last === undefined) return [];
  const sql = `SELECT roundDown(toInt64(timestamp), {starts:Array(Int64)}) AS since, ${ascendingSql('min(block_desc)')} AS height
    FROM ${tables.table('indexed_blocks')} FINAL WHERE timestamp > {first:Int64} AND timestamp <= {last:Int64} GROUP BY since`;
  // Each time ends a step that starts one second after the previous time.
  const starts = [...new Set(times)].slice(0, -1).map((time) => time + 1);
  const [lowest, rows] = await Promise.all([
    newestHeightAt(clickhouse, tables, first),
    starts.length === 0
      ? []
      : clickhouse.rows(
          { name: 'indexed-blocks.newest-at-each', sql, row: newestOfRow },
          { starts, first, last },
          { settings },
        ),
  ]);
  const newest = new Map(rows.map(({ since, height }) => [since, height]));
  let found = lowest;
  return times.map((time, i) => {
    const before = times[i - 1];
    const height = before === undefined || before === time ? undefined : newest.get(before + 1);
    if (height !== undefined && (found === null || height > found)) found = height;
    return found;
  });
}

const chunkRow = z.object({
  chunk: z.string(),
  blocks: count,
  transfers: count,
  /** Blocks whose events match the commitment in their header. */
  verified: count,
  /** Highest height with a transfer; null when none has one. */
  latest_transfer_block: z.int().nullable(),
});
export type ChunkTotals = z.infer<typeof chunkRow>;

/** Versions 1 and 2, which may be served until the read model is rebuilt, count no outcome, and only the verified blocks. */
function sumOf(table: string, outcome: EventCheck): string {
  const counts = !/_v[12]_/.test(table) || (outcome === 'verified' && table.includes('_v2_'));
  return counts ? `sum(${outcome})` : '0';
}

/** The indexed blocks of each chunk; a chunk without one is missing. */
export async function chunkTotals(clickhouse: RowReader, tables: ServedTables): Promise<ChunkTotals[]> {
  const table = tables.table('indexed_block_ranges');
  const sql = `SELECT chunk, sum(blocks) AS blocks, sum(transfers) AS transfers, ${sumOf(table, 'verified')} AS verified,
      maxOrNullIf(latest_transfer_block, latest_transfer_block != ${MAX_UINT32}) AS latest_transfer_block
    FROM ${table} FINAL GROUP BY chunk`;
  return await clickhouse.rows({ name: 'indexed-blocks.chunks', sql, row: chunkRow }, {}, { settings });
}

const checkedRow = z.object({
  first: z.int().nullable(),
  last: z.int().nullable(),
  blocks: count,
  verified: count,
  old_version: count,
  no_commitment: count,
  mismatched: count,
});
/** The indexed heights, and how many of them have each outcome of the comparison with their event commitment. */
export type CheckedHeights = z.infer<typeof checkedRow>;

/** Reads the ranges of 1024 heights: 24 ms for 10 million blocks, where the blocks themselves take 430 ms. */
export async function checkedHeights(clickhouse: RowReader, tables: ServedTables): Promise<CheckedHeights> {
  const table = tables.table('indexed_block_ranges');
  const sums = eventCheck.options.map((outcome) => `${sumOf(table, outcome)} AS ${outcome}`);
  const sql = `SELECT minOrNull(first_block) AS first, maxOrNull(last_block) AS last, sum(blocks) AS blocks, ${sums.join(', ')}
    FROM ${table} FINAL`;
  const [row] = await clickhouse.rows(
    { name: 'indexed-blocks.checked', sql, row: checkedRow },
    {},
    { settings },
  );
  return checkedRow.parse(row);
}

const placeRow = z.object({ partition: z.int(), offset: count });

/** Partition and offset of the message that accepted the block indexed at a height; null when none is indexed. */
export async function placeOfBlock(
  clickhouse: RowReader,
  tables: ServedTables,
  height: number,
): Promise<z.infer<typeof placeRow> | null> {
  const sql = `SELECT log_partition AS partition, log_offset AS offset FROM ${tables.table('indexed_blocks')} FINAL
    WHERE block_desc = ${ascendingSql('{height:UInt32}')}`;
  const query = { name: 'indexed-blocks.place', sql, row: placeRow };
  const [row] = await clickhouse.rows(query, { height }, { settings });
  return row ?? null;
}

const blockRow = z.object({ height: z.int(), hash: felt, timestamp: z.int() });
/** An indexed block; its time is unix seconds. */
export type IndexedBlock = z.infer<typeof blockRow>;

const BLOCK = `${ascendingSql('block_desc')} AS height, ${feltSql('block_hash')} AS hash, timestamp`;

/**
 * The 1024 heights up to the highest that was ever indexed: FINAL over them takes half the time of FINAL over all. A
 * deeper reorg leaves none of them indexed, and then all heights are read.
 */
const newestHeights = (table: string): string =>
  `block_desc <= (SELECT min(block_desc) FROM ${table}) + ${HEIGHT_RANGE - 1}`;

/** The newest indexed block; null before the first. */
export async function newestBlock(clickhouse: RowReader, tables: ServedTables): Promise<IndexedBlock | null> {
  const table = tables.table('indexed_blocks');
  const newest = async (where: string): Promise<IndexedBlock | undefined> => {
    const sql = `SELECT ${BLOCK} FROM ${table} FINAL ${where} ORDER BY block_desc LIMIT 1`;
    const query = { name: 'indexed-blocks.newest', sql, row: blockRow };
    return (await clickhouse.rows(query, {}, { settings }))[0];
  };
  return (await newest(`WHERE ${newestHeights(table)}`)) ?? (await newest('')) ?? null;
}

/** The newest block, and the lowest height from which all blocks up to it are indexed. */
export interface NewestRun {
  readonly head: IndexedBlock;
  readonly start: number;
}

const newestRunRow = blockRow.extend({
  n: count,
  lowest: z.int(),
  /** The lowest height that was read. */
  bottom: z.coerce.number(),
});
const wholeRow = z.object({ first: z.int(), last: z.int() });

/** Result of `newestBlock` and `runStart`, in one round trip where the index begins at 0; null before the first block. */
export async function newestRun(clickhouse: RowReader, tables: ServedTables): Promise<NewestRun | null> {
  const table = tables.table('indexed_blocks');
  // In a run that ends at x, the n-th value from the end is x - n + 1; beyond a gap it is less.
  const newest = {
    name: 'indexed-blocks.newest-run',
    sql: `SELECT count() AS n, toUInt32(min(value)) AS lowest, toUInt32(max(value)) AS height,
        toInt64(${MAX_UINT32} - (SELECT min(block_desc) FROM ${table})) - ${HEIGHT_RANGE - 1} AS bottom,
        ${feltSql('argMax(block_hash, value)')} AS hash, argMax(timestamp, value) AS timestamp
      FROM (
        SELECT value, block_hash, timestamp, max(value) OVER () AS top, row_number() OVER (ORDER BY value DESC) AS nth
        FROM (
          SELECT toInt64(${ascendingSql('block_desc')}) AS value, block_hash, timestamp
          FROM ${table} FINAL WHERE ${newestHeights(table)}
        )
      ) WHERE value + nth = top + 1 HAVING n > 0`,
    row: newestRunRow,
  };
  // Whole ranges without a gap between them. The newest block is in the newest of these ranges, or in the one above it.
  const whole = {
    name: 'indexed-blocks.whole',
    sql: `SELECT toUInt32(min(value)) AS first, toUInt32(max(value)) AS last FROM (
        SELECT value, value - row_number() OVER (ORDER BY value) AS island FROM (
          SELECT toInt64(range) AS value FROM ${tables.table('indexed_block_ranges')} FINAL
          GROUP BY value HAVING sum(blocks) = ${HEIGHT_RANGE}
        )
      ) GROUP BY island ORDER BY last DESC LIMIT 1`,
    row: wholeRow,
  };
  const [[found], [island]] = await Promise.all([
    clickhouse.rows(newest, {}, { settings }),
    clickhouse.rows(whole, {}, { settings }),
  ]);
  if (found === undefined) {
    const head = await newestBlock(clickhouse, tables);
    const start = head === null ? null : await runStart(clickhouse, tables, head.height);
    return head === null || start === null ? null : { head, start };
  }
  const { lowest, bottom, height, hash, timestamp } = found;
  const head = { height, hash, timestamp };
  const range = rangeOf(height);
  if (lowest > range * HEIGHT_RANGE) {
    // A deep reorg has removed newer blocks, and too few of the heights that were read are indexed.
    const isOpen = lowest === bottom;
    return { head, start: isOpen ? ((await runStart(clickhouse, tables, lowest)) ?? lowest) : lowest };
  }
  const isJoined = island !== undefined && island.first < range && island.last >= range - 1;
  // Below the range of the newest block, the run continues through whole ranges and ends in one that is not whole.
  const first = (isJoined ? island.first : range) * HEIGHT_RANGE;
  return { head, start: first === 0 ? 0 : ((await runStart(clickhouse, tables, first - 1)) ?? first) };
}

const versionedRow = blockRow.extend({ seq: count });
/** `seq` is the version of its row: a block that is reverted and comes back has another. */
export type VersionedBlock = z.infer<typeof versionedRow>;

/** The indexed blocks at these heights, by height. */
export async function blocksAt(
  clickhouse: RowReader,
  tables: ServedTables,
  heights: readonly number[],
): Promise<Map<number, VersionedBlock>> {
  if (heights.length === 0) return new Map();
  const sql = `SELECT ${BLOCK}, seq FROM ${tables.table('indexed_blocks')} FINAL WHERE block_desc IN {descs:Array(UInt32)}`;
  const descs = [...new Set(heights)].map((height) => descending(height));
  const rows = await clickhouse.rows(
    { name: 'indexed-blocks.at', sql, row: versionedRow },
    { descs },
    { settings: { ...settings, max_result_rows: descs.length } },
  );
  return new Map(rows.map((row) => [row.height, row]));
}

/** Borders between ranges of heights that are checked, from a height down: a deeper reorg is not expected. */
const BORDERS = 4;
/** Far more than those of blocks that are not accepted on L1 yet; two heights for each fit into one parameter. */
const MAX_BORDERS = 1000;
const placedRow = versionedRow.extend({ parent: felt, is_deleted: z.int() });

/**
 * The indexed block at a height, and whether the blocks up to it are of one chain. Ranges of 1024 heights are indexed apart, so
 * while a reorg is indexed, one may have the new chain and the next one the old: where they meet, a block is not the child of the
 * previous one, or that one is reverted and not replaced.
 *
 * @param above the borders above this height are checked, on a replica that has all writes; null: the nearest, on any replica
 */
export async function settledBlockAt(
  clickhouse: RowReader,
  tables: ServedTables,
  height: number,
  above: number | null = null,
): Promise<{ readonly block: VersionedBlock | null; readonly isSettled: boolean }> {
  const newest = rangeOf(height);
  const most = above === null ? BORDERS : MAX_BORDERS;
  const borders = Math.min(most, Math.max(0, newest - rangeOf(above ?? 0)));
  const starts = Array.from({ length: borders }, (_, i) => (newest - i) * HEIGHT_RANGE);
  const heights = [height, ...starts.flatMap((start) => [start, start - 1])];
  // Without FINAL, which would hide reverted blocks.
  const sql = `SELECT ${BLOCK}, ${feltSql('parent_hash')} AS parent, seq, is_deleted
    FROM ${tables.table('indexed_blocks')} WHERE block_desc IN {descs:Array(UInt32)} ORDER BY seq DESC LIMIT 1 BY block_desc`;
  const query = { name: 'indexed-blocks.settled', sql, row: placedRow };
  const rows = await clickhouse.rows(
    query,
    { descs: [...new Set(heights)].map(descending) },
    { settings: above === null ? settings : consistent },
  );
  const at = new Map(rows.map((row) => [row.height, row]));
  const isSettled = starts.every((start) => {
    const [parent, child] = [at.get(start - 1), at.get(start)];
    if (parent === undefined || child === undefined) return true;
    return parent.is_deleted === 0 && child.is_deleted === 0 && child.parent === parent.hash;
  });
  const found = at.get(height);
  return { block: found === undefined || found.is_deleted === 1 ? null : found, isSettled };
}

const countedRow = blockRow.extend({
  parent_hash: felt,
  transactions: z.int(),
  events: z.int(),
  transfers: z.int(),
  event_check: z.union([eventCheck, z.literal('').transform(() => 'not_checked' as const)]),
});
export type CountedBlock = z.infer<typeof countedRow>;

/**
 * The indexed block with a height or a hash, with its counts; null when there is none. A hash is found by the index of
 * hashes, without FINAL: with it, skipping the granule of a replacement would show the block that was reverted.
 */
export async function countedBlock(
  clickhouse: RowReader,
  tables: ServedTables,
  asked: { readonly height: number } | { readonly hash: Felt },
): Promise<CountedBlock | null> {
  const table = tables.table('indexed_blocks');
  const hash = 'toFixedString(unhex({hash:String}), 32)';
  const [where, params]: [string, Params] =
    'height' in asked
      ? ['block_desc = {desc:UInt32}', { desc: descending(asked.height) }]
      : [
          `block_desc IN (SELECT block_desc FROM ${table} WHERE block_hash = ${hash}) AND block_hash = ${hash}`,
          { hash: asked.hash.slice(2) },
        ];
  const sql = `SELECT ${BLOCK}, ${feltSql('parent_hash')} AS parent_hash, transactions, events, transfers,
      ${table.startsWith('indexed_blocks_v1_') ? "''" : 'event_check'} AS event_check
    FROM ${table} FINAL WHERE ${where}`;
  const query = { name: 'indexed-blocks.counted', sql, row: countedRow };
  const [row] = await clickhouse.rows(query, params, {
    settings: { ...settings, use_skip_indexes_if_final: 0 },
  });
  return row ?? null;
}

const endRow = z.object({ n: count, end: z.int() });

/**
 * The lowest height from which all blocks up to this one are indexed; null when this one is not. Three small reads: the
 * whole ranges of 1024 heights, and the blocks of the two ranges in which the run begins and ends.
 */
export async function runStart(
  clickhouse: RowReader,
  tables: ServedTables,
  height: number,
): Promise<number | null> {
  const range = rangeOf(height);
  // In a run that ends at x, the n-th value from the end is x - n + 1; beyond a gap it is less.
  const runOf = async (
    name: string,
    values: string,
    end: number,
    params: Params = {},
  ): Promise<number | null> => {
    const sql = `SELECT count() AS n, toUInt32(min(value)) AS end FROM (
        SELECT value, row_number() OVER (ORDER BY value DESC) AS nth FROM (${values})
      ) WHERE value + nth = {afterEnd:UInt32}`;
    const query = { name, sql, row: endRow };
    const [row] = await clickhouse.rows(query, { ...params, afterEnd: end + 1 }, { settings });
    return row === undefined || row.n === 0 ? null : row.end;
  };
  const inRange = (end: number): Promise<number | null> =>
    runOf(
      'indexed-blocks.run',
      `SELECT ${ascendingSql('block_desc')} AS value FROM ${tables.table('indexed_blocks')} FINAL
       WHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}`,
      end,
      { newest: descending(end), oldest: descending(end - (end % HEIGHT_RANGE)) },
    );
  const [last, whole] = await Promise.all([
    inRange(height),
    runOf(
      'indexed-blocks.whole-ranges',
      `SELECT range AS value FROM ${tables.table('indexed_block_ranges')} FINAL WHERE range < {range:UInt32}
       GROUP BY range HAVING sum(blocks) = ${HEIGHT_RANGE}`,
      range - 1,
      { range },
    ),
  ]);
  if (last === null || last > range * HEIGHT_RANGE || range === 0) return last;
  const first = (whole ?? range) * HEIGHT_RANGE;
  return first === 0 ? 0 : ((await inRange(first - 1)) ?? first);
}

/** The height up to which all blocks from height 0 are indexed; null when height 0 is not. */
export async function wholeUpTo(clickhouse: RowReader, tables: ServedTables): Promise<number | null> {
  // In a run that begins at x, the n-th value is x + n - 1; beyond a gap it is more.
  const endOf = async (
    name: string,
    values: string,
    start: number,
    params: Params = {},
  ): Promise<number | null> => {
    const sql = `SELECT count() AS n, toUInt32(max(value)) AS end FROM (
        SELECT value, row_number() OVER (ORDER BY value) AS nth FROM (${values})
      ) WHERE value + 1 = {start:UInt32} + nth`;
    const query = { name, sql, row: endRow };
    const [row] = await clickhouse.rows(query, { ...params, start }, { settings });
    return row === undefined || row.n === 0 ? null : row.end;
  };
  const whole = await endOf(
    'indexed-blocks.first-ranges',
    `SELECT range AS value FROM ${tables.table('indexed_block_ranges')} FINAL
     GROUP BY range HAVING sum(blocks) = ${HEIGHT_RANGE}`,
    0,
  );
  const start = whole === null ? 0 : (whole + 1) * HEIGHT_RANGE;
  const rest = await endOf(
    'indexed-blocks.first-run',
    `SELECT ${ascendingSql('block_desc')} AS value FROM ${tables.table('indexed_blocks')} FINAL
     WHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32}`,
    start,
    { newest: descending(start + HEIGHT_RANGE - 1), oldest: descending(start) },
  );
  return rest ?? (start === 0 ? null : start - 1);
}

const linkedRow = z.object({
  height: z.int(),
  hash: felt,
  parent: felt,
  timestamp: z.int(),
  transfers: count,
  seq: count,
});
/** An indexed block with its parent's hash, its number of transfers and the version of its rows. */
export type LinkedBlock = z.infer<typeof linkedRow>;

const LINKED = `${BLOCK}, ${feltSql('parent_hash')} AS parent, transfers, seq`;

/** The blocks indexed between two heights, both inclusive, lowest first. */
export async function linkedBlocks(
  clickhouse: RowReader,
  tables: ServedTables,
  { from, to }: { readonly from: number; readonly to: number },
): Promise<LinkedBlock[]> {
  const sql = `SELECT ${LINKED} FROM ${tables.table('indexed_blocks')} FINAL
    WHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32} ORDER BY block_desc DESC`;
  return await clickhouse.rows(
    { name: 'indexed-blocks.linked', sql, row: linkedRow },
    { newest: descending(to), oldest: descending(from) },
    { settings: consistent },
  );
}

/** The newest block and those below it that are linked to it by their parents, at most `most`, lowest first. */
export async function newestLinked(
  clickhouse: RowReader,
  tables: ServedTables,
  most: number,
): Promise<LinkedBlock[]> {
  const table = tables.table('indexed_blocks');
  const newest = async (where: string): Promise<LinkedBlock[]> => {
    const sql = `SELECT ${LINKED} FROM ${table} FINAL ${where} ORDER BY block_desc LIMIT {most:UInt32}`;
    const query = { name: 'indexed-blocks.newest-linked', sql, row: linkedRow };
    return await clickhouse.rows(query, { most }, { settings: consistent });
  };
  const found = await newest(`WHERE ${newestHeights(table)}`);
  const blocks = found.length > 0 ? found : await newest('');
  const end = blocks.findIndex((block, i) => i > 0 && blocks[i - 1]?.parent !== block.hash);
  return (end < 0 ? blocks : blocks.slice(0, end)).toReversed();
}

const beforeRow = z.object({ partition: z.int(), before: count, height: z.int(), timestamp: z.int() });
/** A block read up to an offset of a partition. */
export type BlockBefore = z.infer<typeof beforeRow>;
/** A checkpoint further behind than this is looked for among all blocks. */
const RECENT_HEIGHTS = 16 * HEIGHT_RANGE;

/** The highest indexed block that the log holds before each of these offsets; places without one are missing. */
export async function blocksBefore(
  clickhouse: RowReader,
  tables: ServedTables,
  places: readonly { readonly partition: number; readonly offset: number }[],
): Promise<BlockBefore[]> {
  if (places.length === 0) return [];
  const table = tables.table('indexed_blocks');
  const find = async (where: string): Promise<BlockBefore[]> => {
    const sql = `SELECT log_partition AS partition, before, max(${ascendingSql('block_desc')}) AS height,
        argMin(timestamp, block_desc) AS timestamp
      FROM (SELECT block_desc, timestamp, log_partition, log_offset FROM ${table} FINAL
        WHERE log_partition IN {partitions:Array(UInt16)} ${where})
      ARRAY JOIN {partitions:Array(UInt16)} AS of_partition, {offsets:Array(UInt64)} AS before
      WHERE log_partition = of_partition AND log_offset < before GROUP BY partition, before`;
    return await clickhouse.rows(
      { name: 'indexed-blocks.before', sql, row: beforeRow },
      {
        partitions: places.map(({ partition }) => partition),
        offsets: places.map(({ offset }) => offset),
      },
      { settings },
    );
  };
  const recent = `AND block_desc <= (SELECT min(block_desc) FROM ${table}) + ${RECENT_HEIGHTS}`;
  const found = await find(recent);
  return found.length === new Set(places.map(({ partition, offset }) => `${partition}:${offset}`)).size
    ? found
    : await find('');
}

const rangesRow = z.object({ first: z.int(), last: z.int(), blocks: count });

/** Heights that are indexed, lowest first: runs of whole ranges of 1024 heights, and each range that is not whole. */
export async function indexedRanges(
  clickhouse: RowReader,
  tables: ServedTables,
): Promise<{ first: number; last: number; blocks: number; is_whole: boolean }[]> {
  const sql = `SELECT toUInt32(min(low)) AS first, toUInt32(max(high)) AS last, sum(n) AS blocks FROM (
      SELECT low, high, n, if(n = ${HEIGHT_RANGE}, toInt64(range) - row_number() OVER (PARTITION BY n = ${HEIGHT_RANGE} ORDER BY range), toInt64(range)) AS island,
        n = ${HEIGHT_RANGE} AS whole
      FROM (
        SELECT range, min(first_block) AS low, max(last_block) AS high, sum(blocks) AS n
        FROM ${tables.table('indexed_block_ranges')} FINAL GROUP BY range HAVING n > 0
      )
    ) GROUP BY whole, island ORDER BY first`;
  const query = { name: 'indexed-blocks.ranges', sql, row: rangesRow };
  const rows = await clickhouse.rows(query, {}, { settings });
  return rows.map((row) => ({ ...row, is_whole: row.blocks === row.last - row.first + 1 }));
}
