import { randomBytes } from 'node:crypto';
import { join } from 'node:path';

import { storedSecret } from '../../embedded/secrets.ts';
import { readDemoFile } from './run-file.ts';

/** The user that an embedded start creates; `apiKey` is null until one is created. */
export interface DemoUser {
  readonly username: string;
  readonly password: string;
  readonly apiKey: string | null;
}

/** The key in `DATA_DIR/secret.key`, generated at the first start. */
export function storedSecretKey(dataDir: string): string {
  return storedSecret(join(dataDir, 'secret.key'), 32);
}

/** The configured admin, or `demo` with a generated password; with the API key of an earlier start. */
export function demoUser(env: NodeJS.ProcessEnv, dataDir: string): DemoUser {
  const stored = readDemoFile(dataDir);
  const username = env['ADMIN_USERNAME'] ?? stored?.username ?? 'demo';
  const own = stored?.username === username ? stored : null;
  const password = env['ADMIN_PASSWORD'] ?? own?.password ?? randomBytes(12).toString('base64url');
  return { username, password, apiKey: own?.api_key ?? null };
}
