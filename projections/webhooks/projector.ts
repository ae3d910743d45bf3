import { countOf } from '../../infra/postgres/client.ts';
import type { PoolClient } from '../../infra/postgres/client.ts';
import type { CommandOf } from '../../schemas/messages/commands.ts';
import { OUTCOME_LIFETIME_MS, commandProjection, insertRow } from '../commands.ts';
import type { Outcome } from '../commands.ts';
import { tableSql } from '../define.ts';
import { decideOwner, decideWebhook } from './decider.ts';
import type { WebhookChange, WebhookCommand, WebhooksState } from './decider.ts';
import { webhookById } from './queries.ts';

/** Webhooks, their subscriptions, and requests to the dispatcher. */
export const webhooks = commandProjection({
  name: 'webhooks',
  version: 3,
  ddl: tableSql(import.meta.url),
  alsoApplies: ['user.disable'],
  expired: (schema) =>
    `DELETE FROM ${schema}.webhook_requests
     WHERE kind <> 'delete' AND issued_at <= $2::bigint - ${OUTCOME_LIFETIME_MS}`,
  fromSnapshot: { 2: { renamed: { shut_out_users: 'disabled_owners' } } },
  decide: decideAndApply,
});

async function decideAndApply(
  tx: PoolClient,
  schema: string,
  command: WebhookCommand | CommandOf<'user.disable'>,
  newId: number,
): Promise<Outcome> {
  const { outcome, changes } =
    command.type === 'user.disable'
      ? decideOwner(command, newId)
      : decideWebhook(await stateOf(tx, schema, command), command, newId);
  for (const change of changes) await apply(tx, schema, change);
  return outcome;
}

/** The state that a command is decided from. */
async function stateOf(
  tx: PoolClient,
  schema: string,
  { type, body }: WebhookCommand,
): Promise<WebhooksState> {
  if (type !== 'webhook.create') return { webhook: await webhookById(tx, schema, body.webhook_id), owned: 0 };
  const owned = `SELECT count(*) AS n FROM ${schema}.webhooks WHERE user_id = $1`;
  return { webhook: null, owned: await countOf(tx, owned, [body.user_id]) };
}

async function apply(tx: PoolClient, schema: string, change: WebhookChange): Promise<void> {
  switch (change.type) {
    case 'webhook.added':
      await insertRow(tx, `${schema}.webhooks`, change.webhook);
      return;
    case 'webhook.changed': {
      const columns = Object.entries(change.columns);
      const assignments = columns.map(([column], index) => `${column} = $${index + 2}`);
      await tx.query(`UPDATE ${schema}.webhooks SET ${assignments.join(', ')} WHERE id = $1`, [
        change.id,
        ...columns.map(([, value]) => value),
      ]);
      return;
    }
    case 'webhook.removed':
      await tx.query(`DELETE FROM ${schema}.webhooks WHERE id = $1`, [change.id]);
      // Outcomes hold its data, so they are cleared: a repeated create command is answered 404, and creates none.
      await tx.query(
        `UPDATE ${schema}.command_outcomes SET accepted = false, result = $2
         WHERE type IN ('webhook.create', 'webhook.update', 'webhook.rotate-secret') AND result->>'id' = $1`,
        [String(change.id), JSON.stringify({ code: 'NOT_FOUND', detail: 'The webhook was deleted.' })],
      );
      return;
    case 'subscriptions.set': {
      const table = `${schema}.webhook_subscriptions`;
      await tx.query(`DELETE FROM ${table} WHERE webhook_id = $1`, [change.webhookId]);
      const rows = change.subscriptions.map((row) => ({ ...row, webhook_id: change.webhookId }));
      await tx.query(
        `INSERT INTO ${table} SELECT * FROM jsonb_populate_recordset(NULL::${table}, $1::jsonb)`,
        [JSON.stringify(rows)],
      );
      return;
    }
    case 'owner.disabled':
      await tx.query(`INSERT INTO ${schema}.disabled_owners (user_id) VALUES ($1) ON CONFLICT DO NOTHING`, [
        change.userId,
      ]);
      return;
    case 'owner.enabled':
      await tx.query(`DELETE FROM ${schema}.disabled_owners WHERE user_id = $1`, [change.userId]);
      return;
    case 'dispatch.requested':
      await insertRow(tx, `${schema}.webhook_requests`, change.request);
      return;
  }
}
