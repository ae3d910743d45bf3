import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { readDemoFile } from './run-file.ts';

/** The user that an embedded start creates; `apiKey` is null until one is created. */
export interface DemoUser {
  readonly username: string;
  readonly password: string;
  readonly apiKey: string | null;
}

/** The key in `DATA_DIR/secret.key`, generated at the first start. */
export function storedSecretKey(dataDir: string): string {
  const file = join(dataDir, 'secret.key');
  if (!existsSync(file)) writeFileSync(file, `${randomBytes(32).toString('hex')}\n`, { mode: 0o600 });
  return readFileSync(file, 'utf8').trim();
}

/** The configured admin, or `demo` with a generated password; with the API key of an earlier start. */
export function demoUser(env: NodeJS.ProcessEnv, dataDir: string): DemoUser {
  const stored = readDemoFile(dataDir);
  const username = env['ADMIN_USERNAME'] ?? stored?.username ?? 'demo';
  const own = stored?.username === username ? stored : null;
  const password = env['ADMIN_PASSWORD'] ?? own?.password ?? randomBytes(12).toString('base64url');
  return { username, password, apiKey: own?.api_key ?? null };
}
