import { createHash } from 'node:crypto';

import { z } from 'zod';

import type { ClickHouse } from '../infra/clickhouse/client.ts';
import { inTransaction, sqlRows } from '../infra/postgres/client.ts';
import type { Pool, PoolClient, Sql } from '../infra/postgres/client.ts';
import { AppError } from '../schemas/errors.ts';
import { withNames } from './define.ts';
import type { Projection } from './define.ts';

/** One set of a projection's tables, by which its checkpoints are kept. */
export interface Build {
  readonly projection: string;
  readonly version: number;
  readonly build: number;
  /** Placeholder → real name: ClickHouse tables, or `schema` of a Postgres projection. */
  readonly names: Readonly<Record<string, string>>;
}

/** The names that readers use, all of one moment. Read it once a request and hand it on. */
export interface ServedBuilds {
  /** ClickHouse table by placeholder; throws `NOT_FOUND` when no build of it is served. */
  table(placeholder: string): string;
  /** Postgres schema by projection; throws `NOT_FOUND` when no build of it is served. */
  schema(projection: string): string;
}

const servedRow = z.object({
  tables: z.record(z.string(), z.string()),
  schemas: z.record(z.string(), z.string()),
});
const buildRow = z.object({
  build: z.number(),
  version: z.number(),
  shape_hash: z.string(),
  state: z.enum(['building', 'serving', 'retired']),
});
type BuildRow = z.infer<typeof buildRow>;

export async function servedBuilds(db: Sql): Promise<ServedBuilds> {
  const [row] = await sqlRows(db, servedRow, 'SELECT tables, schemas FROM tds.served');
  const known = (names: Readonly<Record<string, string>>, name: string): string => {
    const served = names[name];
    if (served === undefined) throw new AppError('NOT_FOUND', `No build of ${name} is served yet`);
    return served;
  };
  const { tables = {}, schemas = {} } = row ?? {};
  return { table: (placeholder) => known(tables, placeholder), schema: (name) => known(schemas, name) };
}

/**
 * The build that this program writes; made, and served from then on, when the projection has none. Refuses to run
 * against tables of another version (`VERSION_MISMATCH`) and against a table.sql that changed without one
 * (`SHAPE_CHANGED`). Processes that start together make a build once.
 */
export async function openBuild(
  pool: Pool,
  clickhouse: Pick<ClickHouse, 'command'> | null,
  projection: Projection,
): Promise<Build> {
  const { name, version } = projection;
  return await inTransaction(pool, async (tx) => {
    await tx.query("SELECT pg_advisory_xact_lock(hashtext('tds.builds'))");
    const rows = await sqlRows(
      tx,
      buildRow,
      'SELECT build, version, shape_hash, state FROM tds.builds WHERE projection = $1 ORDER BY build',
      [name],
    );
    const serving = rows.find(({ state }) => state === 'serving');
    if (serving === undefined) return await makeBuild(tx, clickhouse, projection, rows);
    if (serving.version !== version) {
      throw new AppError(
        'VERSION_MISMATCH',
        `${name} is served in version ${serving.version}, this program writes version ${version}`,
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

async function makeBuild(
  tx: PoolClient,
  clickhouse: Pick<ClickHouse, 'command'> | null,
  projection: Projection,
  earlier: readonly BuildRow[],
): Promise<Build> {
  const build = describeBuild(projection, 1 + Math.max(0, ...earlier.map((row) => row.build)));
  // ClickHouse has no part in the transaction: a crash between leaves empty tables, which IF NOT EXISTS takes over.
  if (projection.kind === 'clickhouse') {
    if (clickhouse === null) throw new TypeError(`${projection.name} has its tables in ClickHouse`);
    for (const statement of statements(withNames(projection.ddl, build.names))) {
      await clickhouse.command(statement);
    }
  } else {
    await tx.query(`CREATE SCHEMA IF NOT EXISTS ${build.names['schema']}`);
    await tx.query(withNames(projection.ddl, build.names));
  }
  await tx.query(
    `INSERT INTO tds.builds (projection, build, version, shape_hash, state) VALUES ($1, $2, $3, $4, 'serving')`,
    [projection.name, build.build, projection.version, shapeHash(projection.ddl)],
  );
  await (projection.kind === 'clickhouse'
    ? tx.query('UPDATE tds.served SET tables = tables || $1', [JSON.stringify(build.names)])
    : tx.query('UPDATE tds.served SET schemas = schemas || jsonb_build_object($1::text, $2::text)', [
        projection.name,
        build.names['schema'],
      ]));
  return build;
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

function statements(ddl: string): string[] {
  return ddl
    .split(/;\s*$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement.replaceAll(/--.*$/gm, '').trim() !== '');
}
