import { randomBytes } from 'node:crypto';

import { readDemoFile } from '../../embedded/run-file.ts';

/** The user that an embedded start creates; `apiKey` is null until one is created. */
export interface DemoUser {
  readonly username: string;
  readonly password: string;
  /** Of an earlier start: an operator may have changed it since. */
  readonly isStoredPassword: boolean;
  readonly apiKey: string | null;
}

/** The configured admin, or `demo` with a generated password; with the API key of an earlier start. */
export function demoUser(env: NodeJS.ProcessEnv, dataDir: string): DemoUser {
  const stored = readDemoFile(dataDir);
  const username = env['ADMIN_USERNAME'] ?? stored?.username ?? 'demo';
  const own = stored?.username === username ? stored : null;
  const given = env['ADMIN_PASSWORD'];
  const password = given ?? own?.password ?? randomBytes(12).toString('base64url');
  const isStoredPassword = given === undefined && own !== null;
  return { username, password, isStoredPassword, apiKey: own?.api_key ?? null };
}
