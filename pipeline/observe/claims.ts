import { z } from 'zod';

import { inBatches } from '../../infra/batches.ts';
import { isPostgresUnavailable, prepared, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';

/** A task that this process works on. */
export interface TaskClaim {
  readonly subject: string;
  readonly task: unknown;
  /** Failed attempts. */
  readonly attempts: number;
  /** The message to publish, stored by an earlier attempt; otherwise null. */
  readonly message: unknown;
  /** When the claim expires, in Unix milliseconds; identifies the claim. */
  readonly next_at: number;
  /** A client waits for it. */
  readonly is_requested: boolean;
}

/** After a crash, how long until a task of the lost process is claimed again. */
export const CLAIM_MS = 60_000;

/** A table of tasks. */
export interface TaskTable<C extends TaskClaim> {
  readonly name: string;
  /** Columns of the key, with their types. */
  readonly key: Readonly<Record<string, 'text' | 'numeric'>>;
  readonly keyOf: (claim: C) => Readonly<Record<string, string>>;
}

/** What an update may set, as `new.…`. */
interface ClaimValues {
  readonly message?: unknown;
  readonly failures?: number;
  readonly due_at?: number | null;
  readonly last_error?: string | null;
  readonly done_at?: number;
}

/** Returns false when the claim has expired and was taken over. */
type UpdateClaim<C extends TaskClaim> = (claim: C, values: ClaimValues) => Promise<boolean>;

/** Tasks that `bringForward` changes at a time. */
const MAX_AT_ONCE = 10_000;

/**
 * Makes tasks due that are due later than any delay can be: a clock that was ahead has scheduled them.
 *
 * @param late.which condition of the table's index of `next_at`; its parameters begin with `$3`
 */
export async function bringForward<C extends TaskClaim>(
  pool: Pool,
  { name, key }: TaskTable<C>,
  late: {
    readonly which: string;
    readonly params?: readonly string[];
    readonly now: number;
    readonly maxDelayMs: number;
  },
): Promise<void> {
  const { which, params = [], now, maxDelayMs } = late;
  const columns = Object.keys(key);
  const sql = `WITH late AS MATERIALIZED (
      SELECT ${columns.join(', ')} FROM ${name} WHERE ${which} AND next_at > $2
      LIMIT ${MAX_AT_ONCE} FOR UPDATE SKIP LOCKED)
    UPDATE ${name} AS stored SET next_at = $1 FROM late
    WHERE ${columns.map((column) => `stored.${column} = late.${column}`).join(' AND ')}`;
  await pool.query(sql, [now, now + maxDelayMs, ...params]);
}

/** Returns an update of claimed tasks. Claims that are updated within moments of each other share a statement. */
export function createClaimUpdate<C extends TaskClaim>(
  pool: Pool,
  table: TaskTable<C>,
  set: string,
): UpdateClaim<C> {
  const sql = updateSql(table, set);
  const update = inBatches<{ readonly claim: C; readonly values: ClaimValues }, boolean>(
    async (updates) => {
      const rows = updates.map(({ claim, values }, index) => ({
        ...values,
        ...table.keyOf(claim),
        next_at: claim.next_at,
        index,
      }));
      const held = await sqlRows(
        pool,
        z.object({ index: z.number() }),
        prepared(sql, [JSON.stringify(rows)]),
      );
      const indexes = new Set(held.map(({ index }) => index));
      return updates.map((_, index) => indexes.has(index));
    },
    { most: 16, failsAll: isPostgresUnavailable },
  );
  return (claim, values) => update({ claim, values });
}

/**
 * Rows are locked in the order of their keys, as by all statements that wait for several rows: those that meet wait instead of
 * deadlocking.
 */
function updateSql<C extends TaskClaim>({ name, key }: TaskTable<C>, set: string): string {
  const columns = Object.keys(key);
  const typed = Object.entries(key).map(([column, type]) => `${column} ${type}`);
  return `UPDATE ${name} AS stored SET ${set}
    FROM (SELECT new.* FROM jsonb_to_recordset($1) AS new (${typed.join(', ')}, next_at bigint, index integer,
        message jsonb, failures integer, due_at bigint, last_error text, done_at bigint)
      JOIN ${name} AS held USING (${columns.join(', ')}, next_at)
      ORDER BY ${columns.map((column) => `new.${column}`).join(', ')} FOR UPDATE OF held) AS new
    WHERE ${columns.map((column) => `stored.${column} = new.${column}`).join(' AND ')}
    RETURNING new.index`;
}
