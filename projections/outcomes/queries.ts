import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { commandOutcome } from '../../schemas/command-outcome.ts';
import type { CommandOutcome } from '../../schemas/command-outcome.ts';
import { AppError } from '../../schemas/errors.ts';
import type { CommandType } from '../../schemas/messages/commands.ts';
import type { ServedBuilds } from '../served.ts';

/**
 * Read side of the outcomes of commands: every projection of commands stores the outcomes of those that it decides.
 * `schema` is that of the projection's served build: `served.schema(deciders[type])`.
 */

/** The projection that decides a command. */
export const deciders = {
  'user.create': 'accounts',
  'user.set-password': 'accounts',
  'user.disable': 'accounts',
  'session.open': 'accounts',
  'session.close': 'accounts',
  'api-key.create': 'accounts',
  'api-key.delete': 'accounts',
  'sync.put': 'sync',
  'webhook.create': 'webhooks',
  'webhook.update': 'webhooks',
  'webhook.delete': 'webhooks',
  'webhook.rotate-secret': 'webhooks',
  'webhook.test': 'webhooks',
  'delivery.retry': 'webhooks',
  'webhook.disable': 'webhooks',
  'catalogue.part': 'catalogue',
  'catalogue.import': 'catalogue',
  'wallet.register': 'catalogue',
  'wallet.update-activity': 'catalogue',
  'domain.report': 'catalogue',
  'report.review': 'catalogue',
} as const satisfies Readonly<Record<CommandType, string>>;

/** The outcome of a command; null while it is undecided, and after 48 h. */
export async function findOutcome(
  db: Sql,
  served: Pick<ServedBuilds, 'schema'>,
  id: string,
  type: CommandType,
): Promise<CommandOutcome | null> {
  const schema = schemaOf(served, deciders[type]);
  return schema === null ? null : await outcomeById(db, schema, id);
}

/** Null before the projection's first build: a command appended by then is decided once there is one. */
function schemaOf(served: Pick<ServedBuilds, 'schema'>, projection: string): string | null {
  try {
    return served.schema(projection);
  } catch (error) {
    if (error instanceof AppError && error.code === 'READ_MODEL_NOT_BUILT') return null;
    throw error;
  }
}

/** The outcome of a command in one projection's schema. */
export async function outcomeById(db: Sql, schema: string, id: string): Promise<CommandOutcome | null> {
  const [outcome] = await sqlRows(
    db,
    commandOutcome,
    `SELECT accepted, request_hash, result FROM ${schema}.command_outcomes WHERE id = $1`,
    [id],
  );
  return outcome ?? null;
}
