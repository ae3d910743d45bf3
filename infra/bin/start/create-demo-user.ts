import { fileURLToPath } from 'node:url';

import { addApiKey, ensureUser } from '../operator/accounts.ts';
import { isEmptyOf } from '../../../projections/catalogue/queries.ts';
import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import { asOperator } from '../cli/as-operator.ts';
import type { OperatorSession } from '../cli/as-operator.ts';
import type { DemoUser } from './credentials.ts';

/** The initial content of the directory. */
const STARTER = fileURLToPath(new URL('../../catalogue/starter.json', import.meta.url));

/** Imports the initial directory, only while nothing was ever listed: changes of operators are never overwritten. */
async function fillDirectory(session: OperatorSession, log: Logger): Promise<void> {
  const schema = (await session.servedBuilds()).schema('catalogue');
  if (!(await isEmptyOf(session.pool, schema, ['categories', 'dapps', 'class_hashes']))) return;
  const [{ importFile }, { readJson }] = await Promise.all([
    import('../operator/catalogue/import.ts'),
    import('../operator/catalogue/read-file.ts'),
  ]);
  const outcome = await importFile({ ...session, now: Date.now }, { path: STARTER, read: readJson });
  if (!outcome.isGood) log.error({ faults: outcome.faults }, 'initial directory is invalid');
}

/** Creates the first user if missing, its API key if none is stored, and the initial directory. */
export async function createDemoUser(
  config: Config,
  log: Logger,
  { username, password, isStoredPassword, apiKey }: DemoUser,
): Promise<{ apiKey: string; hasPassword: boolean }> {
  return await asOperator(config, log, async (deps) => {
    await fillDirectory(deps, log);
    const user = { username, password, isAdmin: true };
    const { hasPassword } = await ensureUser(deps, user, { keepsPassword: isStoredPassword });
    if (apiKey !== null) return { apiKey, hasPassword };
    const { key } = await addApiKey(deps, { username, name: 'first key' });
    return { apiKey: key, hasPassword };
  });
}
