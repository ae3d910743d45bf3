import { loadConfig } from '../config.ts';
import type { Config } from '../config.ts';
import { isAlive, readRunFile } from './run-file.ts';

/**
 * The settings of a command: the environment, and what it leaves open from the embedded start that runs in `DATA_DIR`.
 * A supervised role is given everything in its environment.
 */
export function commandConfig(env: NodeJS.ProcessEnv): Config {
  const own = loadConfig(env);
  const run = readRunFile(own.dataDir);
  if (run === null || !isAlive(run.pid)) return own;
  return loadConfig({ ...run.env, ...env });
}
