import { readFileSync } from 'node:fs';

import { prepared } from '../infra/postgres/client.ts';
import type { PoolClient } from '../infra/postgres/client.ts';
import { DECIDED_CHANNEL } from '../schemas/messages/commands.ts';
import type { Command, CommandOf, CommandType } from '../schemas/messages/commands.ts';
import { topics } from '../schemas/topics.ts';
import type { PostgresProjection } from './define.ts';
import { deciders } from './outcomes/queries.ts';

/**
 * Shared by the projections of `commands`. Each decides the commands of its own aggregates once, in log order, and stores their
 * outcomes. Of other commands it applies only those in `alsoApplies`.
 */

/**
 * What a decider returns: the outcome that is kept, and the changes that the transaction makes. Deciders are pure:
 * state and command in, decision out. A rule released for a `v` never changes, so that a replay decides the same.
 */
export interface Decision<C> {
  readonly outcome: Outcome;
  /** Empty when refused. */
  readonly changes: readonly C[];
}

export type Outcome =
  | { readonly accepted: true; readonly result: Readonly<Record<string, unknown>> }
  | {
      readonly accepted: false;
      readonly result: {
        readonly code: RefusalCode;
        readonly detail: string;
        readonly [more: string]: unknown;
      };
    };

export type RefusalCode = 'NOT_FOUND' | 'CONFLICT';

export function accept<C>(result: Readonly<Record<string, unknown>>, ...changes: C[]): Decision<C> {
  return { outcome: { accepted: true, result }, changes };
}

export function refuse<C>(
  code: RefusalCode,
  detail: string,
  more: Readonly<Record<string, unknown>> = {},
): Decision<C> {
  return { outcome: { accepted: false, result: { ...more, code, detail } }, changes: [] };
}

/** How long an outcome is stored, in milliseconds of the log's time. */
export const OUTCOME_LIFETIME_MS = 48 * 3_600_000;

/** The table of outcomes: the end of the DDL of every projection of commands. */
const OUTCOMES_DDL = readFileSync(new URL('outcomes/table.sql', import.meta.url), 'utf8');

/** The commands that a projection decides. */
type OwnCommand<P> = CommandOf<
  { [T in CommandType]: (typeof deciders)[T] extends P ? T : never }[CommandType]
>;

/**
 * Creates a projection of `commands`, with a table of outcomes. Only the projection that decides a command notifies the request
 * that waits for it.
 *
 * @param options.ddl the text of its table.sql
 * @param options.decide reads the state of the command's aggregate, decides, and changes the tables; `newId` is the id of a
 *   new row
 * @param options.expired a statement that deletes the rows which have expired at $2 (unix milliseconds), before each command
 * @param options.alsoApplies commands of another projection that also change something here. Their outcome is stored here only
 *   to deduplicate by id, because the other projection may have refused them.
 */
export function commandProjection<P extends (typeof deciders)[CommandType], H extends CommandType = never>({
  name,
  version,
  ddl,
  alsoApplies = [],
  expired,
  fromSnapshot,
  decide,
}: {
  readonly name: P;
  readonly version: number;
  readonly ddl: string;
  readonly alsoApplies?: readonly H[];
  readonly expired?: (schema: string) => string;
  readonly fromSnapshot?: PostgresProjection<Command>['fromSnapshot'];
  readonly decide: (
    tx: PoolClient,
    schema: string,
    command: OwnCommand<P> | CommandOf<H>,
    newId: number,
  ) => Promise<Outcome>;
}): PostgresProjection<Command> {
  const types: readonly CommandType[] = alsoApplies;
  const isOwn = ({ type }: Command): boolean => deciders[type] === name;
  const isRelevant = (command: Command): command is OwnCommand<P> | CommandOf<H> =>
    isOwn(command) || types.includes(command.type);
  return {
    kind: 'postgres',
    name,
    version,
    topic: topics.commands,
    ddl: `${ddl}\n${OUTCOMES_DDL}`,
    isSnapshotted: true,
    ...(fromSnapshot === undefined ? {} : { fromSnapshot }),
    notify: { channel: DECIDED_CHANNEL, payload: (command) => (isOwn(command) ? command.id : null) },
    isRelevant,
    async fold(tx, command, { offset, timestamp, schema }) {
      if (!isRelevant(command)) return;
      // The earlier of the two times: a host whose clock is fast must not delete rows that have not expired.
      const at = Math.min(command.issued_at, timestamp);
      if (await isKnown(tx, schema, { id: command.id, at, expired: expired?.(schema) })) return;
      const { accepted, result } = await decide(tx, schema, command, offset + 1);
      await insertRow(tx, `${schema}.command_outcomes`, {
        id: command.id,
        type: command.type,
        issued_at: command.issued_at,
        request_hash: command.request_hash,
        accepted,
        result: JSON.stringify(result),
      });
    },
  };
}

/** Deletes expired rows and looks for an outcome in one statement, because each round trip delays all later commands. */
async function isKnown(
  tx: PoolClient,
  schema: string,
  { id, at, expired }: { readonly id: string; readonly at: number; readonly expired: string | undefined },
): Promise<boolean> {
  const since = `$2::bigint - ${OUTCOME_LIFETIME_MS}`;
  const sql = `WITH ${expired === undefined ? '' : `expired AS (${expired}),`}
      forgotten AS (DELETE FROM ${schema}.command_outcomes WHERE issued_at <= ${since})
    SELECT 1 FROM ${schema}.command_outcomes WHERE id = $1 AND issued_at > ${since}`;
  const { rowCount } = await tx.query(prepared(sql, [id, at]));
  return rowCount !== 0;
}

/** Columns are the row's own keys, which the row types name. */
export async function insertRow(tx: PoolClient, table: string, row: object): Promise<void> {
  const columns = Object.keys(row);
  const places = columns.map((_, index) => `$${index + 1}`);
  const sql = `INSERT INTO ${table} (${columns.join(', ')}) VALUES (${places.join(', ')})`;
  await tx.query(prepared(sql, Object.values(row)));
}
