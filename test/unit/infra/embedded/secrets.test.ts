import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterEach, beforeEach, expect, test } from 'vitest';

import { storedSecret } from '../../../../infra/embedded/secrets.ts';

let dataDir: string;
const storedKey = (): string => storedSecret(join(dataDir, 'secret.key'), 32);
beforeEach(() => (dataDir = mkdtempSync(join(tmpdir(), 'tds-secrets-'))));
afterEach(() => rmSync(dataDir, { recursive: true }));

test('the secret key is generated once, for its owner only', () => {
  const key = storedKey();
  expect(key).toMatch(/^[0-9a-f]{64}$/);
  expect(storedKey()).toBe(key);
  expect(statSync(join(dataDir, 'secret.key')).mode & 0o777).toBe(0o600);
});

test('an empty key file, left by a killed start, gets a key', () => {
  writeFileSync(join(dataDir, 'secret.key'), '');
  const key = storedKey();
  expect(key).toMatch(/^[0-9a-f]{64}$/);
  expect(readFileSync(join(dataDir, 'secret.key'), 'utf8')).toBe(`${key}\n`);
});
