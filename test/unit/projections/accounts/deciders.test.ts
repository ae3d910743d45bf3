import { describe, expect, it } from 'vitest';

import { decideApiKey } from '../../../../projections/accounts/api-keys.ts';
import type { ApiKeysState } from '../../../../projections/accounts/api-keys.ts';
import type { Decision } from '../../../../projections/commands.ts';
import { decideOperation } from '../../../../projections/accounts/operations.ts';
import type { OperationCommand } from '../../../../projections/accounts/operations.ts';
import { decideSession } from '../../../../projections/accounts/sessions.ts';
import type { SessionsState } from '../../../../projections/accounts/sessions.ts';
import { decideUser, loginKey } from '../../../../projections/accounts/users.ts';
import type { UsersState } from '../../../../projections/accounts/users.ts';
import type { Command, CommandOf } from '../../../../schemas/messages/commands.ts';

/** given a state, when a command is decided, this comes out; twice, as a replay must decide the same. */
function given<S, K extends Command, C>(
  decide: (state: S, command: K, newId: number) => Decision<C>,
  state: S,
) {
  return {
    when: (command: K) => ({
      accepted(expected: { result: unknown; changes: readonly unknown[] }) {
        for (const _ of [1, 2]) {
          const { outcome, changes } = decide(structuredClone(state), structuredClone(command), 42);
          expect(outcome).toEqual({ accepted: true, result: expected.result });
          expect(changes).toEqual(expected.changes);
        }
      },
      refused(code: string) {
        for (const _ of [1, 2]) {
          const { outcome, changes } = decide(structuredClone(state), structuredClone(command), 42);
          expect(outcome).toEqual({ accepted: false, result: { code, detail: expect.any(String) } });
          expect(changes).toEqual([]);
        }
      },
    }),
  };
}

const at = { v: 1, id: 'c1', issued_at: 1_700_000_000_000, actor: 'operator', request_hash: null } as const;
const password_hash = '$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA';
const hash = 'a'.repeat(64);

describe('users', () => {
  const create: CommandOf<'user.create'> = {
    ...at,
    type: 'user.create',
    body: { username: 'Alice', email: 'Alice@Example.org', password_hash, is_admin: true },
  };
  const state = (...taken: string[]): UsersState => ({ takenLogins: new Set(taken), userExists: false });

  it('are made with the id of their command', () => {
    given(decideUser, state())
      .when(create)
      .accepted({
        result: { id: 42, username: 'Alice', email: 'Alice@Example.org' },
        changes: [
          {
            type: 'user.added',
            user: {
              id: 42,
              username: 'Alice',
              email: 'Alice@Example.org',
              username_key: 'alice',
              email_key: 'alice@example.org',
              password_hash,
              is_admin: true,
              created_at: 1_700_000_000_000,
            },
          },
        ],
      });
  });

  it('share no login, be it a username or an e-mail address', () => {
    given(decideUser, state('alice')).when(create).refused('CONFLICT');
    given(decideUser, state('alice@example.org')).when(create).refused('CONFLICT');
  });

  it('are known by their login in any case and width', () => {
    expect(loginKey(' ＡLICE ')).toBe('alice');
  });

  it('get a new password', () => {
    const command: CommandOf<'user.set-password'> = {
      ...at,
      type: 'user.set-password',
      body: { user_id: 7, password_hash },
    };
    given(decideUser, { ...state(), userExists: true })
      .when(command)
      .accepted({
        result: { id: 7 },
        changes: [{ type: 'user.password-set', id: 7, passwordHash: password_hash }],
      });
    given(decideUser, state()).when(command).refused('NOT_FOUND');
  });

  it('are disabled at the time of the command, and enabled again', () => {
    const known = { ...state(), userExists: true };
    for (const [is_disabled, time] of [
      [true, 1_700_000_000_000],
      [false, null],
    ] as const) {
      const command: CommandOf<'user.disable'> = {
        ...at,
        type: 'user.disable',
        body: { user_id: 7, is_disabled },
      };
      given(decideUser, known)
        .when(command)
        .accepted({ result: { id: 7 }, changes: [{ type: 'user.disabled', id: 7, at: time }] });
      given(decideUser, state()).when(command).refused('NOT_FOUND');
    }
  });
});

describe('sessions', () => {
  const state = (change: Partial<SessionsState>): SessionsState => ({
    userExists: true,
    sessionExists: false,
    isPasswordCurrent: true,
    ...change,
  });
  const open: CommandOf<'session.open'> = {
    ...at,
    type: 'session.open',
    body: { user_id: 7, token_hash: hash, expires_at: 1_700_000_100_000 },
  };
  const close: CommandOf<'session.close'> = { ...at, type: 'session.close', body: { token_hash: hash } };

  it('open for users', () => {
    given(decideSession, state({}))
      .when(open)
      .accepted({
        result: { expires_at: 1_700_000_100_000 },
        changes: [
          {
            type: 'session.opened',
            session: {
              token_hash: hash,
              user_id: 7,
              created_at: 1_700_000_000_000,
              expires_at: 1_700_000_100_000,
            },
          },
        ],
      });
    given(decideSession, state({ userExists: false }))
      .when(open)
      .refused('NOT_FOUND');
    given(decideSession, state({ sessionExists: true }))
      .when(open)
      .refused('CONFLICT');
    given(decideSession, state({ isPasswordCurrent: false }))
      .when(open)
      .refused('CONFLICT');
  });

  it('close once', () => {
    given(decideSession, state({ sessionExists: true }))
      .when(close)
      .accepted({ result: {}, changes: [{ type: 'session.closed', tokenHash: hash }] });
    given(decideSession, state({})).when(close).refused('NOT_FOUND');
  });
});

describe('API keys', () => {
  const state = (change: Partial<ApiKeysState>): ApiKeysState => ({
    userExists: true,
    hashExists: false,
    key: null,
    ...change,
  });
  const body = {
    user_id: 7,
    name: 'k',
    key_hash: hash,
    prefix: 'tds_12345678',
    allowed_origins: ['https://a.test'],
    allowed_ips: [],
    rate_limit_per_hour: 5,
  };
  const create: CommandOf<'api-key.create'> = { ...at, type: 'api-key.create', body };
  const remove: CommandOf<'api-key.delete'> = {
    ...at,
    type: 'api-key.delete',
    body: { user_id: 7, key_id: 3 },
  };
  const kept = { id: 3, ...body, created_at: 1_600_000_000_000, expires_at: null };

  it('are made for users, and no two are the same', () => {
    const { user_id: _user, key_hash: _hash, ...shown } = body;
    given(decideApiKey, state({}))
      .when(create)
      .accepted({
        // Neither hash nor owner is part of what the outcome keeps.
        result: { id: 42, ...shown, created_at: 1_700_000_000_000, expires_at: null },
        changes: [
          {
            type: 'api-key.added',
            key: { id: 42, ...body, created_at: 1_700_000_000_000, expires_at: null },
          },
        ],
      });
    const { outcome } = decideApiKey(
      state({}),
      { ...create, body: { ...body, expires_at: 1_800_000_000_000 } },
      42,
    );
    expect(outcome.result['expires_at']).toBe(1_800_000_000_000);
    given(decideApiKey, state({ userExists: false }))
      .when(create)
      .refused('NOT_FOUND');
    given(decideApiKey, state({ hashExists: true }))
      .when(create)
      .refused('CONFLICT');
  });

  it('are deleted by their owner; to others they do not exist', () => {
    given(decideApiKey, state({ key: kept }))
      .when(remove)
      .accepted({ result: { id: 3 }, changes: [{ type: 'api-key.removed', id: 3 }] });
    given(decideApiKey, state({ key: { ...kept, user_id: 8 } }))
      .when(remove)
      .refused('NOT_FOUND');
    given(decideApiKey, state({})).when(remove).refused('NOT_FOUND');
  });

  it('are changed by their owner in the fields that are given', () => {
    const { user_id: _user, key_hash: _hash, ...shown } = kept;
    const changes = [
      {},
      { name: 'other', allowed_origins: [], rate_limit_per_hour: null },
      { allowed_ips: ['10.0.0.0/8'], expires_at: 1_800_000_000_000 },
    ];
    for (const change of changes) {
      const update: CommandOf<'api-key.update'> = {
        ...at,
        type: 'api-key.update',
        body: { user_id: 7, key_id: 3, ...change },
      };
      given(decideApiKey, state({ key: kept }))
        .when(update)
        .accepted({
          result: { ...shown, ...change },
          changes: [{ type: 'api-key.changed', key: { ...kept, ...change } }],
        });
      given(decideApiKey, state({ key: { ...kept, user_id: 8 } }))
        .when(update)
        .refused('NOT_FOUND');
      given(decideApiKey, state({})).when(update).refused('NOT_FOUND');
    }
  });
});

describe('operations', () => {
  const commands: readonly [OperationCommand, { subject: string; swap: boolean | null }][] = [
    [
      { ...at, type: 'quarantine.retry', body: { user_id: 7, entry_id: 'prices:0:7' } },
      { subject: 'prices:0:7', swap: null },
    ],
    [
      { ...at, type: 'quarantine.skip', body: { user_id: 7, entry_id: 'prices:0:7' } },
      { subject: 'prices:0:7', swap: null },
    ],
    [
      { ...at, type: 'rebuild.start', body: { user_id: 7, projection: 'tokens', swap: false } },
      { subject: 'tokens', swap: false },
    ],
    [
      { ...at, type: 'verify.start', body: { user_id: 7 } },
      { subject: 'all', swap: null },
    ],
    [
      { ...at, type: 'rebuild.abort', body: { user_id: 7, projection: 'tokens' } },
      { subject: 'tokens', swap: null },
    ],
  ];

  it.each(commands)('are accepted from admins only, with what to do: %o', (command, expected) => {
    given(decideOperation, { isAdmin: true })
      .when(command)
      .accepted({
        result: { operation: command.type, requested_by: 'user:7', ...expected },
        changes: [],
      });
    given(decideOperation, { isAdmin: false }).when(command).refused('CONFLICT');
  });
});
