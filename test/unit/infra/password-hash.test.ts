import { expect, test } from 'vitest';

import { hashPassword, verifyPassword } from '../../../infra/password-hash.ts';

/** Made by the reference implementation's binding @node-rs/argon2. */
const REFERENCE =
  '$argon2id$v=19$m=19456,t=2,p=1$qKE8oU2tYjjCmJb1VAhq6g$MFfDRxaFi6n6+a0Q3DY/wSiIy6wxmrbQ/Gasd6zBUyU';

test('verifies a hash of another implementation', async () => {
  expect(await verifyPassword(REFERENCE, 'correct horse ✓')).toBe(true);
  expect(await verifyPassword(REFERENCE, 'correct horse')).toBe(false);
});

test('hashes with a fresh salt and the recommended parameters', async () => {
  const [first, second] = await Promise.all([hashPassword('one'), hashPassword('one')]);
  expect(first).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$[\w+/]{22}\$[\w+/]{43}$/);
  expect(first).not.toBe(second);
  expect(await verifyPassword(first, 'one')).toBe(true);
  expect(await verifyPassword(first, 'two')).toBe(false);
});

test.each(['', 'plain', '$argon2i$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA', '$2b$10$abc'])(
  'rejects %j, which is no argon2id hash',
  async (text) => expect(await verifyPassword(text, 'plain')).toBe(false),
);
