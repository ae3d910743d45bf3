import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { HEIGHT_RANGE } from '../../../schemas/topics.ts';
import { lockServed } from '../served-lock.ts';
import { ascendingSql } from '../../descending.ts';
import { commonShape, within } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import type { Difference } from './difference.ts';
import type { RewrittenHeights } from './rewritten-heights.ts';
import type { Scratch } from './scratch.ts';
import { derive, scratchNames } from './tables.ts';

/** Rows of one table that a repair took away, and put in. */
export interface RepairedRows {
  taken: number;
  put: number;
}

interface Repair {
  readonly clickhouse: ClickHouse;
  readonly scratch: Scratch;
  readonly rewrittenHeights: RewrittenHeights;
  /** Throws when nothing may be taken away any more. */
  readonly assertHeld: () => Promise<void>;
}

const countRow = z.object({ rows: z.coerce.number() });

/**
 * Makes the tables what the log says, where they differ: rows that the log does not know go, each in exactly the version
 * that was found, and the log's own are inserted again under their own seq. Heights about which the log has got messages
 * since it was scanned are left alone. So a row that is written meanwhile stays and wins, and afterwards the tables are,
 * byte for byte, what a rebuild would give. Derived tables are recomputed, a range at a time.
 *
 * @param highest the highest offset that all of them have read, by range: the version of what is recomputed
 */
export async function repairTables(
  { pool, ...repair }: Repair & { readonly pool: Pool },
  differences: readonly Difference[],
  highest: (range: number) => number,
): Promise<Map<string, RepairedRows>> {
  const { clickhouse, scratch } = repair;
  const named = differences.filter(({ table, range }) => table !== undefined && range !== undefined);
  const mended = new Map<string, RepairedRows>();
  const replace = async (pair: TablePair, range: number, heights: Heights | null): Promise<void> => {
    const { taken, put } = await replaceRange(repair, pair, range, heights);
    const sum = mended.get(pair.name) ?? { taken: 0, put: 0 };
    mended.set(pair.name, { taken: sum.taken + taken, put: sum.put + put });
  };
  const repairRange = async (range: number, byTable: ReadonlyMap<string, Difference>): Promise<void> => {
    for (const pair of scratch.tables) {
      const heights = byTable.get(pair.name)?.heights;
      if (heights) await replace(pair, range, heights);
    }
    for (const { projection, build } of scratch.served) {
      if (!Object.keys(build.names).some((name) => byTable.has(name))) continue;
      const wrong = scratch.derived.filter(({ name }) => name in build.names && byTable.has(name));
      // What they come to now, to tell the rows that differ from those that are right.
      if (wrong.length > 0) await derive(clickhouse, projection, scratchNames(scratch, build), range, 0);
      for (const pair of wrong) await replace(pair, range, null);
      await derive(clickhouse, projection, build.names, range, highest(range));
    }
  };

  const builds = scratch.served.map(({ build }) => build);
  try {
    for (const [range, own] of Map.groupBy(named, (one) => one.range ?? 0)) {
      // Not for longer: a swap that waits for this keeps every writer waiting.
      const hold = await lockServed(pool, builds);
      try {
        await repairRange(range, new Map(own.map((one) => [one.table ?? '', one])));
      } finally {
        await hold.release();
      }
    }
  } finally {
    // Also of what was broken off: rows may be gone that pages were made of.
    await pool.query('UPDATE tds.served SET mended = mended + 1');
  }
  return mended;
}

/** `heights` null: derived rows, which are only taken away: recomputing brings them back. */
async function replaceRange(
  { clickhouse, scratch, rewrittenHeights, assertHeld }: Repair,
  pair: TablePair,
  range: number,
  heights: Heights | null,
): Promise<RepairedRows> {
  const { wrong } = scratch;
  const [lowest, last] = [range * HEIGHT_RANGE, (range + 1) * HEIGHT_RANGE - 1];
  const count = async (sql: string): Promise<number> => {
    const [row] = await clickhouse.rows({ name: 'verify.count', sql, row: countRow });
    return Number(row?.rows ?? 0);
  };
  const { from, to } = heights ?? { from: lowest, to: last };
  const scanned = `SELECT count() AS rows FROM ${scratch.facts} WHERE height BETWEEN ${from} AND ${to}`;
  // Of what was not read nothing is known: least of all that it is wrong.
  if ((await count(scanned)) === 0) return { taken: 0, put: 0 };

  const shape = await commonShape(clickhouse, pair, heights === null);
  const where = within(shape, { buckets: [range], ...(heights === null ? {} : { heights }) });
  const columns = shape.columns.join(', ');
  const version = [...shape.key.map(({ name }) => name), 'seq'].join(', ');
  await clickhouse.command(`DROP TABLE IF EXISTS ${wrong} SYNC`);
  await clickhouse.command(
    `CREATE TABLE ${wrong} ENGINE = MergeTree ORDER BY tuple() AS SELECT ${version} FROM ${pair.ours} FINAL ${where}
     WHERE (${columns}) NOT IN (SELECT ${columns} FROM ${pair.theirs} FINAL ${where})`,
  );
  // Asked after the rows were read: each of them that is newer than the scan is of one of these heights.
  const newer = [...(await rewrittenHeights())].filter((height) => height >= lowest && height <= last);
  if (newer.length > 0 && (heights === null || shape.height === null)) return { taken: 0, put: 0 };
  const height = shape.height === 'block' ? 'block' : ascendingSql('block_desc');
  const kept = newer.length === 0 ? '' : ` AND ${height} NOT IN (${newer.join(', ')})`;
  const condition = where.replace('PREWHERE ', '');
  const taken = await count(`SELECT count() AS rows FROM ${wrong} WHERE true${kept}`);
  await assertHeld();
  try {
    if (taken > 0) {
      await clickhouse.command(
        `DELETE FROM ${pair.ours} WHERE (${condition})${kept} AND (${version}) IN (SELECT ${version} FROM ${wrong})`,
        { settings: { lightweight_deletes_sync: 2, mutations_sync: 2 } },
      );
    }
  } catch (error) {
    // It must not outlive the table that it reads.
    await clickhouse
      .command(
        `KILL MUTATION WHERE database = currentDatabase() AND table = '${pair.ours}' AND position(command, '${wrong}') > 0 SYNC`,
      )
      .catch(() => {});
    throw error;
  }
  if (heights === null) return { taken, put: 0 };
  const rows = `FROM ${pair.theirs} FINAL WHERE (${condition})${kept}`;
  const put = await count(
    `SELECT count() AS rows ${rows} AND (${columns}) NOT IN (SELECT ${columns} FROM ${pair.ours} FINAL ${where})`,
  );
  await clickhouse.command(`INSERT INTO ${pair.ours} (${columns}) SELECT ${columns} ${rows}`);
  return { taken, put };
}
