import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';

import { decideOwner, decideWebhook } from '../../../../projections/webhooks/decider.ts';
import type {
  WebhookChange,
  WebhookCommand,
  WebhooksState,
} from '../../../../projections/webhooks/decider.ts';
import type { Webhook } from '../../../../projections/webhooks/queries.ts';
import type { CommandOf } from '../../../../schemas/messages/commands.ts';

const AT = 1_700_000_000_000;
const OWNER = 7;
const NEW = 42;
const DELIVERY = '5f0f7f3e-3c36-4b59-9f0e-6f9a3c1d2e4b';

const command = <T extends WebhookCommand['type']>(type: T, body: CommandOf<T>['body']) =>
  ({
    v: 1,
    id: 'c1',
    issued_at: AT,
    actor: `user:${OWNER}`,
    request_hash: null,
    type,
    body,
  }) as WebhookCommand;
const any = { token: '', address: '', price_above: '', price_below: '' } as const;

const webhook: Webhook = {
  id: 5,
  user_id: OWNER,
  name: 'mine',
  url: 'https://a.test/hook',
  events: ['transfer.created'],
  status: 'active',
  created_at: 1,
  updated_at: 2,
  disabled_at: null,
  disabled_reason: null,
  activation: 5,
  secret: 'sealed 1',
  previous_secret: null,
  previous_until: null,
  from_block: 9,
  subscriptions: [{ id: 5000, ...any }],
};
const known = (rest: Partial<Webhook> = {}): WebhooksState => ({
  webhook: { ...webhook, ...rest },
  owned: 1,
});
const disabled = { status: 'disabled', disabled_at: 3, disabled_reason: 'ten died' } as const;

/** Twice, as a replay must decide the same. */
function decided(state: WebhooksState, asked: WebhookCommand) {
  const once = decideWebhook(structuredClone(state), structuredClone(asked), NEW);
  expect(decideWebhook(structuredClone(state), structuredClone(asked), NEW)).toEqual(once);
  return once;
}
/** What a command makes of the columns of the webhook. */
function columnsAfter(state: WebhooksState, asked: WebhookCommand): unknown {
  const { outcome, changes } = decided(state, asked);
  expect(outcome.accepted).toBe(true);
  return changes.flatMap((change) => (change.type === 'webhook.changed' ? [change.columns] : []))[0];
}
const update = (body: Omit<CommandOf<'webhook.update'>['body'], 'user_id' | 'webhook_id'>): WebhookCommand =>
  command('webhook.update', { user_id: OWNER, webhook_id: 5, ...body });

describe('a created webhook', () => {
  const create = (most = 100): WebhookCommand =>
    command('webhook.create', {
      user_id: OWNER,
      name: 'new',
      url: 'https://b.test/',
      events: ['price.threshold', 'token.launched'],
      subscriptions: [any, { ...any, price_above: '1.50' }],
      secret: 'sealed',
      from_block: -1,
      most,
    });

  it('derives its id and those of its subscriptions from the command', () => {
    const { outcome, changes } = decided({ webhook: null, owned: 0 }, create());
    const row = {
      id: NEW,
      user_id: OWNER,
      name: 'new',
      url: 'https://b.test/',
      events: ['price.threshold', 'token.launched'],
      status: 'active',
      created_at: AT,
      updated_at: AT,
      disabled_at: null,
      disabled_reason: null,
      activation: NEW,
      secret: 'sealed',
      previous_secret: null,
      previous_until: null,
      from_block: -1,
    };
    const subscriptions = [
      { id: 42_000, ...any },
      { id: 42_001, ...any, price_above: '1.50' },
    ];
    expect(changes).toEqual([
      { type: 'webhook.added', webhook: row },
      { type: 'subscriptions.set', webhookId: NEW, subscriptions },
    ]);
    const { previous_secret: _previous, ...shown } = row;
    expect(outcome).toEqual({ accepted: true, result: { ...shown, subscriptions } });
  });

  it('is limited to the number in the command', () => {
    expect(decided({ webhook: null, owned: 2 }, create(3)).outcome.accepted).toBe(true);
    const { outcome, changes } = decided({ webhook: null, owned: 3 }, create(3));
    expect([outcome, changes]).toEqual([
      { accepted: false, result: { code: 'CONFLICT', detail: expect.stringContaining('3 webhooks') } },
      [],
    ]);
  });
});

describe('a change', () => {
  it('changes the named fields only', () => {
    expect(columnsAfter(known(), update({ name: 'n' }))).toEqual({ name: 'n', updated_at: AT });
    const { outcome, changes } = decided(
      known(),
      update({ url: 'https://c.test/', events: ['token.launched'] }),
    );
    expect(changes).toHaveLength(1);
    const { secret: _secret, previous_secret: _previous, ...rest } = webhook;
    expect(outcome.result).toEqual({
      ...rest,
      url: 'https://c.test/',
      events: ['token.launched'],
      updated_at: AT,
    });
  });

  it('replaces the whole set of subscriptions', () => {
    for (const sent of [[], [any, any]]) {
      const { outcome, changes } = decided(known(), update({ subscriptions: sent }));
      const subscriptions = sent.map((one, i) => ({ id: NEW * 1000 + i, ...one }));
      expect(changes[1]).toEqual({ type: 'subscriptions.set', webhookId: 5, subscriptions });
      expect(outcome.result['subscriptions']).toEqual(subscriptions);
    }
  });

  const enabled = { disabled_at: null, disabled_reason: null, updated_at: AT };
  const byOwner = {
    status: 'disabled',
    disabled_at: AT,
    disabled_reason: 'Disabled by its owner.',
    updated_at: AT,
  };
  it.each([
    ['active', {}, { status: 'active', activation: NEW, ...enabled }],
    ['active', { status: 'paused' }, { status: 'active', activation: NEW, ...enabled }],
    ['active', disabled, { status: 'active', activation: NEW, ...enabled }],
    ['paused', {}, { status: 'paused', ...enabled }],
    ['paused', disabled, { status: 'paused', ...enabled }],
    ['disabled', {}, byOwner],
    ['disabled', { status: 'paused' }, byOwner],
    // When and why it was disabled stays.
    ['disabled', disabled, { updated_at: AT }],
  ] as const)('to %s of %j', (status, from, expected) => {
    expect(columnsAfter(known(from), update({ status }))).toEqual(expected);
  });
});

describe('a new secret', () => {
  const rotate = (grace_seconds: number): WebhookCommand =>
    command('webhook.rotate-secret', { user_id: OWNER, webhook_id: 5, secret: 'sealed 2', grace_seconds });

  it('replaces the previous one at once', () => {
    expect(columnsAfter(known({ previous_secret: 'sealed 0', previous_until: 9 }), rotate(0))).toEqual({
      secret: 'sealed 2',
      previous_secret: null,
      previous_until: null,
      updated_at: AT,
    });
  });

  it('or signs beside it for the grace period, replacing the one before that', () => {
    const state = known({ previous_secret: 'sealed 0', previous_until: 9 });
    expect(columnsAfter(state, rotate(60))).toEqual({
      secret: 'sealed 2',
      previous_secret: 'sealed 1',
      previous_until: AT + 60_000,
      updated_at: AT,
    });
    expect(decided(state, rotate(60)).outcome.result).toEqual({
      id: 5,
      secret: 'sealed 2',
      rotated_at: AT,
      previous_until: AT + 60_000,
    });
  });
});

describe('the dispatcher', () => {
  const of = { user_id: OWNER, webhook_id: 5 };
  const request = { command_offset: NEW - 1, webhook_id: 5, issued_at: AT };

  it.each([
    [
      command('webhook.test', { ...of, delivery_id: DELIVERY }),
      { ...request, kind: 'test', delivery_id: DELIVERY },
    ],
    [
      command('delivery.retry', { ...of, delivery_id: DELIVERY }),
      { ...request, kind: 'retry', delivery_id: DELIVERY },
    ],
    [command('webhook.delete', of), { ...request, kind: 'delete', delivery_id: null }],
  ] as const)('is asked by %o', (asked, expected) => {
    for (const state of [known(), known(disabled), known({ status: 'paused' })]) {
      const { outcome, changes } = decided(state, asked);
      expect(outcome.accepted).toBe(true);
      expect(changes.at(-1)).toEqual({ type: 'dispatch.requested', request: expected });
    }
  });

  it('keeps the answer to a request that retries several deliveries', () => {
    const answer = { retried: [DELIVERY], remaining: 3 };
    const { outcome } = decided(known(), command('delivery.retry', { ...of, delivery_id: DELIVERY, answer }));
    expect(outcome).toEqual({ accepted: true, result: { delivery_id: DELIVERY, ...answer } });
  });

  it('disables a webhook only in the activation that it names', () => {
    const asked = command('webhook.disable', { webhook_id: 5, activation: 5, reason: 'Ten died.' });
    expect(columnsAfter(known(), asked)).toEqual({
      status: 'disabled',
      disabled_at: AT,
      disabled_reason: 'Ten died.',
      updated_at: AT,
    });
    for (const other of [known({ activation: 6 }), known({ status: 'paused' }), known(disabled)]) {
      const { outcome, changes } = decided(other, asked);
      expect([outcome.accepted, outcome.result['code'], changes]).toEqual([false, 'CONFLICT', []]);
    }
    expect(decided({ webhook: null, owned: 0 }, asked).outcome.result['code']).toBe('NOT_FOUND');
  });
});

test('answers NOT_FOUND to every command on a webhook of another user or of none', () => {
  const of = { user_id: OWNER + 1, webhook_id: 5 };
  const asked: WebhookCommand[] = [
    command('webhook.update', { ...of, name: 'n' }),
    command('webhook.delete', of),
    command('webhook.rotate-secret', { ...of, secret: 's', grace_seconds: 0 }),
    command('webhook.test', { ...of, delivery_id: DELIVERY }),
    command('delivery.retry', { ...of, delivery_id: DELIVERY }),
  ];
  for (const one of asked) {
    for (const state of [known(), { webhook: null, owned: 0 }]) {
      const { outcome, changes } = decided(state, one);
      const result = { code: 'NOT_FOUND', detail: 'Not found.' };
      expect([outcome, changes]).toEqual([{ accepted: false, result }, []]);
    }
  }
});

/** The state that a webhook has after the changes of a decision; null: it is gone. */
function after(state: Webhook | null, changes: readonly WebhookChange[]): Webhook | null {
  let found = state;
  for (const change of changes) {
    if (change.type === 'webhook.removed') found = null;
    if (change.type === 'webhook.changed' && found !== null) found = { ...found, ...change.columns };
    if (change.type === 'subscriptions.set' && found !== null)
      found = { ...found, subscriptions: [...change.subscriptions] };
  }
  return found;
}

test('after any commands in any order, a webhook is disabled with a reason or not at all, and stale disables are refused', () => {
  const of = { user_id: OWNER, webhook_id: 5 };
  const anyCommand = fc.oneof(
    fc
      .constantFrom('active' as const, 'paused' as const, 'disabled' as const)
      .map((status) => command('webhook.update', { ...of, status })),
    fc.constant(command('webhook.update', { ...of, name: 'other' })),
    fc
      .integer({ min: 0, max: 2 })
      .map((grace_seconds) => command('webhook.rotate-secret', { ...of, secret: 's', grace_seconds })),
    fc
      .integer({ min: 0, max: 30 })
      .map((activation) => command('webhook.disable', { webhook_id: 5, activation, reason: 'r' })),
  );
  fc.assert(
    fc.property(fc.array(anyCommand, { maxLength: 20 }), (asked) => {
      let state: Webhook | null = webhook;
      for (const [i, one] of asked.entries()) {
        const before: Webhook = state ?? webhook;
        const newId = 6 + i;
        const { outcome, changes } = decideWebhook({ webhook: before, owned: 1 }, one, newId);
        state = after(before, changes);
        if (state === null) throw new Error('nothing deletes it');
        expect([state.disabled_at !== null, state.disabled_reason !== null]).toEqual(
          Array(2).fill(state.status === 'disabled'),
        );
        expect(state.previous_secret === null).toBe(state.previous_until === null);
        if (one.type === 'webhook.disable') {
          expect(outcome.accepted).toBe(
            before.status === 'active' && before.activation === one.body.activation,
          );
        }
        const isActivated = one.type === 'webhook.update' && one.body.status === 'active';
        expect(state.activation).toBe(isActivated ? newId : before.activation);
      }
    }),
  );
});

describe('an operator’s decision about a user', () => {
  const setOwnerDisabled = (userId: number, isDisabled: boolean) =>
    decideOwner(
      {
        v: 1,
        id: 'c2',
        issued_at: AT,
        actor: 'operator',
        request_hash: null,
        type: 'user.disable',
        body: { user_id: userId, is_disabled: isDisabled },
      },
      NEW,
    );

  it('applies to the webhooks of the user', () => {
    const outcome = { accepted: true, result: { id: OWNER } };
    expect(setOwnerDisabled(OWNER, true)).toEqual({
      outcome,
      changes: [{ type: 'owner.disabled', userId: OWNER }],
    });
    expect(setOwnerDisabled(OWNER, false)).toEqual({
      outcome,
      changes: [{ type: 'owner.enabled', userId: OWNER }],
    });
  });

  it('is refused for an id that a later command may create', () => {
    expect(setOwnerDisabled(NEW - 1, true).changes).toHaveLength(1);
    expect(setOwnerDisabled(NEW, true)).toMatchObject({ outcome: { accepted: false }, changes: [] });
  });
});
