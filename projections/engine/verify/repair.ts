import { z } from 'zod';

import type { ClickHouse, Params } from '../../../infra/clickhouse/client.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { heightsOf, rangeOf } from '../../../schemas/topics.ts';
import type { BlockProjection, DeferredProjection } from '../../define.ts';
import { servedBuild } from '../builds.ts';
import { markAgain } from '../deferred/mark-again.ts';
import { lockServed } from '../served-lock.ts';
import { ascendingSql } from '../../descending.ts';
import { commonShape, prewhere, within } from '../compare.ts';
import type { Heights, TablePair } from '../compare.ts';
import type { Difference } from './difference.ts';
import type { BlockTarget, Scratch } from './scratch.ts';
import { deriveScratch, withDerivedScratch } from './tables.ts';

/** Rows of one table that a repair deleted and inserted. */
export interface RepairedRows {
  readonly deleted: number;
  readonly inserted: number;
}

interface Repair {
  readonly clickhouse: ClickHouse;
  readonly scratch: Scratch;
  /** Heights with messages appended after the scan. */
  readonly heightsSince: () => Promise<ReadonlySet<number>>;
  /** Throws if the verification's lock was lost; called before every deletion. */
  readonly assertLockHeld: () => Promise<void>;
}

/** Wrong rows of a table, and which of its rows may be replaced. */
interface WrongRows {
  readonly pair: TablePair;
  /** The table of their keys and versions. */
  readonly listed: string;
  /** Names with commas between them. */
  readonly columns: string;
  readonly key: string;
  readonly condition: string | null;
  /** Continues the condition. */
  readonly excludeNewer: string;
  readonly params: Params;
}

/** What it takes to make the blocks of a range due again. */
interface MarkDeps {
  readonly pool: Pool;
  readonly clickhouse: ClickHouse;
  readonly deferred: readonly DeferredProjection[];
}

const NOTHING: RepairedRows = { deleted: 0, inserted: 0 };
const countRow = z.object({ rows: z.coerce.number() });
const rangeRow = z.object({ range: z.int() });

/**
 * Repairs the differing rows of served tables: deletes exactly the row versions that the log does not produce, and inserts
 * the missing rows with their original version. Skips heights that received messages after the scan, so a row that is
 * written meanwhile wins, and the result equals a rebuild. Derived tables are recomputed in the scratch tables first; writers
 * wait for this where the range received messages. The blocks of the range are due again for deferred tables.
 *
 * @param versionOf version of a range's recomputed rows: the highest offset that all projections have read
 * @param repaired gets the rows of each table once they are replaced, also of a repair that fails later
 */
export async function repairTables(
  { pool, deferred, ...repair }: Repair & MarkDeps,
  differences: readonly Difference[],
  versionOf: (range: number) => number,
  repaired: Record<string, RepairedRows>,
): Promise<void> {
  const { clickhouse, scratch } = repair;
  const named = differences.filter(({ table, range }) => table !== undefined && range !== undefined);
  const replace = async (wrong: readonly WrongRows[]): Promise<void> => {
    for (const one of wrong) {
      const rows = await replaceRows(repair, one);
      if (rows.deleted + rows.inserted > 0) addRepairedRows(repaired, { [one.pair.name]: rows });
    }
  };
  /** Returns what is left to list without other writers: derived tables whose blocks were written since the scan. */
  const repairRange = async (
    range: number,
    byTable: ReadonlyMap<string, Difference>,
  ): Promise<BlockTarget[]> => {
    await pool.query('INSERT INTO tds.repairing_ranges (range) VALUES ($1) ON CONFLICT DO NOTHING', [range]);
    for (const pair of scratch.tables) {
      const heights = byTable.get(pair.name)?.heights;
      if (heights) await replace((await listWrongRows(repair, pair, range, heights)) ?? []);
    }
    const left = new Set<BlockTarget>();
    for (const target of scratch.served) {
      if (!Object.keys(target.build.names).some((name) => byTable.has(name))) continue;
      await deriveScratch(clickhouse, scratch, target, range, versionOf(range));
      for (const pair of derivedOf(scratch, target)) {
        const wrong = await listWrongRows(repair, pair, range, heightsOf(range));
        if (wrong === null) left.add(target);
        else await replace(wrong);
      }
    }
    return [...left];
  };
  const builds = scratch.served.map(({ build }) => build);
  // Held for no longer than a range, because writers queue behind a swap that waits for this lock.
  const withServedLock = async <T>(work: () => Promise<T>): Promise<T> => {
    const lock = await lockServed(pool, builds);
    try {
      return await work();
    } finally {
      await lock.release();
    }
  };
  try {
    for (const [range, own] of Map.groupBy(named, (one) => one.range ?? 0)) {
      const byTable = new Map(own.map((one) => [one.table ?? '', one]));
      for (const target of await withServedLock(async () => await repairRange(range, byTable))) {
        const wrong = await listWithWritersStopped({ ...repair, pool }, target, range);
        // What is written since has newer versions: it is not deleted, and replaces what is inserted.
        await withServedLock(async () => await replace(wrong));
      }
      await endRepair({ pool, clickhouse, deferred }, range);
    }
  } finally {
    // On failure too: invalidates cached pages, which may show deleted rows.
    await invalidateCachedPages(pool);
  }
}

function derivedOf({ derived }: Scratch, { build }: BlockTarget): TablePair[] {
  return derived.filter(({ name }) => name in build.names);
}

async function listWithWritersStopped(
  repair: Repair & { readonly pool: Pool },
  target: BlockTarget,
  range: number,
): Promise<WrongRows[]> {
  const { scratch } = repair;
  const wrong: WrongRows[] = [];
  await withDerivedScratch(repair, scratch, target, range, 'repaired', async (clickhouse) => {
    // Writers are stopped, so no newer rows can appear.
    const heightsSince = async (): Promise<ReadonlySet<number>> => new Set();
    for (const pair of derivedOf(scratch, target)) {
      const listing = { ...repair, clickhouse, heightsSince };
      wrong.push(...((await listWrongRows(listing, pair, range, heightsOf(range))) ?? []));
    }
  });
  return wrong;
}

/**
 * Completes the repair of ranges in which it was interrupted, as when its process was killed: a comparison may find no difference
 * there any more. Rows that have a tombstone are deleted, and the blocks are due again.
 */
export async function endInterruptedRepairs(
  deps: MarkDeps & { readonly projections: readonly BlockProjection[] },
): Promise<void> {
  const { pool, clickhouse, projections } = deps;
  const interrupted = await sqlRows(pool, rangeRow, 'SELECT range FROM tds.repairing_ranges');
  if (interrupted.length > 0) await invalidateCachedPages(pool);
  for (const { range } of interrupted) {
    for (const projection of projections) {
      const build = await servedBuild(pool, projection);
      for (const name of Object.keys(projection.tables)) {
        const table = build?.names[name];
        if (table !== undefined) await deleteBuried(clickhouse, table, range);
      }
    }
    await endRepair(deps, range);
  }
}

/** Deletes the rows of a range that have a tombstone of the same version: reads without FINAL may find either. */
async function deleteBuried(clickhouse: ClickHouse, table: string, range: number): Promise<void> {
  const shape = await commonShape(clickhouse, { name: table, ours: table, theirs: table, isDerived: false });
  const { sql: condition, params } = within(shape, { buckets: [range], heights: heightsOf(range) });
  const version = `${shape.key.map(({ name }) => name).join(', ')}, seq`;
  const rows = `(${condition}) AND is_deleted = 0
    AND (${version}) IN (SELECT ${version} FROM ${table} WHERE (${condition}) AND is_deleted = 1)`;
  await deleteRows(clickhouse, table, rows, params, table);
}

async function endRepair({ pool, clickhouse, deferred }: MarkDeps, range: number): Promise<void> {
  await markAgain({ clickhouse, pool }, deferred, heightsOf(range));
  await pool.query('DELETE FROM tds.repairing_ranges WHERE range = $1', [range]);
}

async function invalidateCachedPages(pool: Pool): Promise<void> {
  await pool.query('UPDATE tds.served SET repairs = repairs + 1');
}

/** Adds up, by table. */
export function addRepairedRows(
  sums: Record<string, RepairedRows>,
  more: Readonly<Record<string, RepairedRows>>,
): void {
  for (const [table, { deleted, inserted }] of Object.entries(more)) {
    const sum = sums[table] ?? NOTHING;
    sums[table] = { deleted: sum.deleted + deleted, inserted: sum.inserted + inserted };
  }
}

export function repairedLines(tables: Readonly<Record<string, RepairedRows>>): string[] {
  return Object.entries(tables).map(
    ([table, { deleted, inserted }]) => `${table}: ${deleted} wrong rows deleted, ${inserted} inserted`,
  );
}

/** Null: rows of later messages cannot be told from wrong ones. Empty: there is nothing to compare them with. */
async function listWrongRows(
  { clickhouse, scratch, heightsSince }: Repair,
  pair: TablePair,
  range: number,
  heights: Heights,
): Promise<WrongRows[] | null> {
  // Rows of blocks that were not scanned cannot be judged.
  const scanned = `${scratch.facts.table} WHERE height BETWEEN {from:UInt32} AND {to:UInt32}`;
  if ((await countRows(clickhouse, scanned, { ...heights })) === 0) return [];

  const shape = await commonShape(clickhouse, pair);
  const { sql: condition, params } = within(shape, { buckets: [range], heights });
  const [columns, key] = [shape.columns.join(', '), shape.key.map(({ name }) => name).join(', ')];
  const typed = shape.key.map(({ name, type }) => `${name} ${type}`).join(', ');
  const listed = `${pair.theirs}_wrong`;
  await clickhouse.ddl(`DROP TABLE IF EXISTS ${listed} SYNC`);
  await clickhouse.ddl(`CREATE TABLE ${listed} (${typed}, seq UInt64) ENGINE = MergeTree ORDER BY tuple()`);
  await clickhouse.command(
    `INSERT INTO ${listed} (${key}, seq) SELECT ${key}, seq FROM ${pair.ours} FINAL
     ${prewhere(condition)} WHERE (${columns}) NOT IN (SELECT ${columns} FROM ${pair.theirs} FINAL ${prewhere(condition)})`,
    { params },
  );
  // Must follow the SELECT above: then every row that is newer than the scan is at one of these heights.
  const newer = [...(await heightsSince())].filter((one) => rangeOf(one) === range);
  if (newer.length > 0 && shape.height === null) return null;
  const height = shape.height === 'block' ? 'block' : ascendingSql('block_desc');
  const excludeNewer = newer.length === 0 ? '' : ` AND ${height} NOT IN {newer:Array(UInt32)}`;
  return [{ pair, listed, columns, key, condition, excludeNewer, params: { ...params, newer } }];
}

/** Deletes listed rows and inserts what is missing then. */
async function replaceRows(
  { clickhouse, assertLockHeld }: Repair,
  { pair, listed, columns, key, condition, excludeNewer, params }: WrongRows,
): Promise<RepairedRows> {
  const deleted = await countRows(clickhouse, `${listed} WHERE true${excludeNewer}`, params);
  await assertLockHeld();
  if (deleted > 0) {
    // Deferred passes find what to derive again by the keys of a block's rows, those of deleted rows included, and streams read
    // all columns of deleted rows. Inserted before the deletion, which may be interrupted: the next verification then completes it.
    if (!pair.isDerived)
      await clickhouse.command(
        `INSERT INTO ${pair.ours} SELECT * REPLACE (1 AS is_deleted) FROM ${pair.ours} FINAL ${prewhere(condition)}
         WHERE (${key}, seq) IN (SELECT ${key}, seq FROM ${listed})${excludeNewer} AND (${key}) NOT IN (SELECT ${key} FROM ${pair.theirs} FINAL ${prewhere(condition)})`,
        { params },
      );
    const rows = `(${condition})${excludeNewer} AND is_deleted = 0 AND (${key}, seq) IN (SELECT ${key}, seq FROM ${listed})`;
    await deleteRows(clickhouse, pair.ours, rows, params, listed);
  }
  // Sums that writers have recomputed since they were listed are right.
  const excludeRecomputed = pair.isDerived
    ? ` AND (${key}) NOT IN (SELECT ${key} FROM ${pair.ours} ${prewhere(condition)} WHERE seq > (SELECT max(seq) FROM ${pair.theirs} ${prewhere(condition)}))`
    : '';
  const missing = `${pair.theirs} FINAL WHERE (${condition})${excludeNewer}${excludeRecomputed}
    AND (${columns}) NOT IN (SELECT ${columns} FROM ${pair.ours} FINAL ${prewhere(condition)})`;
  const inserted = await countRows(clickhouse, missing, params);
  if (inserted > 0) {
    const written = pair.isDerived ? `${columns}, seq` : columns;
    const sql = `INSERT INTO ${pair.ours} (${written}) SELECT ${written} FROM ${missing}`;
    await clickhouse.command(sql, { params });
  }
  return { deleted, inserted };
}

async function countRows(clickhouse: ClickHouse, from: string, params: Params): Promise<number> {
  const sql = `SELECT count() AS rows FROM ${from}`;
  const [row] = await clickhouse.rows({ name: 'verify.count', sql, row: countRow }, params);
  return row?.rows ?? 0;
}

/**
 * Deletes rows, and waits until it is done.
 *
 * @param listed the table that the condition reads their keys from
 */
async function deleteRows(
  clickhouse: ClickHouse,
  table: string,
  condition: string,
  params: Params,
  listed: string,
): Promise<void> {
  // Each replica runs the mutation by itself, on its own copy of the listing table.
  await clickhouse.syncReplicas(listed);
  const settings = {
    lightweight_deletes_sync: 2,
    mutations_sync: 2,
    // On a replicated table, what allows a subquery.
    allow_nondeterministic_mutations: 1,
  };
  try {
    await clickhouse.command(`DELETE FROM ${table} WHERE ${condition}`, { params, settings });
  } catch (error) {
    // The mutation reads the listing table, which may be dropped next.
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
