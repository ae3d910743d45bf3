import { randomBytes } from 'node:crypto';

import { readDemoFile } from '../../embedded/run-file.ts';

/** The user that an embedded start creates; `apiKey` is null until one is created. */
export interface DemoUser {
  readonly username: string;
  readonly password: string;
  readonly apiKey: string | null;
}

/** The configured admin, or `demo` with a generated password; with the API key of an earlier start. */
export function demoUser(env: NodeJS.ProcessEnv, dataDir: string): DemoUser {
  const stored = readDemoFile(dataDir);
  const username = env['ADMIN_USERNAME'] ?? stored?.username ?? 'demo';
  const own = stored?.username === username ? stored : null;
  const password = env['ADMIN_PASSWORD'] ?? own?.password ?? randomBytes(12).toString('base64url');
  return { username, password, apiKey: own?.api_key ?? null };
}
