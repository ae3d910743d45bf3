import { compareSchemas, compareTables, differingRows } from '../compare.ts';
import type { BucketDifference, RowDifference, TablePair } from '../compare.ts';
import type { PostgresProjection, Projection } from '../../define.ts';
import type { Build, StoredBuild } from '../builds.ts';
import type { ReplayDeps } from './replay.ts';

/** What one table of the served build and of its shadow have in common and what not. */
export interface TableReport {
  readonly projection: string;
  readonly table: string;
  /** Rows of the shadow, when it had caught up first. */
  readonly rows: number;
  readonly differing: readonly BucketDifference[];
  /** Some of the rows that differ, seen from the build that was served: `missing` ones it did not have. */
  readonly samples: readonly RowDifference[];
}

/** One projection, its build that is served (null: it is new) and the shadow that is to take its place. */
export interface Rebuilding<P extends Projection = Projection> {
  readonly projection: P;
  readonly served: StoredBuild | null;
  readonly shadow: Build;
  readonly isResumed: boolean;
}

/** A first comparison, and what was read since it began: the buckets, and how many messages. */
interface Since {
  readonly first: readonly TableReport[];
  readonly touched: ReadonlySet<number>;
  readonly messages: number;
}

const SAMPLES = 20;
/** Buckets that are compared again, and looked into, while writers are held. */
const LOOKED_AT_AGAIN = 32;
const SAMPLED = 4;

/**
 * Every table of every projection. After a first comparison, which others write beside, only what differed then and what
 * was touched since is looked at again.
 */
export async function compareBuilds(
  deps: ReplayDeps,
  rebuilding: readonly Rebuilding[],
  since: Since | null,
): Promise<TableReport[]> {
  const reports: TableReport[] = [];
  for (const one of rebuilding) {
    reports.push(
      ...(isFolded(one)
        ? await comparePostgresBuilds(deps, one, since)
        : await compareClickHouseBuilds(deps, one, since)),
    );
  }
  return reports;
}

function isFolded(one: Rebuilding): one is Rebuilding<PostgresProjection<unknown>> {
  return one.projection.kind === 'postgres';
}

async function comparePostgresBuilds(
  { pool }: ReplayDeps,
  { projection, served, shadow }: Rebuilding,
  since: Since | null,
): Promise<TableReport[]> {
  if (served === null) return [];
  const before = since?.first.filter((one) => one.projection === projection.name) ?? [];
  const wereEqual = before.length > 0 && before.every(({ differing }) => differing.length === 0);
  if (wereEqual && since?.messages === 0) return before;
  const [ours = '', theirs = ''] = [served.names['schema'], shadow.names['schema']];
  const compared = await compareSchemas(pool, ours, theirs, SAMPLES);
  return compared.map(({ name, ...rest }) => ({ projection: projection.name, table: name, ...rest }));
}

async function compareClickHouseBuilds(
  { clickhouse }: ReplayDeps,
  { projection, served, shadow }: Rebuilding,
  since: Since | null,
): Promise<TableReport[]> {
  const reports: TableReport[] = [];
  for (const [table, theirs] of Object.entries(shadow.names)) {
    const ours = served?.names[table];
    if (ours === undefined) continue; // a table that the served version does not have
    const pair: TablePair = { name: table, ours, theirs };
    const isDerived = projection.kind === 'clickhouse' && projection.tables[table] === undefined;
    const before = since?.first.find((one) => one.projection === projection.name && one.table === table);
    // Writers wait for the second look: of much that differs, the first look is believed.
    const believed =
      before?.differing.slice(LOOKED_AT_AGAIN).filter(({ bucket }) => !since?.touched.has(bucket)) ?? [];
    const again = before && [
      ...new Set([
        ...before.differing.slice(0, LOOKED_AT_AGAIN).map(({ bucket }) => bucket),
        ...(since?.touched ?? []),
      ]),
    ];
    const { rows, differing } = await compareTables(clickhouse, pair, {
      isDerived,
      ...(again === undefined ? {} : { buckets: again }),
    });
    const buckets = differing.slice(0, SAMPLED).map(({ bucket }) => bucket);
    const samples =
      since === null || buckets.length === 0
        ? []
        : await differingRows(clickhouse, pair, { isDerived, buckets, limit: SAMPLES });
    reports.push({
      projection: projection.name,
      table,
      rows: before?.rows ?? rows,
      differing: [...differing, ...believed],
      samples,
    });
  }
  return reports;
}
