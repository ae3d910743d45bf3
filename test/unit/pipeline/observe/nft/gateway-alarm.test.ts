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

function createAlarm(): (failures: number) => void {
  const whileAvailable = async (change: () => void): Promise<void> => {
    if (!isStoreAvailable) throw new Error('connection refused');
    change();
  };
  const report = createGatewayAlarm(
    {
      raise: (_, detail) => whileAvailable(() => (raised = [detail])),
      clear: () => whileAvailable(() => (raised = [])),
    },
    pino({ level: 'silent' }),
  );
  return (failures) => {
    for (let call = 0; call < failures; call += 1) report(unavailable('HTTP 502'));
    if (failures === 0) report(null);
  };
}

const FAILURES = 20;

it('raises an alarm after twenty failed calls in a row, and clears it with the first success', async () => {
  const report = createAlarm();
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
  const report = createAlarm();
  isStoreAvailable = false;
  report(FAILURES);
  await settled();
  isStoreAvailable = true;
  report(FAILURES);
  await settled();
  expect(raised).toEqual(['the last 40 calls failed: HTTP 502']);
});

it('clears the alarm although the store was unavailable at the first success', async () => {
  const report = createAlarm();
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
  const report = createAlarm();
  const reportElsewhere = createAlarm();
  reportElsewhere(FAILURES);
  await settled();
  expect(raised).not.toEqual([]);
  report(1);
  report(0);
  await settled();
  expect(raised).toEqual([]);
});
