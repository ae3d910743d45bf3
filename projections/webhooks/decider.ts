import type { CommandOf } from '../../schemas/messages/commands.ts';
import { accept, refuse } from '../commands.ts';
import type { Decision } from '../commands.ts';
import type { Subscription, Webhook, WebhookRecord, WebhookRequest, WebhookRow } from './queries.ts';

export type WebhookCommand = CommandOf<
  | 'webhook.create'
  | 'webhook.update'
  | 'webhook.delete'
  | 'webhook.rotate-secret'
  | 'webhook.test'
  | 'delivery.retry'
  | 'webhook.disable'
>;

export type WebhookChange =
  | { readonly type: 'webhook.added'; readonly webhook: WebhookRow }
  | { readonly type: 'webhook.changed'; readonly id: number; readonly columns: Partial<WebhookRow> }
  | { readonly type: 'webhook.removed'; readonly id: number }
  | {
      readonly type: 'subscriptions.set';
      readonly webhookId: number;
      readonly subscriptions: readonly Subscription[];
    }
  | { readonly type: 'dispatch.requested'; readonly request: WebhookRequest }
  | { readonly type: 'owner.disabled' | 'owner.enabled'; readonly userId: number };

export interface WebhooksState {
  /** The webhook that the command names, of any owner; null: none exists. */
  readonly webhook: Webhook | null;
  /** How many webhooks the user has. */
  readonly owned: number;
}

/** Decides a command about a webhook. A command that creates or changes one results in the new webhook. */
export function decideWebhook(
  { webhook, owned }: WebhooksState,
  command: WebhookCommand,
  newId: number,
): Decision<WebhookChange> {
  if (command.type === 'webhook.create') return create(command, owned, newId);
  if (webhook === null) return refuse('NOT_FOUND', 'Not found.');
  if (command.type === 'webhook.disable') return disable(webhook, command);
  // Another user's webhook is answered like one that does not exist.
  if (webhook.user_id !== command.body.user_id) return refuse('NOT_FOUND', 'Not found.');
  const { id } = webhook;
  const at = command.issued_at;
  const request = (kind: WebhookRequest['kind'], deliveryId: string | null): WebhookChange => ({
    type: 'dispatch.requested',
    request: { command_offset: newId - 1, kind, webhook_id: id, delivery_id: deliveryId, issued_at: at },
  });
  switch (command.type) {
    case 'webhook.update':
      return update(webhook, command, newId);
    case 'webhook.delete':
      return accept({ id }, { type: 'webhook.removed', id }, request('delete', null));
    case 'webhook.rotate-secret':
      return rotate(webhook, command);
    case 'webhook.test':
      return accept({ delivery_id: command.body.delivery_id }, request('test', command.body.delivery_id));
    case 'delivery.retry':
      return accept(
        { delivery_id: command.body.delivery_id, ...command.body.answer },
        request('retry', command.body.delivery_id),
      );
  }
}

/**
 * Applies an operator's decision about a user to its webhooks. This projection does not know the users: an id that no user
 * can have yet is refused.
 */
export function decideOwner(
  { body: { user_id: userId, is_disabled: isDisabled } }: CommandOf<'user.disable'>,
  newId: number,
): Decision<WebhookChange> {
  if (userId >= newId) return refuse('NOT_FOUND', 'No such user.');
  return accept({ id: userId }, { type: isDisabled ? 'owner.disabled' : 'owner.enabled', userId });
}

function create(
  { body, issued_at: at }: CommandOf<'webhook.create'>,
  owned: number,
  newId: number,
): Decision<WebhookChange> {
  const { most, subscriptions: sent, ...asked } = body;
  if (owned >= most) return refuse('CONFLICT', `The limit of ${most} webhooks per user is reached.`);
  const webhook: WebhookRow = {
    id: newId,
    ...asked,
    status: 'active',
    created_at: at,
    updated_at: at,
    disabled_at: null,
    disabled_reason: null,
    activation: newId,
    previous_secret: null,
    previous_until: null,
  };
  const subscriptions = withIds(sent, newId);
  return accept(
    { ...recordOf({ ...webhook, subscriptions }), secret: webhook.secret },
    { type: 'webhook.added', webhook },
    { type: 'subscriptions.set', webhookId: newId, subscriptions },
  );
}

function update(
  webhook: Webhook,
  { body, issued_at: at }: CommandOf<'webhook.update'>,
  newId: number,
): Decision<WebhookChange> {
  const { user_id: _user, webhook_id: id, subscriptions: sent, status, ...asked } = body;
  const columns = { ...asked, ...statusChange(webhook, status, at, newId), updated_at: at };
  const subscriptions = sent === undefined ? webhook.subscriptions : withIds(sent, newId);
  const changes: WebhookChange[] = [{ type: 'webhook.changed', id, columns }];
  if (sent !== undefined) changes.push({ type: 'subscriptions.set', webhookId: id, subscriptions });
  return accept(recordOf({ ...webhook, ...columns, subscriptions }), ...changes);
}

/** Activation, from any status, resets the count of dead deliveries. A webhook that is disabled already keeps time and reason. */
function statusChange(
  webhook: Webhook,
  status: Webhook['status'] | undefined,
  at: number,
  newId: number,
): Partial<WebhookRow> {
  switch (status) {
    case undefined:
      return {};
    case 'active':
      return { status, activation: newId, disabled_at: null, disabled_reason: null };
    case 'paused':
      return { status, disabled_at: null, disabled_reason: null };
    case 'disabled':
      return webhook.status === status ? {} : disabled(at, 'Disabled by its owner.');
  }
}

function rotate(
  webhook: Webhook,
  { body, issued_at: at }: CommandOf<'webhook.rotate-secret'>,
): Decision<WebhookChange> {
  const { secret, grace_seconds: grace } = body;
  const until = grace === 0 ? null : at + grace * 1000;
  const columns = {
    secret,
    previous_secret: until === null ? null : webhook.secret,
    previous_until: until,
    updated_at: at,
  };
  return accept(
    { id: webhook.id, secret, rotated_at: at, previous_until: until },
    { type: 'webhook.changed', id: webhook.id, columns },
  );
}

function disable(
  { id, status, activation }: Webhook,
  { body, issued_at: at }: CommandOf<'webhook.disable'>,
): Decision<WebhookChange> {
  if (status !== 'active' || activation !== body.activation) {
    return refuse('CONFLICT', 'Its owner has changed its status since.');
  }
  return accept(
    { id },
    { type: 'webhook.changed', id, columns: { ...disabled(at, body.reason), updated_at: at } },
  );
}

function recordOf(webhook: Webhook): WebhookRecord {
  const { secret: _secret, previous_secret: _previous, ...record } = webhook;
  return record;
}

const disabled = (at: number, reason: string): Partial<WebhookRow> => ({
  status: 'disabled',
  disabled_at: at,
  disabled_reason: reason,
});

const withIds = (sent: CommandOf<'webhook.create'>['body']['subscriptions'], newId: number): Subscription[] =>
  sent.map((subscription, index) => ({ id: newId * 1000 + index, ...subscription }));
