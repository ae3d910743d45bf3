import { loadConfig } from '../config.ts';
import { createLogger } from '../log.ts';
import { createMetrics, serveMetrics } from '../metrics.ts';
import { isPostgresUnavailable } from '../postgres/client.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { logFailure, runProcess } from './process.ts';
import type { Role } from './roles.ts';
import { commandConfig } from './settings.ts';
import type { failedMessage, readyMessage } from './supervise.ts';
import { waitFor } from './wait.ts';
import type { z } from 'zod';

/** Runs one role as this process, with metrics of its own, and tells a supervisor when it does its work. */
export async function runRole(role: Role, only: readonly string[]): Promise<never> {
  // A supervisor has said everything; the API is not given the owners' URLs, and must not find them either.
  const config = process.send === undefined ? commandConfig(process.env) : loadConfig(process.env);
  const log = createLogger(role.name, config.logLevel);
  const main: Parameters<typeof runProcess>[1] = async ({ releasers, signal, fail }) => {
    const metrics = createMetrics(role.name);
    const exposed = await serveMetrics(metrics, config.metricsPort);
    releasers.push('metrics', () => exposed.close());
    const { url } = await waitFor(
      'the stores',
      () => role.start({ config, log, metrics, releasers, signal, fail }, only),
      {
        log,
        signal,
        isTransient: (error) => isRetryable(error) || isPostgresUnavailable(error),
      },
    );
    log.info({ url, metrics_url: exposed.url }, `${role.name} is ready`);
    const message: z.infer<typeof readyMessage> = { ready: true, url, metrics_url: exposed.url };
    process.send?.(message);
  };
  return await runProcess(log, main, (error) => {
    logFailure(log, error);
    const message: z.infer<typeof failedMessage> = {
      failed: String(error instanceof Error ? error.message : error),
    };
    if (process.connected) process.send?.(message);
  });
}
