import { randomBytes } from 'node:crypto';

import { z } from 'zod';

import { loginKey, userByLogin } from '../../projections/accounts/queries.ts';
import type { UserForLogin } from '../../projections/accounts/queries.ts';
import { doneAnswer, loginAnswer } from '../../schemas/api/accounts.ts';
import { hashSecret } from '../auth/api-key.ts';
import { addressBlock } from '../http/client-address.ts';
import type { CommandsFor } from '../commands/command-queue.ts';
import { HttpError } from '../http/errors.ts';
import { textField } from '../http/fields.ts';
import type { LoginAttempts } from '../limits/login-attempts.ts';
import type { PasswordChecker } from '../auth/passwords.ts';
import { defineRoute } from '../http/route.ts';
import type { Route } from '../http/route.ts';
import { MAX_FAILED, MAX_WAITING } from '../limits/login-attempts.ts';
import { HOUR_MS, iso } from '../http/times.ts';

export interface SessionRouteDeps {
  readonly commandsFor: CommandsFor;
  readonly passwords: PasswordChecker;
  /** Counts by `ip:…`, and by `user:…` or, where no such user exists, `login:…`. */
  readonly logins: LoginAttempts;
  readonly sessionHours: number;
  readonly now: () => number;
}

export function sessionRoutes(deps: SessionRouteDeps): Route[] {
  return [loginRoute(deps), logoutRoute(deps)];
}

function loginRoute({ commandsFor, passwords, logins, sessionHours, now }: SessionRouteDeps): Route {
  return defineRoute({
    id: 'logIn',
    method: 'POST',
    path: '/api/users/auth/login/',
    summary: 'Log in',
    description: 'Creates a session. Failed log-ins are limited per address and per user (429).',
    tag: 'Account and keys',
    auth: 'none',
    body: z.object({
      username: textField({ max: 254, description: 'Username or e-mail address' }),
      password: textField({ max: 1024, isTrimmed: false }),
    }),
    limits: [
      `Failed log-ins in 60 s: ${MAX_FAILED.user} of a user, ${MAX_FAILED.address} of an address (429)`,
      `Log-ins of a user or an address that wait for others in an API process: ${MAX_WAITING} (503)`,
    ],
    response: { 200: loginAnswer },
    errors: [401],
    async handler({ input: { body }, request, served, pool }) {
      const findUser = async () => await userByLogin(pool, served.schema('accounts'), body.username);
      // By id: a user has the same limit by username and by e-mail address.
      const id = (await findUser())?.id;
      const attempt = await logins.begin([
        `ip:${addressBlock(request.ip)}`,
        id === undefined ? `login:${loginKey(body.username)}` : `user:${id}`,
      ]);
      let user: UserForLogin | null = null;
      let hasFailed = false;
      try {
        // Read again: while the attempt waited for others, the user may have been disabled.
        user = await findUser();
        const matches = await passwords.check(user?.password_hash ?? null, body.password);
        hasFailed = !matches || user?.is_disabled !== false;
      } finally {
        await attempt.end(hasFailed);
      }
      if (user === null || hasFailed) throw loginFailed();
      const token = randomBytes(32).toString('base64url');
      const expiresAt = now() + sessionHours * HOUR_MS;
      const outcome = await commandsFor(request).submit({
        type: 'session.open',
        actor: `user:${user.id}`,
        body: {
          user_id: user.id,
          token_hash: hashSecret(token),
          expires_at: expiresAt,
          password_hash: user.password_hash,
        },
      });
      // Since the check, the user was disabled or has another password.
      if (!outcome.accepted) throw loginFailed();
      return {
        status: 200,
        body: {
          token,
          token_type: 'Bearer' as const,
          expires_at: iso(expiresAt),
          user: { id: user.id, username: user.username, email: user.email },
        },
      };
    },
  });
}

const loginFailed = (): HttpError =>
  new HttpError(401, 'authentication_failed', 'Unable to log in with provided credentials.', {
    headers: { 'WWW-Authenticate': 'Bearer' },
  });

function logoutRoute({ commandsFor }: SessionRouteDeps): Route {
  return defineRoute({
    id: 'logOut',
    method: 'POST',
    path: '/api/users/auth/logout/',
    summary: 'End the session',
    description: 'The token is rejected from then on. Other sessions of the user go on.',
    tag: 'Account and keys',
    auth: 'session',
    response: { 200: doneAnswer },
    async handler({ user, tokenHash, request }) {
      // A refusal means that the session has already ended.
      await commandsFor(request).submit({
        type: 'session.close',
        actor: `user:${user.id}`,
        body: { token_hash: tokenHash },
      });
      return { status: 200, body: { success: true as const, detail: 'Logged out.' } };
    },
  });
}
