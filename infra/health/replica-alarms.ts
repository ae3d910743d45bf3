import { z } from 'zod';

import { isClickHouseMissingPrivilege } from '../clickhouse/client.ts';
import type { ChQuery, RowReader } from '../clickhouse/client.ts';
import type { Logger } from '../log.ts';
import { startLoop } from '../loop.ts';
import type { Loop } from '../loop.ts';
import { prepared, sqlRows } from '../postgres/client.ts';
import type { Pool } from '../postgres/client.ts';
import { createAlarms } from './alarms.ts';

interface Options {
  readonly pool: Pool;
  readonly clickhouse: RowReader;
  readonly log: Logger;
  /** A replica that lacks rows for so long is behind. */
  readonly behindSeconds: number;
}

const EVERY_MS = 10_000;
const TIMEOUT_MS = 10_000;

/** The alarm that the state of the replicas may not be read. */
const HIDDEN = 'clickhouse.replicas-hidden';
/** Both are about one replica, whose name follows. */
const ABOUT_REPLICA = 'clickhouse.replica-';
const missing = (name: string): string => `${ABOUT_REPLICA}missing:${name}`;
const behind = (name: string): string => `${ABOUT_REPLICA}behind:${name}`;

const stateRow = z.object({
  name: z.string(),
  read_only: z.number(),
  delay: z.coerce.number(),
  /** Whether Keeper has a session of each replica; empty where this one has lost Keeper, or has no replicated table. */
  active: z.record(z.string(), z.number()),
  /** All of the database, also those that are not replicated yet. */
  tables: z.array(z.string()),
});
type ReplicaState = z.infer<typeof stateRow>;
/** What the replica that answers knows: of itself, and whether the others are there. */
const stateOfReplica: ChQuery<ReplicaState> = {
  name: 'replica-state',
  sql: `SELECT if(count() = 0, getMacro('replica'), any(replica_name)) AS name, max(is_readonly) AS read_only,
      max(absolute_delay) AS delay, minMap(replica_is_active) AS active,
      (SELECT groupArray(name) FROM system.tables WHERE database = currentDatabase()) AS tables
    FROM system.replicas WHERE database = currentDatabase()`,
  row: stateRow,
};

const servedTable = z.object({ name: z.string() });
const SELECT_SERVED_TABLES = 'SELECT value AS name FROM tds.served, jsonb_each_text(tables)';

/** Raises and clears the alarms about the replicas of the cluster, by asking one replica after the other. */
export function startReplicaAlarms(options: Options): Loop {
  return startLoop({
    async round(signal) {
      // An unavailable store raises an alarm elsewhere.
      await checkReplica(options, signal).catch((error: unknown) =>
        options.log.debug({ err: error }, 'could not read the state of replicas'),
      );
      return EVERY_MS;
    },
  });
}

/** Asks the replica that a new connection reaches. */
export async function checkReplica(
  { pool, clickhouse, behindSeconds }: Omit<Options, 'log'>,
  signal: AbortSignal = new AbortController().signal,
): Promise<void> {
  const alarms = createAlarms(pool);
  try {
    const [state] = await clickhouse.rows(stateOfReplica, {}, { timeoutMs: TIMEOUT_MS, signal });
    if (state === undefined) return;
    await alarms.clear([HIDDEN]);
    // Read second: a table exists long before it is served, but may be dropped right after.
    const served = await sqlRows(pool, servedTable, prepared(SELECT_SERVED_TABLES));
    const lacking = served.map(({ name }) => name).filter((name) => !state.tables.includes(name));
    const raised = alarmsOf(state, lacking, behindSeconds);
    for (const [name, detail] of raised) await alarms.raise(name, detail);
    const others = Object.keys(state.active).filter((name) => name !== state.name);
    // How far another replica is behind, only that one knows.
    const kept = [...raised.keys(), ...others.filter((name) => state.active[name] === 1).map(behind)];
    if (others.length > 0) {
      const sql = 'DELETE FROM tds.alarms WHERE starts_with(name, $1) AND name <> ALL($2)';
      await pool.query(sql, [ABOUT_REPLICA, kept]);
    }
  } catch (error) {
    if (!isClickHouseMissingPrivilege(error)) throw error;
    await alarms.raise(HIDDEN, 'GRANT SELECT ON system.replicas to the user of CLICKHOUSE_URL');
  }
}

/** Details by name. */
function alarmsOf(
  { name, read_only: readOnly, delay, active }: ReplicaState,
  lacking: readonly string[],
  behindSeconds: number,
): Map<string, string> {
  const raised = new Map<string, string>();
  for (const [other, isActive] of Object.entries(active)) {
    if (other !== name && isActive === 0) raised.set(missing(other), `${name} does not see it in Keeper`);
  }
  const [first, ...more] = lacking;
  if (first !== undefined)
    raised.set(
      behind(name),
      `it lacks the table ${first}${more.length > 0 ? ` and ${more.length} more` : ''}`,
    );
  else if (readOnly === 1) raised.set(behind(name), 'a table is read-only');
  else if (delay >= behindSeconds) raised.set(behind(name), `it lacks rows of ${delay} s ago`);
  return raised;
}
