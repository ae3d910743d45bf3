import { createHash } from 'node:crypto';

import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { TABLE_SETTINGS } from '../../infra/clickhouse/ddl.ts';
import { inTransaction, isLockTimeout, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool, PoolClient, Sql } from '../../infra/postgres/client.ts';
import { isAnyAdvisoryLockHeld, withAdvisoryLocks } from '../../infra/postgres/advisory-lock.ts';
import { AppError } from '../../schemas/errors.ts';
import { withNames } from '../define.ts';
import type { Projection } from '../define.ts';
import { isTopicRead } from '../progress.ts';

/** One set of a projection's tables, with checkpoints of its own. */
export interface Build {
  readonly projection: string;
  readonly version: number;
  readonly build: number;
  /** Placeholder → real name: ClickHouse tables, or `schema` of a Postgres projection. */
  readonly names: Readonly<Record<string, string>>;
}

/** A build as it is recorded. `building`: a shadow build that a rebuild fills. */
export interface StoredBuild extends Build {
  readonly state: 'building' | 'serving' | 'retired';
  readonly retiredAt: Date | null;
}

const buildRow = z.object({
  projection: z.string(),
  build: z.number(),
  version: z.number(),
  shape_hash: z.string(),
  state: z.enum(['building', 'serving', 'retired']),
  names: z.record(z.string(), z.string()),
  retired_at: z.date().nullable(),
});
type BuildRow = z.infer<typeof buildRow>;

/**
 * Opens the served build, or creates and serves the first one when no served build has read the topic yet. Processes that
 * start together create it once.
 *
 * @throws VERSION_MISMATCH when another version is served, or none while other builds have read the topic: a first build
 *   would be served half-filled
 * @throws SHAPE_CHANGED when table.sql changed without a new version
 */
export async function openBuild(
  pool: Pool,
  clickhouse: Pick<ClickHouse, 'ddl'> | null,
  projection: Projection,
): Promise<Build> {
  const { name, version } = projection;
  return await changingBuilds(pool, name, async (tx, rows) => {
    const serving = rows.find(({ state }) => state === 'serving');
    if (serving === undefined) {
      if (await isTopicRead(tx, projection.topic)) {
        throw new AppError(
          'VERSION_MISMATCH',
          `${name} has no build, but its topic has been read: run \`tds rebuild ${name}\` to build it before it is served`,
        );
      }
      const build = await createBuild(tx, clickhouse, projection, rows, 'serving');
      await serve(tx, projection, build);
      return build;
    }
    if (serving.version !== version) {
      throw new AppError(
        'VERSION_MISMATCH',
        `${name} is served in version ${serving.version}, this program writes version ${version}: run \`tds rebuild ${name}\` to build and swap it`,
      );
    }
    if (serving.shape_hash !== shapeHash(projection.ddl)) {
      throw new AppError(
        'SHAPE_CHANGED',
        `projections/${name}/table.sql differs from the tables of version ${version}: give the projection a new version`,
      );
    }
    return describeBuild(projection, serving.build);
  });
}

/**
 * Opens the shadow build of an unfinished rebuild, or creates one. Drops shadow builds of another version or shape, and
 * those that cannot resume.
 *
 * @param canResume whether a shadow build is whole, and its checkpoints are within the log
 */
export async function openShadowBuild(
  pool: Pool,
  clickhouse: Pick<ClickHouse, 'ddl'>,
  projection: Projection,
  canResume: (db: Sql, shadow: Build) => Promise<boolean>,
): Promise<{ shadow: Build; isResumed: boolean }> {
  return await changingBuilds(pool, projection.name, async (tx, rows) => {
    let found: BuildRow | null = null;
    for (const row of rows.filter(({ state }) => state === 'building')) {
      const isOurs = row.version === projection.version && row.shape_hash === shapeHash(projection.ddl);
      if (isOurs && (await canResume(tx, storedBuild(row)))) found = row;
      else {
        await dropTables(clickhouse, row);
        await deleteBuild(tx, row);
      }
    }
    if (found !== null) return { shadow: describeBuild(projection, found.build), isResumed: true };
    return { shadow: await createBuild(tx, clickhouse, projection, rows, 'building'), isResumed: false };
  });
}

/** True when another version is served, or none although the topic has been read. */
export async function needsRebuild(db: Sql, projection: Projection): Promise<boolean> {
  const served = await servedBuild(db, projection);
  return served === null ? await isTopicRead(db, projection.topic) : served.version !== projection.version;
}

/** The served build of any version; null when there is none. */
export async function servedBuild(db: Sql, projection: Projection): Promise<StoredBuild | null> {
  return (await listBuilds(db, projection.name)).find(({ state }) => state === 'serving') ?? null;
}

/** All builds, or those of one projection, oldest first. */
export async function listBuilds(db: Sql, projection: string | null = null): Promise<StoredBuild[]> {
  return (await buildRows(db, projection)).map(storedBuild);
}

/**
 * Drops a build's tables, checkpoints and halts. It is retired first, so that no rebuild resumes it: what an interrupted drop
 * leaves is dropped by the next one.
 *
 * @throws CONFLICT when it is served, or its tables in PostgreSQL are being read
 */
export async function dropBuild(
  pool: Pool,
  clickhouse: Pick<ClickHouse, 'ddl'>,
  projection: string,
  number: number,
): Promise<void> {
  const retire = async (tx: PoolClient, rows: readonly BuildRow[]): Promise<StoredBuild> => {
    const row = rows.find(({ build }) => build === number);
    if (row === undefined) throw new AppError('NOT_FOUND', `${projection} has no build ${number}`);
    if (row.state === 'serving') {
      throw new AppError('CONFLICT', `Build ${number} of ${projection} is served: rebuild it first`);
    }
    await tx.query(
      `UPDATE tds.builds SET state = 'retired', retired_at = coalesce(retired_at, now())
       WHERE projection = $1 AND build = $2`,
      [projection, number],
    );
    return storedBuild(row);
  };
  const drop = async (): Promise<void> => {
    const build = await changingBuilds(pool, projection, retire);
    // In no transaction: this waits for reads of the tables, of which an export takes up to an hour.
    await dropTables(clickhouse, build);
    await changingBuilds(pool, projection, async (tx, rows) => {
      if (rows.some((row) => row.build === number && row.state === 'retired')) await deleteBuild(tx, build);
    });
  };
  const [known] = (await listBuilds(pool, projection)).filter(({ build }) => build === number);
  await (known?.state === 'building' ? withRebuildLock(pool, [projection], drop) : drop());
}

const nameRow = z.object({ name: z.string() });

/** Gives the tables of all builds `TABLE_SETTINGS` where an earlier release created them without. */
export async function updateTableSettings(
  db: Sql,
  clickhouse: Pick<ClickHouse, 'rows' | 'ddl'>,
): Promise<void> {
  const tables = (await listBuilds(db)).flatMap(({ names }) => Object.values(names));
  const sql = `SELECT name FROM system.tables WHERE database = currentDatabase() AND name IN {tables:Array(String)}
    AND NOT arrayAll(setting -> position(create_table_query || ',', setting || ',') > 0, {settings:Array(String)})`;
  const query = { name: 'builds.old-settings', sql, row: nameRow };
  for (const { name } of await clickhouse.rows(query, { tables, settings: TABLE_SETTINGS.split(', ') })) {
    await clickhouse.ddl(`ALTER TABLE ${name} MODIFY SETTING ${TABLE_SETTINGS}`);
  }
}

const REBUILD_LOCK = 'tds.rebuild ';

/** Whether a process is filling shadow builds; those that an ended one has left do not count. */
export async function isRebuilding(db: Sql): Promise<boolean> {
  const { rows } = await db.query<{ projection: string }>(
    "SELECT DISTINCT projection FROM tds.builds WHERE state = 'building'",
  );
  const locks = rows.map(({ projection }) => REBUILD_LOCK + projection);
  return locks.length > 0 && (await isAnyAdvisoryLockHeld(db, locks));
}

/** Whether a process is rebuilding this projection. */
export async function isBeingRebuilt(db: Sql, projection: string): Promise<boolean> {
  return await isAnyAdvisoryLockHeld(db, [REBUILD_LOCK + projection]);
}

/** Keeps other processes from rebuilding these projections or dropping their shadow builds, as `withAdvisoryLocks`. */
export async function withRebuildLock<T>(
  pool: Pool,
  projections: readonly string[],
  work: (assertHeld: () => Promise<void>) => Promise<T>,
): Promise<T> {
  const busy = (name: string): string =>
    `A rebuild, a snapshot or a drop of ${name.slice(REBUILD_LOCK.length)} is running in another process`;
  return await withAdvisoryLocks(
    pool,
    projections.map((name) => REBUILD_LOCK + name),
    busy,
    work,
  );
}

/** Serves shadow builds instead of the previous ones, in the transaction of `withWritersStopped`. The previous ones are retired. */
export async function swapBuilds(
  tx: Sql,
  shadows: readonly {
    readonly projection: Projection;
    /** null: none was. */
    readonly served: Build | null;
    readonly shadow: Build;
  }[],
): Promise<void> {
  for (const { projection, served, shadow } of shadows) {
    const retired = await tx.query<{ build: number }>(
      `UPDATE tds.builds SET state = 'retired', retired_at = now()
       WHERE projection = $1 AND state = 'serving' RETURNING build`,
      [projection.name],
    );
    const isAsItWas = retired.rows.map(({ build }) => build).join() === String(served?.build ?? '');
    const begun = await tx.query(
      `UPDATE tds.builds SET state = 'serving' WHERE projection = $1 AND build = $2 AND state = 'building'`,
      [projection.name, shadow.build],
    );
    if (!isAsItWas || begun.rowCount !== 1) {
      throw new AppError('CONFLICT', `Another process swapped or dropped builds of ${projection.name}`);
    }
    await serve(tx, projection, shadow);
  }
}

/** Serialises creating, dropping and swapping of builds. */
export async function lockBuilds(tx: Pick<PoolClient, 'query'>): Promise<void> {
  await tx.query("SELECT pg_advisory_xact_lock(hashtext('tds.builds'))");
}

/** A process frozen here blocks every change of builds and every start; the server ends its transaction after this. */
const IDLE_MS = 60_000;

/** Changes the builds of one projection under the lock of builds. */
async function changingBuilds<T>(
  pool: Pool,
  projection: string,
  work: (tx: PoolClient, rows: readonly BuildRow[]) => Promise<T>,
): Promise<T> {
  const change = async (tx: PoolClient): Promise<T> => {
    await lockBuilds(tx);
    return await work(tx, await buildRows(tx, projection));
  };
  return await inTransaction(pool, change, { idleMs: IDLE_MS });
}

async function buildRows(db: Sql, projection: string | null): Promise<BuildRow[]> {
  return await sqlRows(
    db,
    buildRow,
    `SELECT projection, build, version, shape_hash, state, names, retired_at FROM tds.builds
     WHERE $1::text IS NULL OR projection = $1 ORDER BY projection, build`,
    [projection],
  );
}

function storedBuild({ projection, version, build, names, state, retired_at }: BuildRow): StoredBuild {
  return { projection, version, build, names, state, retiredAt: retired_at };
}

async function createBuild(
  tx: PoolClient,
  clickhouse: Pick<ClickHouse, 'ddl'> | null,
  projection: Projection,
  earlier: readonly BuildRow[],
  state: 'building' | 'serving',
): Promise<Build> {
  const build = describeBuild(projection, 1 + Math.max(0, ...earlier.map((row) => row.build)));
  // ClickHouse is not part of the transaction: a crash leaves empty tables, which IF NOT EXISTS reuses.
  if (projection.kind === 'clickhouse') {
    if (clickhouse === null) throw new TypeError(`${projection.name} has its tables in ClickHouse`);
    for (const statement of statements(withNames(projection.ddl, build.names))) {
      await clickhouse.ddl(statement);
    }
  } else {
    await tx.query(`CREATE SCHEMA IF NOT EXISTS ${build.names['schema']}`);
    await tx.query(withNames(projection.ddl, build.names));
  }
  await tx.query(
    'INSERT INTO tds.builds (projection, build, version, shape_hash, state, names) VALUES ($1, $2, $3, $4, $5, $6)',
    [
      projection.name,
      build.build,
      projection.version,
      shapeHash(projection.ddl),
      state,
      JSON.stringify(build.names),
    ],
  );
  return build;
}

/** Drops the tables of a build in ClickHouse. */
async function dropTables(
  clickhouse: Pick<ClickHouse, 'ddl'>,
  { names }: Pick<Build, 'names'>,
): Promise<void> {
  const { schema: _, ...tables } = names;
  for (const table of Object.values(tables)) await clickhouse.ddl(`DROP TABLE IF EXISTS ${table} SYNC`);
}

/** Longest wait for the tables of a schema, which keeps processes from starting and rebuilds from swapping. */
const SCHEMA_LOCK_MS = 3000;

/**
 * Deletes what PostgreSQL has of a build.
 *
 * @throws CONFLICT when its tables are being read
 */
async function deleteBuild(
  tx: PoolClient,
  { projection, build, names }: Pick<Build, 'projection' | 'build' | 'names'>,
): Promise<void> {
  const { schema } = names;
  await tx.query('DELETE FROM tds.checkpoints WHERE consumer = $1 AND build = $2', [projection, build]);
  for (const table of ['projection_halts', 'builds']) {
    await tx.query(`DELETE FROM tds.${table} WHERE projection = $1 AND build = $2`, [projection, build]);
  }
  if (schema !== undefined) await dropSchema(tx, schema);
}

async function dropSchema(tx: PoolClient, schema: string): Promise<void> {
  try {
    await tx.query(`SET LOCAL lock_timeout = ${SCHEMA_LOCK_MS}`);
    await tx.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
  } catch (cause) {
    if (!isLockTimeout(cause)) throw cause;
    const text = `Tables of ${schema} are being read, as by pg_dump: drop the build when that has ended`;
    throw new AppError('CONFLICT', text, { cause });
  }
}

/** From the commit on, readers read this build. */
async function serve(tx: Sql, projection: Projection, build: Build): Promise<void> {
  await (projection.kind === 'clickhouse'
    ? tx.query('UPDATE tds.served SET tables = tables || $1', [JSON.stringify(build.names)])
    : tx.query('UPDATE tds.served SET schemas = schemas || jsonb_build_object($1::text, $2::text)', [
        projection.name,
        build.names['schema'],
      ]));
}

function describeBuild(projection: Projection, build: number): Build {
  const { name, version, kind, ddl } = projection;
  const real = (stem: string): string => `${stem.replaceAll('-', '_')}_v${version}_b${build}`;
  const placeholders = [...ddl.matchAll(/\{\{([a-z_]+)\}\}/g)].map(([, placeholder = '']) => placeholder);
  const names =
    kind === 'postgres'
      ? { schema: real(name) }
      : Object.fromEntries(placeholders.map((placeholder) => [placeholder, real(placeholder)]));
  return { projection: name, version, build, names };
}

/** Comments and white space are not part of the shape. */
function shapeHash(ddl: string): string {
  const shape = ddl.replaceAll(/--.*$/gm, '').replaceAll(/\s+/g, ' ').trim();
  return createHash('sha256').update(shape).digest('hex');
}

/** The statements of a table.sql. */
export function statements(ddl: string): string[] {
  return ddl
    .split(/;\s*$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement.replaceAll(/--.*$/gm, '').trim() !== '');
}
