import type { Logger } from '../../../infra/log.ts';
import type { Alarms } from '../../../infra/health/alarms.ts';
import type { MetadataFailure } from './failure.ts';

const ALARM = 'nft.gateway';
const FAILURES_IN_A_ROW = 20;

/**
 * Raises an alarm after many failed gateway calls in a row, and again after as many more, as a store may have been unavailable.
 * Clears it with the first success after a failure, also where another process raised it, which may have ended.
 */
export function createGatewayAlarm(alarms: Alarms, log: Logger): (failure: MetadataFailure | null) => void {
  let failures = 0;
  let mayBeRaised = false;
  const update = (change: Promise<void>): void =>
    void change.catch((error: unknown) => {
      mayBeRaised = true;
      log.warn({ err: error, alarm: ALARM }, 'alarm not updated');
    });
  update(alarms.clear([ALARM])); // of a previous process
  return (failure) => {
    if (failure !== null) {
      mayBeRaised = true;
      failures += 1;
      if (failures % FAILURES_IN_A_ROW === 0)
        update(alarms.raise(ALARM, `the last ${failures} calls failed: ${failure.message}`));
      return;
    }
    failures = 0;
    if (mayBeRaised) update(alarms.clear([ALARM]));
    mayBeRaised = false;
  };
}
