import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';

import { loadConfig } from '../../config.ts';
import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import type { Releasers } from '../../lifecycle.ts';
import { createLogger } from '../../log.ts';
import { createMetrics, serveMetrics } from '../../metrics.ts';
import { createPool, isPostgresUnavailable } from '../../postgres/client.ts';
import { announceProcess } from '../../health/heartbeat.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import { unavailableStores } from './unavailable-stores.ts';
import { logFailure, runProcess } from './run-process.ts';
import { roleAttempts } from './role-attempts.ts';
import type { Role } from '../role.ts';
import { commandConfig } from '../command-config.ts';
import type { failedMessage, readyMessage } from '../start/supervise.ts';
import { retryUntilAvailable } from './wait-for-stores.ts';
import type { z } from 'zod';

/** Runs one role as this process with its own metrics server, and notifies the supervisor when it is ready. */
export async function runRole(role: Role, only: readonly string[]): Promise<never> {
  // A supervised role must not read run.json: the API receives no URLs with write access.
  const load = process.send === undefined ? commandConfig : loadConfig;
  const config = load(process.env, { hasAdminPassword: role.name !== 'api' });
  const log = createLogger(role.name, config.logLevel);
  const main: Parameters<typeof runProcess>[1] = async ({ releasers, signal, fail }) => {
    const metrics = createMetrics(role.name);
    const exposed = await serveMetrics(metrics, config.metricsPort);
    releasers.push('metrics', () => exposed.close());
    const attempt = roleAttempts(role, { config, log, metrics, releasers, signal, fail }, only);
    const { url } = await retryUntilAvailable(
      async () => {
        const unavailable = await unavailableStores(config, log);
        return unavailable.length > 0 ? unavailable.join(' and ') : 'stores that have just recovered';
      },
      attempt,
      {
        log,
        signal,
        isTransient: (error) => isRetryable(error) || isPostgresUnavailable(error),
      },
    );
    startHeartbeat(role, config, releasers, log);
    log.info({ url, metrics_url: exposed.url }, `${role.name} is ready`);
    const message: z.infer<typeof readyMessage> = { ready: true, url, metrics_url: exposed.url };
    process.send?.(message);
  };
  return await runProcess(log, main, {
    report(error) {
      logFailure(log, error);
      const message: z.infer<typeof failedMessage> = {
        failed: String(error instanceof Error ? error.message : error),
      };
      if (process.connected) process.send?.(message);
    },
  });
}

/** Starts the heartbeat of the process. The API has no write access, so it has none. */
function startHeartbeat({ name }: Role, { databaseUrl }: Config, releasers: Releasers, log: Logger): void {
  if (databaseUrl === null || name === 'api') return;
  const pool = createPool(databaseUrl, {
    applicationName: `tds-${name}-presence`,
    max: 1,
    queryTimeoutMs: 5000,
  });
  releasers.push('presence pool', () => pool.end());
  const presence = announceProcess(
    pool,
    name,
    `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`,
    log,
  );
  releasers.push('presence', () => presence.stop());
}
