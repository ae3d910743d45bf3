import { expect, test } from 'vitest';

import { addApiKey, addUser } from '../../../../../infra/bin/operator/accounts.ts';
import type { OperatorDeps } from '../../../../../infra/bin/operator/accounts.ts';

/** Nothing of these may reach the log or the database. */
const nobody = async (): Promise<never> => {
  throw new Error('asked for all the same');
};
const deps: OperatorDeps = {
  commands: { submit: nobody, isDecided: async () => false, notify: () => {} },
  pool: { query: nobody } as unknown as OperatorDeps['pool'],
  servedBuilds: nobody,
};

test.each([
  [{ username: ' ', password: 'long enough' }, /username/],
  [{ username: 'x'.repeat(151), password: 'long enough' }, /username/],
  [{ username: 'a\tb', password: 'long enough' }, /username/],
  [{ username: 'a\0', password: 'long enough' }, /username/],
  [{ username: 'alice', password: 'short' }, /8 characters/],
  [{ username: 'alice', password: 'long enough', email: 'nobody' }, /e-mail/],
  [{ username: 'alice', password: 'long enough', email: 'a b@example.org' }, /e-mail/],
])('a user that cannot be: %j', async (user, reason) => {
  await expect(addUser(deps, user)).rejects.toMatchObject({
    code: 'INVALID',
    message: expect.stringMatching(reason),
  });
});

test.each([
  [{ username: 'alice', name: '' }, /name/],
  [{ username: 'alice', name: 'x'.repeat(101) }, /name/],
  [{ username: 'alice', name: 'thing', allowedIps: ['10.0.0.0/33'] }, /10\.0\.0\.0\/33/],
  [{ username: 'alice', name: 'thing', allowedOrigins: ['ftp://'] }, /ftp/],
])('a key that cannot be: %j', async (key, reason) => {
  await expect(addApiKey(deps, key)).rejects.toMatchObject({
    code: 'INVALID',
    message: expect.stringMatching(reason),
  });
});
