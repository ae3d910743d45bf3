import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { pid } from 'node:process';

import { errorMessage } from '../../../schemas/errors.ts';
import { systemClock } from '../../clock.ts';
import { loadConfig } from '../../config.ts';
import type { Config } from '../../config.ts';
import { createLogger } from '../../log.ts';
import { createMetrics, serveMetrics } from '../../metrics.ts';
import { checkSessions } from '../../postgres/check-sessions.ts';
import { isPostgresUnavailable, isPrivilegeMissing } from '../../postgres/client.ts';
import { checkMigrated } from '../../postgres/migrate.ts';
import { isStoreUnavailable } from '../../retry-while-unavailable.ts';
import { startHeartbeat } from '../../health/heartbeat.ts';
import { unavailableStores } from '../../health/unavailable-stores.ts';
import { logFailure, runProcess } from './run-process.ts';
import { roleAttempts } from './role-attempts.ts';
import type { Role } from '../role.ts';
import { commandConfig } from '../command-config.ts';
import { openClickHouse, openPool } from '../connect.ts';
import { startHistory } from '../operator/history.ts';
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
    const exposed = await serveMetrics(metrics, { host: config.metricsHost, port: config.metricsPort });
    releasers.push('metrics', () => exposed.close());
    const context = { config, log, metrics, releasers, signal, fail };
    const start = roleAttempts(role, await role.load(), context, only);
    const attempt = async (): ReturnType<typeof start> => {
      const isChecked = await checkDatabase(role, config);
      const started = await start();
      if (!isChecked) await checkDatabase(role, config);
      return started;
    };
    const { url } = await retryUntilAvailable(
      async () => {
        const unavailable = await unavailableStores(config, log);
        return unavailable.length > 0 ? unavailable.join(' and ') : 'stores that have just recovered';
      },
      attempt,
      {
        log,
        signal,
        isTransient: isStoreUnavailable,
      },
    );
    announce(role, { config, log, releasers });
    log.info({ url, metrics_url: exposed.url }, `${role.name} is ready`);
    const message: z.infer<typeof readyMessage> = { ready: true, url, metrics_url: exposed.url };
    process.send?.(message);
  };
  return await runProcess(log, main, {
    report(error) {
      logFailure(log, error);
      const message: z.infer<typeof failedMessage> = { failed: errorMessage(error) };
      if (process.connected) process.send?.(message);
    },
  });
}

/** False while PostgreSQL is unavailable: the role itself waits for it, or starts without it. */
async function checkDatabase({ name }: Role, config: Config): Promise<boolean> {
  const url = databaseUrlOf(name, config);
  try {
    if (url === null) return true;
    await checkSessions(url);
    await checkMigrated(url).catch((error: unknown) => {
      // `tds migrate` of this release lets the role of the API read the table of migrations; an earlier one may not have.
      if (name !== 'api' || !isPrivilegeMissing(error)) throw error;
    });
    return true;
  } catch (error) {
    if (isPostgresUnavailable(error)) return false;
    throw error;
  }
}

function databaseUrlOf(role: string, { apiDatabaseUrl, databaseUrl }: Config): string | null {
  return role === 'api' ? apiDatabaseUrl : databaseUrl;
}

/** Starts the heartbeat of the process and its part of the history, which the API may not write. */
function announce({ name }: Role, context: Parameters<typeof openPool>[0]): void {
  const url = databaseUrlOf(name, context.config);
  if (url === null) return;
  const pool = openPool(context, `tds-${name}-heartbeat`, 1, { url, queryTimeoutMs: 5000 });
  const process = `${hostname()}:${pid}:${randomUUID().slice(0, 8)}`;
  const heartbeat = startHeartbeat(pool, name, process, context.log);
  context.releasers.push('heartbeat', () => heartbeat.stop());
  if (name === 'api' || context.config.clickhouseUrl === null) return;
  const clickhouse = openClickHouse(context, `tds-${name}-history`, { timeoutMs: 5000, connections: 2 });
  const history = startHistory({ pool, clickhouse, clock: systemClock, log: context.log });
  context.releasers.push('history', () => history.stop());
}
