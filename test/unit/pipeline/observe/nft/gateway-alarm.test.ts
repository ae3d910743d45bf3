import { setImmediate } from 'node:timers/promises';

import { pino } from 'pino';
import { beforeEach, expect, it } from 'vitest';

import { unavailable } from '../../../../../pipeline/observe/nft/failure.ts';
import { createGatewayAlarm } from '../../../../../pipeline/observe/nft/gateway-alarm.ts';

let raised: string[];
let isStoreAvailable: boolean;

/** Resolves once the changes that began before are stored, or refused. */
const settled = (): Promise<void> => setImmediate();

beforeEach(() => {
  raised = [];
  isStoreAvailable = true;
});

function createAlarm() {
  const whileAvailable = async (change: () => void): Promise<void> => {
    if (!isStoreAvailable) throw new Error('connection refused');
    change();
  };
  const alarm = createGatewayAlarm(
    {
      raise: (_, detail) => whileAvailable(() => (raised = [detail])),
      clear: () => whileAvailable(() => (raised = [])),
    },
    pino({ level: 'silent' }),
  );
  const report = (failures: number): void => {
    for (let call = 0; call < failures; call += 1) alarm.report(unavailable('HTTP 502'));
    if (failures === 0) alarm.report(null);
  };
  return { report, stop: () => alarm.stop() };
}

const FAILURES = 20;

it('raises an alarm after twenty failed calls in a row, and clears it with the first success', async () => {
  const { report } = createAlarm();
  report(FAILURES - 1);
  report(0);
  report(FAILURES - 1);
  await settled();
  expect(raised).toEqual([]);
  report(1);
  await settled();
  expect(raised).toEqual(['the last 20 calls failed: HTTP 502']);
  report(0);
  await settled();
  expect(raised).toEqual([]);
});

it('raises the alarm although the store was unavailable at the twentieth failure', async () => {
  const { report } = createAlarm();
  isStoreAvailable = false;
  report(FAILURES);
  await settled();
  isStoreAvailable = true;
  report(FAILURES);
  await settled();
  expect(raised).toEqual(['the last 40 calls failed: HTTP 502']);
});

it('clears the alarm although the store was unavailable at the first success', async () => {
  const { report } = createAlarm();
  report(FAILURES);
  await settled();
  isStoreAvailable = false;
  report(0);
  await settled();
  isStoreAvailable = true;
  report(0);
  await settled();
  expect(raised).toEqual([]);
});

it('clears the alarm that a process raised which has ended', async () => {
  const { report } = createAlarm();
  const { report: reportElsewhere } = createAlarm();
  reportElsewhere(FAILURES);
  await settled();
  expect(raised).not.toEqual([]);
  report(1);
  report(0);
  await settled();
  expect(raised).toEqual([]);
});

it('clears the alarm when the process that raised it stops, and not when another does', async () => {
  const [raising, other] = [createAlarm(), createAlarm()];
  raising.report(FAILURES);
  other.report(1);
  await other.stop();
  await settled();
  expect(raised).toEqual(['the last 20 calls failed: HTTP 502']);
  await raising.stop();
  expect(raised).toEqual([]);
});
