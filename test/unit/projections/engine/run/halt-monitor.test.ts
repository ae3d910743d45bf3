import { expect, test, vi } from 'vitest';

import { createHaltMonitor } from '../../../../../projections/engine/run/halt-monitor.ts';
import { AppError } from '../../../../../schemas/errors.ts';

type HaltMonitorDeps = Parameters<typeof createHaltMonitor>[0];

/** A monitor of no partitions whose checks run one by one; each compares its builds with the served ones. */
function monitorOf(checkServed: () => Promise<void>) {
  const warn = vi.fn();
  const onError = vi.fn();
  const publisher = { close: async () => {} };
  let wake = (): void => {};
  const deps = {
    kafka: { offsets: async () => [], publisher: () => publisher },
    state: { checkServed },
    clock: {
      now: () => 0,
      sleep: (_ms: number, signal: AbortSignal) =>
        new Promise<void>((resolve) => {
          wake = resolve;
          signal.addEventListener('abort', () => resolve(), { once: true });
        }),
    },
    log: { warn, error: vi.fn() },
    builds: [],
    readings: { all: () => [], rewound: async () => [] },
    onError,
  };
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- without partitions nothing else is called
  const monitor = createHaltMonitor(deps as unknown as HaltMonitorDeps);
  const check = async (): Promise<void> => {
    wake();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { monitor, check, warn, onError };
}

test('an unavailable store is logged once, and again after it was available', async () => {
  const unavailable = new AppError('STORE_UNAVAILABLE', 'PostgreSQL is down', { retryable: true });
  const failures: (Error | null)[] = [unavailable, unavailable, unavailable, null, unavailable, unavailable];
  let compared = 0;
  const { monitor, check, warn, onError } = monitorOf(async () => {
    const failure = failures[compared] ?? null;
    compared += 1;
    if (failure !== null) throw failure;
  });
  monitor.start();
  for (let checks = 0; checks < 3; checks += 1) await check();
  expect([compared, warn.mock.calls.length]).toEqual([3, 1]);
  expect(warn.mock.calls[0]?.[0]).toEqual({ err: unavailable });
  // Available at the fourth check; the next comparison is the fifth after it.
  for (let checks = 0; checks < 7; checks += 1) await check();
  expect([compared, warn.mock.calls.length]).toEqual([6, 2]);
  expect(onError).not.toHaveBeenCalled();
  await monitor.stop();
});

test('an error that is no outage is a bug', async () => {
  const bug = new TypeError('undefined is not a function');
  const { monitor, check, warn, onError } = monitorOf(() => Promise.reject(bug));
  monitor.start();
  await check();
  expect(onError).toHaveBeenCalledExactlyOnceWith(bug);
  expect(warn).not.toHaveBeenCalled();
  await monitor.stop();
});
