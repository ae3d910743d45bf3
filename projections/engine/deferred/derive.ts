import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { storedCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import type { Logger } from '../../../infra/log.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { DeferredProjection } from '../../define.ts';
import { listBuilds } from '../builds.ts';
import type { Build } from '../builds.ts';
import { ownerOf } from '../checkpoints.ts';
import { planPass, runPass } from './pass.ts';
import type { PassPorts, PassResult } from './pass.ts';

export interface DeriveDeps {
  readonly clickhouse: Pick<ClickHouse, 'rows' | 'command' | 'insert'>;
  readonly pool: Sql;
  readonly log: Logger;
}

/** A build of a projection with deferred tables, and builds that its sources are read from instead of the served ones. */
export interface DeriveTarget {
  readonly projection: DeferredProjection;
  readonly build: Build;
  readonly sources?: readonly Build[];
}

/** Runs one pass. */
export async function derivePass(deps: DeriveDeps, target: DeriveTarget): Promise<PassResult> {
  return await runPass(target.projection, await portsOf(deps, target));
}

/** True while a pass can derive something, or will once the sources have read the due blocks. */
export async function isDue(deps: DeriveDeps, target: DeriveTarget): Promise<boolean> {
  // Only asks: a pass that is running is not overtaken.
  const ports = { ...(await portsOf(deps, target)), number: async () => 0 };
  const { plan, waiting } = await planPass(target.projection, ports);
  return plan !== null || waiting > 0;
}

/** The names to use in a statement: of the build, and of the builds of its sources. */
export async function namesOf(
  { pool }: Pick<DeriveDeps, 'pool'>,
  target: DeriveTarget,
): Promise<Readonly<Record<string, string>>> {
  return allNames(target, await sourceBuilds(pool, target));
}

function allNames({ build }: DeriveTarget, sources: readonly Build[]): Readonly<Record<string, string>> {
  return Object.assign({}, ...sources.map(({ names }) => names), build.names);
}

async function portsOf(deps: DeriveDeps, target: DeriveTarget): Promise<PassPorts> {
  const { clickhouse, pool, log } = deps;
  const sources = await sourceBuilds(pool, target);
  const next: ReadonlyMap<number, number>[] = [];
  for (const source of sources) {
    const stored = await storedCheckpoints(pool, ownerOf(source), target.projection.topic);
    next.push(new Map(stored.map(({ partition, nextOffset }) => [partition, nextOffset])));
  }
  return {
    clickhouse,
    log,
    names: allNames(target, sources),
    readUpTo: (partition) => Math.min(...next.map((of) => of.get(partition) ?? 0)),
    number: () => beginPass(pool, target.build),
    isNewest: async (pass) => (await lastPass(pool, target.build)) === pass,
  };
}

async function sourceBuilds(pool: Sql, { projection, sources = [] }: DeriveTarget): Promise<Build[]> {
  const wanted = projection.deferred.sources;
  const served = (await listBuilds(pool)).filter(({ state }) => state === 'serving');
  return wanted.map((name) => {
    const ofName = ({ projection: owner }: Build): boolean => owner === name;
    const found = sources.find(ofName) ?? served.find(ofName);
    if (found === undefined) throw new AppError('READ_MODEL_NOT_BUILT', `No build of ${name} is served yet`);
    return found;
  });
}

/** Records the tables that a new shadow build is derived from. */
export async function recordSources(db: Sql, target: DeriveTarget): Promise<void> {
  const { projection, build } = target.build;
  const sql = 'UPDATE tds.builds SET sources = $3 WHERE projection = $1 AND build = $2';
  await db.query(sql, [projection, build, await sourceTables(db, target)]);
}

/** False: a shadow build was derived from other tables than its sources have now, and may have rows that do not follow from these. */
export async function hasRecordedSources(db: Sql, target: DeriveTarget): Promise<boolean> {
  const { projection, build } = target.build;
  const sql = 'SELECT FROM tds.builds WHERE projection = $1 AND build = $2 AND sources = $3';
  return (await db.query(sql, [projection, build, await sourceTables(db, target)])).rowCount === 1;
}

async function sourceTables(db: Sql, target: DeriveTarget): Promise<string> {
  const sources = await sourceBuilds(db, target);
  return JSON.stringify(Object.assign({}, ...sources.map(({ names }) => names)));
}

const passRow = z.object({ pass: z.number() });

/**
 * The number of a pass: microseconds of PostgreSQL's clock. A sequence could fall back in a fail-over, which takes longer than
 * the clocks of its servers differ.
 */
async function beginPass(db: Sql, { projection, build }: Build): Promise<number> {
  const sql = `UPDATE tds.builds SET pass = greatest(pass + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
    WHERE projection = $1 AND build = $2 RETURNING pass`;
  const [row] = await sqlRows(db, passRow, sql, [projection, build]);
  if (row === undefined) throw new AppError('BUILD_RETIRED', `Build ${build} of ${projection} was deleted`);
  return row.pass;
}

async function lastPass(db: Sql, { projection, build }: Build): Promise<number | null> {
  const sql = 'SELECT pass FROM tds.builds WHERE projection = $1 AND build = $2';
  const [row] = await sqlRows(db, passRow, sql, [projection, build]);
  return row?.pass ?? null;
}
