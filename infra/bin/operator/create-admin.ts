import { retry } from '../../retry.ts';
import { isStoreUnavailable } from '../../retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';
import { asOperator } from '../cli/as-operator.ts';
import type { RoleContext } from '../role.ts';
import { createIfMissing } from './accounts.ts';

/**
 * Creates the configured admin in the background if missing, retrying while a store is unavailable. An existing user keeps its
 * password, which `tds users password` may have set. Runs beside the projection that decides the command; `/readyz` of the API
 * is 503 until the user exists.
 */
export function startCreatingAdmin({ config, log, signal, fail }: RoleContext): void {
  const { adminUsername: username, adminPassword: password } = config;
  if (username === null || password === null) return;
  const create = async (): Promise<void> => {
    const { existing } = await asOperator(config, log, (session) =>
      createIfMissing(session, { username, password, isAdmin: true }),
    );
    if (existing?.is_admin === false) {
      log.error({ username }, 'ADMIN_USERNAME names a user who is not an admin: set it to another name');
    } else log.info({ username }, 'admin user exists');
  };
  const isTransient = (error: unknown): boolean =>
    isStoreUnavailable(error) ||
    // The first build of the accounts is not served yet.
    (error instanceof AppError && error.code === 'READ_MODEL_NOT_BUILT');
  retry(create, {
    isRetryable: isTransient,
    signal,
    onRetry: (error, { delayMs }) =>
      log.warn({ err: error, delay_ms: delayMs }, 'admin user not created, retrying'),
  }).catch((error: unknown) => {
    if (!signal.aborted) fail(error);
  });
}
