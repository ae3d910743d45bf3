import type { Logger } from '../../../infra/log.ts';
import type { Alarms } from '../../../infra/health/alarms.ts';
import type { MetadataFailure } from './failure.ts';

const ALARM = 'nft.gateway';
const FAILURES_IN_A_ROW = 20;

export interface GatewayAlarm {
  /** Called after each call of the gateway. */
  report(failure: MetadataFailure | null): void;
  /** Clears the alarm that this process raised: no call of it can any more. */
  stop(): Promise<void>;
}

/**
 * Raises an alarm after many failed gateway calls in a row, and again after as many more, as a store may have been unavailable.
 * Clears it with the first success after a failure, also where another process raised it, which may have ended.
 */
export function createGatewayAlarm(alarms: Alarms, log: Logger): GatewayAlarm {
  let failures = 0;
  let mayBeRaised = false;
  /** One after the other: a later change must not be stored first. */
  let updated = Promise.resolve();
  const update = (change: () => Promise<void>): void => {
    updated = updated.then(change).catch((error: unknown) => {
      mayBeRaised = true;
      log.warn({ err: error, alarm: ALARM }, 'alarm not updated');
    });
  };
  const clear = (): void => update(() => alarms.clear([ALARM]));
  clear(); // of a previous process
  return {
    report(failure) {
      if (failure !== null) {
        mayBeRaised = true;
        failures += 1;
        const detail = `the last ${failures} calls failed: ${failure.message}`;
        if (failures % FAILURES_IN_A_ROW === 0) update(() => alarms.raise(ALARM, detail));
        return;
      }
      failures = 0;
      if (mayBeRaised) clear();
      mayBeRaised = false;
    },
    async stop() {
      if (failures >= FAILURES_IN_A_ROW) clear();
      await updated;
    },
  };
}
