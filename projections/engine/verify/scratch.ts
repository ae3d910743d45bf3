import { randomBytes } from 'node:crypto';

import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ColumnSpec } from '../../../infra/clickhouse/row-binary.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { servedBuild, statements } from '../builds.ts';
import type { Build } from '../builds.ts';
import type { Target } from '../run/batch.ts';
import type { TablePair } from '../compare.ts';
import { withNames } from '../../define.ts';
import { MAX_UINT32 } from '../../descending.ts';
import type { ClickHouseProjection } from '../../define.ts';

/** What the log says, written beside what is served: tables of the same shapes, for as long as one verification takes. */
export interface Scratch {
  /** Write into the scratch tables. */
  readonly targets: readonly Target[];
  readonly served: readonly { readonly projection: ClickHouseProjection; readonly build: Build }[];
  /** `ours` is served, `theirs` is what the log says. */
  readonly tables: readonly TablePair[];
  readonly derived: readonly TablePair[];
  /** One row a message of the log. */
  readonly facts: string;
  /** Free for the versions of rows that a repair takes away. */
  readonly wrong: string;
  drop(): Promise<void>;
}

const PREFIX = 'verify_';
const nameRow = z.object({ name: z.string() });

export const factColumns: readonly ColumnSpec[] = [
  { name: 'height', type: 'UInt32' },
  { name: 'seq', type: 'UInt64' },
  { name: 'log_partition', type: 'UInt16' },
  { name: 'log_offset', type: 'UInt64' },
  { name: 'accepted', type: 'UInt8' },
  { name: 'hash', type: 'FixedString(32)' },
  { name: 'parent_hash', type: 'FixedString(32)' },
  // SHA-256 of the `contracts` map: the rows of a block depend on it.
  { name: 'contracts', type: 'FixedString(32)' },
  { name: 'transactions', type: 'UInt32' },
  { name: 'events', type: 'UInt32' },
  // `NO_COUNT` where the header has none
  { name: 'header_transactions', type: 'UInt32' },
  { name: 'header_events', type: 'UInt32' },
];
export const NO_COUNT = MAX_UINT32;

/** Takes away what verifications have left that were killed. Only for the one that has the lock. */
export async function sweepScratch(clickhouse: Pick<ClickHouse, 'rows' | 'command'>): Promise<void> {
  const left = await clickhouse.rows({
    name: 'verify.left',
    sql: `SELECT name FROM system.tables WHERE database = currentDatabase() AND startsWith(name, '${PREFIX}')`,
    row: nameRow,
  });
  for (const { name } of left) await clickhouse.command(`DROP TABLE IF EXISTS ${name} SYNC`);
}

/** Makes the tables anew, under names that no other verification has: whoever lost the lock finds none, not empty ones. */
export async function openScratch(
  db: Sql,
  clickhouse: Pick<ClickHouse, 'command'>,
  projections: readonly ClickHouseProjection[],
): Promise<Scratch> {
  const prefix = `${PREFIX}${randomBytes(4).toString('hex')}_`;
  const served = [];
  const targets = [];
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
  const facts = `${prefix}log`;
  const wrong = `${prefix}wrong`;
  const all = [wrong, facts, ...targets.flatMap(({ build }) => Object.values(build.names))];
  const drop = async (): Promise<void> => {
    for (const table of all) await clickhouse.command(`DROP TABLE IF EXISTS ${table} SYNC`);
  };
  for (const { projection, build } of targets) {
    for (const statement of statements(withNames(projection.ddl, build.names))) {
      await clickhouse.command(statement);
    }
  }
  await clickhouse.command(
    `CREATE TABLE ${facts} (${factColumns.map(({ name, type }) => `${name} ${type}`).join(', ')})
     ENGINE = MergeTree ORDER BY (height, seq)`,
  );
  const pairs = served.flatMap(({ projection, build }) =>
    Object.entries(build.names).map(([name, ours]) => ({
      isBase: name in projection.tables,
      pair: { name, ours, theirs: prefix + name },
    })),
  );
  return {
    targets,
    served,
    tables: pairs.filter(({ isBase }) => isBase).map(({ pair }) => pair),
    derived: pairs.filter(({ isBase }) => !isBase).map(({ pair }) => pair),
    facts,
    wrong,
    drop,
  };
}
