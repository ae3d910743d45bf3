import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

import { errorCode } from '../error-code.ts';

/** The secret in a file readable by its owner only; generated if missing or empty: random bytes as hex, safe in a URL. */
export function storedSecret(file: string, bytes = 24): string {
  try {
    const stored = readFileSync(file, 'utf8').trim();
    if (stored !== '') return stored;
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
  }
  const secret = randomBytes(bytes).toString('hex');
  writeFileSync(file, `${secret}\n`, { mode: 0o600 });
  return secret;
}
