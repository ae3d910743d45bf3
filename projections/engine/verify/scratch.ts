import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ColumnSpec } from '../../../infra/clickhouse/row-binary.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { servedBuild, statements } from '../builds.ts';
import type { Build } from '../builds.ts';
import type { Target } from '../run/chain-batch.ts';
import type { TablePair } from '../compare.ts';
import { withNames } from '../../define.ts';
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
  drop(): Promise<void>;
}

const PREFIX = 'verify_';

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
  // 0xffffffff where the header has none
  { name: 'header_transactions', type: 'UInt32' },
  { name: 'header_events', type: 'UInt32' },
];
export const NO_COUNT = 0xffff_ffff;

/** Makes the tables anew; what a verification that was killed has left goes. */
export async function openScratch(
  db: Sql,
  clickhouse: Pick<ClickHouse, 'command'>,
  projections: readonly ClickHouseProjection[],
): Promise<Scratch> {
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
    const names = Object.fromEntries(Object.keys(build.names).map((name) => [name, PREFIX + name]));
    served.push({ projection, build });
    targets.push({ projection, build: { ...build, build: 0, names } });
  }
  const facts = `${PREFIX}log`;
  const all = [facts, ...targets.flatMap(({ build }) => Object.values(build.names))];
  const drop = async (): Promise<void> => {
    for (const table of all) await clickhouse.command(`DROP TABLE IF EXISTS ${table} SYNC`);
  };
  await drop();
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
      pair: { name, ours, theirs: PREFIX + name },
    })),
  );
  return {
    targets,
    served,
    tables: pairs.filter(({ isBase }) => isBase).map(({ pair }) => pair),
    derived: pairs.filter(({ isBase }) => !isBase).map(({ pair }) => pair),
    facts,
    drop,
  };
}
