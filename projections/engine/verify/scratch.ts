import { randomBytes } from 'node:crypto';

import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { servedBuild, statements } from '../builds.ts';
import type { Build } from '../builds.ts';
import type { TablePair } from '../compare.ts';
import { withNames } from '../../define.ts';
import type { BlockProjection } from '../../define.ts';
import { factsOf } from './facts.ts';

/** Tables of the same shapes as the served ones, filled from the log, that live as long as one verification. */
export interface Scratch {
  /** Fill the scratch tables. */
  readonly targets: readonly BlockTarget[];
  readonly served: readonly BlockTarget[];
  /** `ours` is served, `theirs` is what the log says. */
  readonly tables: readonly TablePair[];
  readonly derived: readonly TablePair[];
  /** One row for each message of the log. */
  readonly facts: BlockTarget & { readonly table: string };
  drop(): Promise<void>;
}

export interface BlockTarget {
  readonly projection: BlockProjection;
  readonly build: Build;
}

const PREFIX = 'verify_';
const nameRow = z.object({ name: z.string() });

/** Drops tables that killed verifications have left. Only the holder of the lock may call it. */
export async function sweepScratch(
  clickhouse: Pick<ClickHouse, 'rows' | 'ddl'>,
  prefix = PREFIX,
): Promise<void> {
  const left = await clickhouse.rows({
    name: 'verify.left',
    sql: `SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, '${prefix}')`,
    row: nameRow,
  });
  for (const { name } of left) await clickhouse.ddl(`DROP TABLE IF EXISTS ${name} SYNC`);
}

/** Creates the tables under new names: a verification that lost the lock finds none, instead of another one's. */
export async function openScratch(
  db: Sql,
  clickhouse: Pick<ClickHouse, 'rows' | 'ddl'>,
  projections: readonly BlockProjection[],
  commitments: boolean,
): Promise<Scratch> {
  const prefix = `${PREFIX}${randomBytes(4).toString('hex')}_`;
  const served: BlockTarget[] = [];
  const targets: BlockTarget[] = [];
  for (const projection of projections) {
    const build = await servedBuild(db, projection);
    if (build === null) throw new AppError('NOT_FOUND', `${projection.name} has never been built`);
    if (build.version !== projection.version) {
      throw new AppError(
        'VERSION_MISMATCH',
        `${projection.name} is served in version ${build.version}, this program knows version ${projection.version}`,
      );
    }
    const names = Object.fromEntries(Object.keys(build.names).map((name) => [name, prefix + name]));
    served.push({ projection, build });
    targets.push({ projection, build: { ...build, build: 0, names } });
  }
  const table = `${prefix}facts`;
  const facts = factsOf(commitments);
  const log = {
    projection: facts,
    build: { projection: facts.name, version: facts.version, build: 0, names: { facts: table } },
    table,
  };
  for (const { projection, build } of [...targets, log]) {
    for (const statement of statements(withNames(projection.ddl, build.names))) {
      await clickhouse.ddl(statement);
    }
  }
  const pairs: TablePair[] = served.flatMap(({ projection, build }) =>
    Object.entries(build.names).map(([name, ours]) => ({
      name,
      ours,
      theirs: prefix + name,
      isDerived: !(name in projection.tables),
    })),
  );
  return {
    targets,
    served,
    tables: pairs.filter(({ isDerived }) => !isDerived),
    derived: pairs.filter(({ isDerived }) => isDerived),
    facts: log,
    drop: async () => await sweepScratch(clickhouse, prefix),
  };
}
