import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { holdServed } from '../holds.ts';
import { commonShape, within } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import type { Difference } from './difference.ts';
import type { Scratch } from './scratch.ts';
import { derive } from './tables.ts';

const WRONG = 'verify_wrong';
const countRow = z.object({ rows: z.coerce.number() });

/**
 * Makes the tables what the log says, where they differ: rows that the log does not know go, each in exactly the version
 * that was found, and the log's own are inserted again under their own seq. So a row that is written meanwhile stays and
 * wins, and afterwards the tables are, byte for byte, what a rebuild would give. Derived tables are recomputed.
 *
 * @param highest the highest offset that all of them have read, by range: the version of what is recomputed
 */
export async function repairTables(
  { pool, clickhouse }: { pool: Pool; clickhouse: ClickHouse },
  scratch: Scratch,
  differences: readonly Difference[],
  highest: (range: number) => number,
): Promise<number> {
  const named = differences.filter(({ table, range }) => table !== undefined && range !== undefined);
  const byTable = Map.groupBy(named, ({ table }) => table ?? '');
  const hold = await holdServed(
    pool,
    scratch.served.map(({ build }) => build),
  );
  let rows = 0;
  try {
    for (const pair of scratch.tables) {
      const own = byTable.get(pair.name) ?? [];
      for (const [range, [first]] of Map.groupBy(own, (one) => one.range ?? 0)) {
        if (first?.heights) rows += await replaceRange(clickhouse, pair, range, first.heights, false);
      }
    }
    for (const { projection, build } of scratch.served) {
      const ranges = new Set(
        Object.keys(build.names).flatMap((name) => (byTable.get(name) ?? []).map(({ range }) => range ?? 0)),
      );
      for (const range of ranges) {
        for (const pair of scratch.derived.filter(({ name }) => name in build.names)) {
          const heights = { from: 0, to: 0xffff_ffff };
          if (byTable.get(pair.name)?.some((one) => one.range === range))
            rows += await replaceRange(clickhouse, pair, range, heights, true);
        }
        await derive(clickhouse, projection, build.names, range, highest(range));
      }
    }
  } finally {
    await clickhouse.command(`DROP TABLE IF EXISTS ${WRONG} SYNC`);
    await pool.query('UPDATE tds.served SET mended = mended + 1');
    await hold.release();
  }
  return rows;
}

/** Derived rows are only taken away: recomputing brings them back. Answers how many rows were wrong. */
async function replaceRange(
  clickhouse: ClickHouse,
  pair: TablePair,
  range: number,
  heights: Heights,
  isDerived: boolean,
): Promise<number> {
  const shape = await commonShape(clickhouse, pair, isDerived);
  const where = within(shape, isDerived ? { buckets: [range] } : { buckets: [range], heights });
  const columns = shape.columns.join(', ');
  const version = [...shape.key.map(({ name }) => name), 'seq'].join(', ');
  await clickhouse.command(`DROP TABLE IF EXISTS ${WRONG} SYNC`);
  await clickhouse.command(
    `CREATE TABLE ${WRONG} ENGINE = Memory AS SELECT ${version} FROM ${pair.ours} FINAL ${where}
     WHERE (${columns}) NOT IN (SELECT ${columns} FROM ${pair.theirs} FINAL ${where})`,
  );
  await clickhouse.command(
    `DELETE FROM ${pair.ours} WHERE (${where.replace('PREWHERE ', '')}) AND (${version}) IN (SELECT ${version} FROM ${WRONG})`,
    { settings: { lightweight_deletes_sync: 1 } },
  );
  if (!isDerived) {
    await clickhouse.command(
      `INSERT INTO ${pair.ours} (${columns}) SELECT ${columns} FROM ${pair.theirs} FINAL ${where}`,
    );
  }
  const [count] = await clickhouse.rows({
    name: 'verify.wrong',
    sql: `SELECT count() AS rows FROM ${WRONG}`,
    row: countRow,
  });
  return Number(count?.rows ?? 0);
}
