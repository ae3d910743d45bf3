import { z } from 'zod';

import type { RowReader } from '../infra/clickhouse/client.ts';
import type { ColumnSpec, Row } from '../infra/clickhouse/row-binary.ts';
import { versionColumns } from './chain-rows.ts';
import type { BlockItem, DueBlock } from './define.ts';
import { HEIGHT_RANGE } from '../schemas/topics.ts';
import { ascending, ascendingSql, descending } from './descending.ts';

/*
 * Marks of blocks whose deferred rows are to be derived. A batch marks the blocks of its messages together with its other rows, so
 * no indexed block lacks its mark; a pass (engine/deferred) takes a mark up once its sources have moved their checkpoints past the
 * message, and clears it when the block is derived. A block that is reverted, accepted or repaired is marked again: versions of
 * marks ascend with the offsets of the messages about a height, which lie in one partition. Between two offsets is room for
 * clearing and marking again.
 */

const SECONDS_PER_HOUR = 3600;
/** Versions from one offset to the next; an offset of 2^43 still has exact versions. */
const VERSIONS_PER_OFFSET = 1024;

/** The columns that a batch writes. `marked_at` is the time of the insert. */
export const dueColumns: readonly ColumnSpec[] = [
  { name: 'block_desc', type: 'UInt32' },
  { name: 'hour', type: 'UInt32' },
  ...versionColumns,
];

/** The mark of a message: a revert, too, makes its block due. */
export function dueRow({ message: { block }, offset }: BlockItem): Row {
  return {
    block_desc: descending(block.height),
    hour: Math.floor(block.timestamp / SECONDS_PER_HOUR),
    seq: offset * VERSIONS_PER_OFFSET,
    is_deleted: 0,
  };
}

/** Clears the marks of derived blocks. A mark that was made since has a higher version and stays. */
export function doneRows(blocks: readonly DueBlock[]): Row[] {
  return blocks.map(({ height, hour, seq }) => ({
    block_desc: descending(height),
    hour,
    seq: seq + 1,
    is_deleted: 1,
  }));
}

/** The offset of the message that made a mark. */
export function offsetOfMark({ seq }: DueBlock): number {
  return Math.floor(seq / VERSIONS_PER_OFFSET);
}

/**
 * SQL of the keys of marks that were not cleared. Almost every mark is cleared, and granules of such rows alone are
 * skipped by the table's index; a mark whose removal is not merged yet is found and dropped by its newest version.
 * `since` is when the newest version was first written.
 */
export function dueSql(table: string): string {
  return `SELECT block_desc, hour, max(seq) AS version, argMin(marked_at, (-toInt64(seq), marked_at)) AS since FROM ${table}
    WHERE (block_desc, hour) IN (SELECT block_desc, hour FROM ${table} WHERE is_deleted = 0)
    GROUP BY block_desc, hour HAVING argMax(is_deleted, seq) = 0`;
}

const dueBlockRow = z
  .object({ block_desc: ascending, hour: z.int(), version: z.coerce.number(), age: z.coerce.number() })
  .transform(({ block_desc: height, version: seq, ...mark }): DueBlock => ({ ...mark, height, seq }));

/** Due blocks, the highest first, at most `limit`. */
export async function dueBlocks(clickhouse: RowReader, table: string, limit: number): Promise<DueBlock[]> {
  const sql = `SELECT block_desc, hour, version, now() - since AS age FROM (${dueSql(table)}) ORDER BY block_desc, hour LIMIT {limit:UInt32}`;
  return await clickhouse.rows(
    { name: 'due-blocks.list', sql, row: dueBlockRow },
    { limit },
    { settings: { max_threads: 1 } },
  );
}

/**
 * SQL that marks blocks between two heights again, whose source tables were changed without a message. The new mark of a block
 * that is due outlives the pass that may have read the sources before the change and is about to clear the previous mark.
 */
export function markAgainSql(table: string): string {
  return `INSERT INTO ${table} (block_desc, hour, seq, is_deleted)
    SELECT block_desc, hour, max(seq) + 2, 0 FROM ${table}
    WHERE block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32} GROUP BY block_desc, hour`;
}

const coverageRow = z.object({ due: z.coerce.number(), lowest: z.int(), age: z.coerce.number() });

/** What the marks say, whatever the newest block is. */
interface Marked {
  /** The lowest due block among the newest ones; null: none is due. */
  readonly dueFrom: number | null;
  /** A block has been due for longer than a pass takes. */
  readonly isLate: boolean;
}

/** Passes over the newest blocks follow each other within seconds. */
const LATE_SECONDS = 30;

/**
 * What a table of due blocks says about deferred rows, of hours before one. Due blocks far below the highest are those of a
 * backfill: they make the tables late, but do not lower the covered block, as with every other table.
 *
 * @param blocks the table of indexed blocks
 */
export async function markedBlocks(
  clickhouse: RowReader,
  table: string,
  blocks: string,
  beforeHour = 0xffff_ffff,
): Promise<Marked> {
  const isNewest = `block_desc < (SELECT min(block_desc) FROM ${blocks}) + ${HEIGHT_RANGE}`;
  const sql = `SELECT countIf(${isNewest}) AS due, ${ascendingSql(`maxIf(block_desc, ${isNewest})`)} AS lowest,
      if(count() = 0, 0, max(now() - since)) AS age
    FROM (${dueSql(table)}) WHERE hour < {before:UInt32}`;
  const [row] = await clickhouse.rows(
    { name: 'due-blocks.marked', sql, row: coverageRow },
    { before: beforeHour },
    { settings: { max_threads: 1 } },
  );
  const { due = 0, lowest = 0, age = 0 } = row ?? {};
  return { dueFrom: due === 0 ? null : lowest, isLate: age > LATE_SECONDS };
}
