import { createHash, timingSafeEqual } from 'node:crypto';

import { ClickHouseException } from './errors.ts';

/** chDB has no users, so this process implements two: `default` may do everything, `api` may only read. */
export interface User {
  readonly name: string;
  readonly readonly: boolean;
}

export interface Credentials {
  readonly name: string;
  readonly password: string;
}

export type Authenticate = (given: Credentials) => User;

export function users(passwords: { writer: string; reader: string }): Authenticate {
  const known = [
    { user: { name: 'default', readonly: false }, digest: sha256(passwords.writer) },
    { user: { name: 'api', readonly: true }, digest: sha256(passwords.reader) },
  ];
  return ({ name, password }) => {
    const digest = sha256(password);
    const match = known.find((entry) => entry.user.name === name);
    // Digests of equal length are compared in constant time, also for unknown names.
    const same = timingSafeEqual(digest, match?.digest ?? sha256(`not ${password}`));
    if (match === undefined || !same) {
      throw new ClickHouseException(
        516,
        'AUTHENTICATION_FAILED',
        `${name}: Authentication failed: password is incorrect, or there is no user with such name`,
      );
    }
    return match.user;
  };
}

function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
