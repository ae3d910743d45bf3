import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import type { CommandType } from '../../schemas/messages/commands.ts';

/**
 * Read side of what became of commands: every projection of commands has a table of the outcomes of its own ones.
 * `schema` is that projection's served build's: `served.schema(deciders[type])`.
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

const refusal = z.looseObject({ code: z.enum(['NOT_FOUND', 'CONFLICT']), detail: z.string() });
const outcomeRow = z.discriminatedUnion('accepted', [
  z.object({
    accepted: z.literal(true),
    request_hash: z.string().nullable(),
    result: z.record(z.string(), z.unknown()),
  }),
  z.object({ accepted: z.literal(false), request_hash: z.string().nullable(), result: refusal }),
]);
export type CommandOutcome = z.infer<typeof outcomeRow>;

/** What became of a command; null while it is not decided, and 48 h later. */
export async function outcomeById(db: Sql, schema: string, id: string): Promise<CommandOutcome | null> {
  const [outcome] = await sqlRows(
    db,
    outcomeRow,
    `SELECT accepted, request_hash, result FROM ${schema}.command_outcomes WHERE id = $1`,
    [id],
  );
  return outcome ?? null;
}
