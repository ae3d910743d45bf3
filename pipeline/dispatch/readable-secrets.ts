import { createAlarms } from '../../infra/health/alarms.ts';
import { startLoop } from '../../infra/loop.ts';
import type { Loop } from '../../infra/loop.ts';
import type { Sealing } from '../../infra/sealing.ts';
import { notifiedBySealingKey } from '../../projections/webhooks/queries.ts';
import type { DispatchDeps } from './deps.ts';

const ALARM = 'webhooks.unsigned';
const INTERVAL_MS = 60_000;

export interface ReadableSecretsDeps extends Pick<
  DispatchDeps,
  'pool' | 'webhooks' | 'clock' | 'log' | 'retryWhileUnavailable'
> {
  readonly sealing: Pick<Sealing, 'hasKey'>;
}

/** Raises an alarm while the secrets of webhooks were sealed with another SECRET_KEY: none of their deliveries can be signed. */
export function startReadableSecretsCheck(
  { pool, webhooks, sealing, clock, log, retryWhileUnavailable }: ReadableSecretsDeps,
  onFatal: (error: unknown) => void,
): Loop {
  const alarms = createAlarms(pool);
  let isRaised = false;
  return startLoop({
    async round() {
      const schema = await webhooks();
      if (schema === null) return INTERVAL_MS;
      const unknown = (await notifiedBySealingKey(pool, schema)).filter(({ key }) => !sealing.hasKey(key));
      if (unknown.length === 0) await alarms.clear([ALARM]);
      else {
        const count = unknown.reduce((sum, { webhooks: some }) => sum + some, 0);
        const keys = unknown.map(({ key }) => key).join(', ');
        const detail = `${count} active webhook${count === 1 ? '' : 's'}, sealed with another SECRET_KEY (${keys})`;
        if (!isRaised) log.error({ detail }, 'webhook secrets cannot be read: their deliveries fail');
        await alarms.raise(ALARM, detail);
      }
      isRaised = unknown.length > 0;
      return INTERVAL_MS;
    },
    retryWhileUnavailable,
    onFatal,
    clock,
  });
}
