import { z } from 'zod';

import type { ClickHouse, Params } from '../../../infra/clickhouse/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { HEIGHT_RANGE } from '../../../schemas/topics.ts';
import { lockServed } from '../served-lock.ts';
import { ascendingSql } from '../../descending.ts';
import { commonShape, prewhere, within } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import type { Difference } from './difference.ts';
import type { Scratch } from './scratch.ts';
import { deriveScratch } from './tables.ts';

/** Rows of one table that a repair deleted and inserted. */
export interface RepairedRows {
  readonly taken: number;
  readonly put: number;
}

interface Repair {
  readonly clickhouse: ClickHouse;
  readonly scratch: Scratch;
  /** Heights about which the log has got messages since it was scanned. */
  readonly heightsSince: () => Promise<ReadonlySet<number>>;
  /** Throws when nothing may be deleted any more. */
  readonly assertHeld: () => Promise<void>;
}

const countRow = z.object({ rows: z.coerce.number() });

/**
 * Makes the served tables what the log says, where they differ: deletes rows that the log does not know, each in exactly
 * the version that was found, and inserts the log's own under their own version. Leaves heights alone about which the log
 * has got messages since it was scanned. So a row that is written meanwhile stays and wins, and the tables become, byte
 * for byte, what a rebuild would give. Derived tables are recomputed in the scratch tables and repaired from there.
 *
 * @param highest the highest offset that all projections have read, by range: the version of recomputed rows
 */
export async function repairTables(
  { pool, ...repair }: Repair & { readonly pool: Pool },
  differences: readonly Difference[],
  highest: (range: number) => number,
): Promise<Map<string, RepairedRows>> {
  const { clickhouse, scratch } = repair;
  const named = differences.filter(({ table, range }) => table !== undefined && range !== undefined);
  const repaired = new Map<string, RepairedRows>();
  const repairRange = async (range: number, byTable: ReadonlyMap<string, Difference>): Promise<void> => {
    const replace = async (pair: TablePair, heights: Heights): Promise<void> => {
      const { taken, put } = await replaceRows(repair, pair, range, heights);
      const sum = repaired.get(pair.name) ?? { taken: 0, put: 0 };
      if (taken + put > 0) repaired.set(pair.name, { taken: sum.taken + taken, put: sum.put + put });
    };
    for (const pair of scratch.tables) {
      const heights = byTable.get(pair.name)?.heights;
      if (heights) await replace(pair, heights);
    }
    const heights = { from: range * HEIGHT_RANGE, to: (range + 1) * HEIGHT_RANGE - 1 };
    for (const { projection, build } of scratch.served) {
      if (!Object.keys(build.names).some((name) => byTable.has(name))) continue;
      await deriveScratch(clickhouse, scratch, projection, build, range, highest(range));
      for (const pair of scratch.derived) if (pair.name in build.names) await replace(pair, heights);
    }
  };

  const builds = scratch.served.map(({ build }) => build);
  try {
    for (const [range, own] of Map.groupBy(named, (one) => one.range ?? 0)) {
      // Released after each range: a swap that waits for this lock keeps every writer waiting.
      const lock = await lockServed(pool, builds);
      try {
        await repairRange(range, new Map(own.map((one) => [one.table ?? '', one])));
      } finally {
        await lock.release();
      }
    }
  } finally {
    // An interrupted repair, too, may have deleted rows that cached pages show.
    await pool.query('UPDATE tds.served SET mended = mended + 1');
  }
  return repaired;
}

async function replaceRows(
  { clickhouse, scratch, heightsSince, assertHeld }: Repair,
  pair: TablePair,
  range: number,
  heights: Heights,
): Promise<RepairedRows> {
  const { wrong, facts } = scratch;
  const count = async (from: string, params: Params): Promise<number> => {
    const sql = `SELECT count() AS rows FROM ${from}`;
    const [row] = await clickhouse.rows({ name: 'verify.count', sql, row: countRow }, params);
    return row?.rows ?? 0;
  };
  // Rows of blocks that were not scanned cannot be judged.
  const scanned = `${facts.table} WHERE height BETWEEN {from:UInt32} AND {to:UInt32}`;
  if ((await count(scanned, { ...heights })) === 0) return { taken: 0, put: 0 };

  const shape = await commonShape(clickhouse, pair);
  const { sql: condition, params } = within(shape, { buckets: [range], heights });
  const [columns, key] = [shape.columns.join(', '), shape.key.map(({ name }) => name).join(', ')];
  await clickhouse.command(`DROP TABLE IF EXISTS ${wrong} SYNC`);
  await clickhouse.command(
    `CREATE TABLE ${wrong} ENGINE = MergeTree ORDER BY tuple() AS SELECT ${key}, seq FROM ${pair.ours} FINAL
     ${prewhere(condition)} WHERE (${columns}) NOT IN (SELECT ${columns} FROM ${pair.theirs} FINAL ${prewhere(condition)})`,
    { params },
  );
  // Asked after the rows were read: each of them that is newer than the scan belongs to one of these heights.
  const newer = [...(await heightsSince())].filter((one) => Math.floor(one / HEIGHT_RANGE) === range);
  if (newer.length > 0 && shape.height === null) return { taken: 0, put: 0 };
  const height = shape.height === 'block' ? 'block' : ascendingSql('block_desc');
  const kept = newer.length === 0 ? '' : ` AND ${height} NOT IN {newer:Array(UInt32)}`;
  const all = { ...params, newer };
  const taken = await count(`${wrong} WHERE true${kept}`, all);
  await assertHeld();
  if (taken > 0) {
    const rows = `(${condition})${kept} AND (${key}, seq) IN (SELECT ${key}, seq FROM ${wrong})`;
    await deleteRows(clickhouse, pair.ours, rows, all, wrong);
  }
  const missing = `${pair.theirs} FINAL WHERE (${condition})${kept}
    AND (${columns}) NOT IN (SELECT ${columns} FROM ${pair.ours} FINAL ${prewhere(condition)})`;
  const put = await count(missing, all);
  if (put > 0) {
    const written = pair.isDerived ? `${columns}, seq` : columns;
    const sql = `INSERT INTO ${pair.ours} (${written}) SELECT ${written} FROM ${missing}`;
    await clickhouse.command(sql, { params: all });
  }
  return { taken, put };
}

/** Deletes rows whose keys a table lists, and waits until it is done. */
async function deleteRows(
  clickhouse: ClickHouse,
  table: string,
  condition: string,
  params: Params,
  listed: string,
): Promise<void> {
  try {
    await clickhouse.command(`DELETE FROM ${table} WHERE ${condition}`, {
      params,
      settings: { lightweight_deletes_sync: 2, mutations_sync: 2 },
    });
  } catch (error) {
    // It must not outlive the table that it reads.
    await clickhouse
      .command(
        `KILL MUTATION WHERE database = currentDatabase() AND table = {table:String}
           AND position(command, {listed:String}) > 0 SYNC`,
        { params: { table, listed } },
      )
      .catch(() => {});
    throw error;
  }
}
