import { z } from 'zod';

import { prepared, sqlRows } from '../infra/postgres/client.ts';
import type { Sql } from '../infra/postgres/client.ts';
import { AppError } from '../schemas/errors.ts';

/** Names of the served tables and schemas, read in one statement. Read it once per request and pass it on. */
export interface ServedBuilds {
  /** ClickHouse table by placeholder; throws `READ_MODEL_NOT_BUILT` when no build of it is served. */
  table(placeholder: string): string;
  /** Postgres schema by projection; throws `READ_MODEL_NOT_BUILT` when no build of it is served. */
  schema(projection: string): string;
  /**
   * Hash of the served builds, their checkpoints and the number of repairs: while it is the same, so are the tables,
   * except for rows of a batch in progress. null before the first checkpoint.
   */
  readonly state: string | null;
  /** The same for the tables built from `chain.blocks`. */
  readonly chainState: string | null;
}

/** The part of the served builds that queries of ClickHouse need. */
export type ServedTables = Pick<ServedBuilds, 'table'>;

const schemaRow = z.object({ name: z.string().nullable() });

const servedRow = z.object({
  tables: z.record(z.string(), z.string()),
  schemas: z.record(z.string(), z.string()),
  state: z.string().nullable(),
  chain_state: z.string().nullable(),
});
/** Topics without data of the chain, and builds that are not served, are not part of the state. */
const SELECT_SERVED = `SELECT tables, schemas, md5(tables::text || schemas::text || repairs || ' ' || read.all_of_it) AS state,
    md5(tables::text || repairs || ' ' || read.blocks) AS chain_state
  FROM tds.served, (
    SELECT string_agg(next_offset::text, ' ' ORDER BY projection, topic, partition) AS all_of_it,
      string_agg(next_offset::text, ' ' ORDER BY projection, topic, partition) FILTER (WHERE topic = 'chain.blocks') AS blocks
    FROM tds.projection_checkpoints
    WHERE state = 'serving' AND topic NOT IN ('ads', 'commands', 'quarantine', 'usage')
  ) AS read`;

/** The served PostgreSQL schema of one projection; null before its first build. Cheaper than `servedBuilds`. */
export async function servedSchema(db: Sql, projection: string): Promise<string | null> {
  const [row] = await sqlRows(
    db,
    schemaRow,
    prepared('SELECT schemas->>$1 AS name FROM tds.served', [projection]),
  );
  return row?.name ?? null;
}

export async function servedBuilds(db: Sql): Promise<ServedBuilds> {
  const [row] = await sqlRows(db, servedRow, prepared(SELECT_SERVED));
  const known = (names: Readonly<Record<string, string>>, name: string): string => {
    const served = names[name];
    if (served === undefined) throw new AppError('READ_MODEL_NOT_BUILT', `No build of ${name} is served yet`);
    return served;
  };
  const { tables = {}, schemas = {}, state = null, chain_state: chainState = null } = row ?? {};
  return {
    table: (placeholder) => known(tables, placeholder),
    schema: (name) => known(schemas, name),
    state,
    chainState,
  };
}
