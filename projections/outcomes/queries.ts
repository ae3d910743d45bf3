import { z } from 'zod';

import { prepared, sqlRows } from '../../infra/postgres/client.ts';
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
  'api-key.update': 'accounts',
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
  'quarantine.retry': 'accounts',
  'quarantine.skip': 'accounts',
  'rebuild.start': 'accounts',
  'rebuild.abort': 'accounts',
  'verify.start': 'accounts',
} as const satisfies Readonly<Record<CommandType, string>>;

const outcomeRow = z.intersection(z.object({ id: z.string() }), commandOutcome);

/** The outcomes of commands by id, in one statement; those undecided or older than 48 h are missing. */
export async function findOutcomes(
  db: Sql,
  served: Pick<ServedBuilds, 'schema'>,
  commands: readonly { readonly id: string; readonly type: CommandType }[],
): Promise<ReadonlyMap<string, CommandOutcome>> {
  const idsBySchema = new Map<string, string[]>();
  for (const { id, type } of commands) {
    const schema = schemaOf(served, deciders[type]);
    if (schema !== null) idsBySchema.set(schema, [...(idsBySchema.get(schema) ?? []), id]);
  }
  if (idsBySchema.size === 0) return new Map();
  const selects = [...idsBySchema.keys()].map(
    (schema, index) =>
      `SELECT id, accepted, request_hash, result FROM ${schema}.command_outcomes WHERE id = ANY ($${index + 1})`,
  );
  const rows = await sqlRows(
    db,
    outcomeRow,
    prepared(selects.join(' UNION ALL '), [...idsBySchema.values()]),
  );
  return new Map(rows.map(({ id, ...outcome }) => [id, outcome]));
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
