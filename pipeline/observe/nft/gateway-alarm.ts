import type { Logger } from '../../../infra/log.ts';
import type { Alarms } from '../../../infra/health/alarms.ts';
import type { MetadataFailure } from './failure.ts';

const ALARM = 'nft.gateway';
const FAILURES_IN_A_ROW = 20;

/** Raises an alarm after many failed gateway calls in a row, and clears it with the first success. */
export function createGatewayAlarm(alarms: Alarms, log: Logger): (failure: MetadataFailure | null) => void {
  let failures = 0;
  const update = (change: Promise<void>): void =>
    void change.catch((error: unknown) => log.warn({ err: error, alarm: ALARM }, 'alarm not updated'));
  update(alarms.clear([ALARM])); // of a previous process
  return (failure) => {
    const wasRaised = failures >= FAILURES_IN_A_ROW;
    failures = failure === null ? 0 : failures + 1;
    if (failures === FAILURES_IN_A_ROW && failure !== null)
      update(alarms.raise(ALARM, `the last ${failures} calls failed: ${failure.message}`));
    if (failures === 0 && wasRaised) update(alarms.clear([ALARM]));
  };
}
