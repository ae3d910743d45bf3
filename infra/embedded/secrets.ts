import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

/** The password in a file readable by its owner only; generated if missing (24 random bytes as hex, safe in a URL). */
export function storedSecret(file: string): string {
  try {
    const stored = readFileSync(file, 'utf8').trim();
    if (stored !== '') return stored;
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  }
  const secret = randomBytes(24).toString('hex');
  writeFileSync(file, `${secret}\n`, { mode: 0o600 });
  return secret;
}
