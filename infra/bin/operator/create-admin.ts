import { isPostgresUnavailable } from '../../postgres/client.ts';
import { retry } from '../../retry.ts';
import { AppError, isRetryable } from '../../../schemas/errors.ts';
import { asOperator } from '../cli/as-operator.ts';
import type { RoleContext } from '../role.ts';
import { ensureUser } from './accounts.ts';

/**
 * Creates the configured admin in the background, retrying while a store is unavailable. Runs beside the projection that
 * decides the command; `/readyz` of the API is 503 until the user exists.
 */
export function startCreatingAdmin({ config, log, signal, fail }: RoleContext): void {
  const { adminUsername: username, adminPassword: password } = config;
  if (username === null || password === null) return;
  const create = async (): Promise<void> => {
    await asOperator(config, log, (session) => ensureUser(session, { username, password, isAdmin: true }));
  };
  const isTransient = (error: unknown): boolean =>
    isRetryable(error) ||
    isPostgresUnavailable(error) ||
    // The first build of the accounts is not served yet.
    (error instanceof AppError && error.code === 'READ_MODEL_NOT_BUILT');
  retry(create, {
    isRetryable: isTransient,
    signal,
    onRetry: (error, { delayMs }) =>
      log.warn({ err: error, delay_ms: delayMs }, 'admin user not created, retrying'),
  }).then(
    () => log.info({ username }, 'admin user exists'),
    (error: unknown) => {
      if (!signal.aborted) fail(error);
    },
  );
}
