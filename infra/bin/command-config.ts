import { loadConfig, settings } from '../config.ts';
import type { Config } from '../config.ts';
import { AppError } from '../../schemas/errors.ts';
import { lockHolder } from '../embedded/data-dir.ts';
import { readRunFile } from '../embedded/run-file.ts';

/**
 * The settings of a command: the environment; unset ones are taken from the embedded start that runs in `DATA_DIR`.
 * A supervised role is given everything in its environment.
 */
export function commandConfig(
  env: NodeJS.ProcessEnv,
  options: Parameters<typeof loadConfig>[1] = {},
): Config {
  const own = loadConfig(env, options);
  const run = readRunFile(own.dataDir);
  // The lock names its holder with its start time: process ids are reused.
  if (run === null || lockHolder(own.dataDir) !== run.pid) {
    // The API is given no other URL of PostgreSQL.
    if (own.databaseUrl !== null || own.apiDatabaseUrl !== null) return own;
    const last = run === null ? '' : ` (the last one, pid ${run.pid}, has exited)`;
    throw new AppError(
      'CONFIG_INVALID',
      `Nothing runs in ${own.dataDir}${last}: start it with \`npm start\`, name another DATA_DIR, or set DATABASE_URL and the URLs of the other stores`,
    );
  }
  return loadConfig({ ...run.env, ...env }, options);
}

/** LOG_LEVEL for the logger that exists before the settings are read, which reports a wrong one. */
export function earlyLogLevel(env: NodeJS.ProcessEnv): Config['logLevel'] {
  return settings.logLevel.schema.safeParse(env['LOG_LEVEL']).data ?? 'warn';
}
