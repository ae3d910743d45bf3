import { expect, test } from 'vitest';

import { keepRunning } from '../../../../infra/embedded/keep-running.ts';
import type { EmbeddedService } from '../../../../infra/embedded/service.ts';

type Exit = Awaited<EmbeddedService['exited']>;
const killed: Exit = { code: null, signal: 'SIGKILL' };
const quiet = { debug() {}, info() {}, warn() {}, error() {} };

/** A server whose starts and exits the test controls. */
function scripted() {
  const running: { kill(): void }[] = [];
  const stopped: number[] = [];
  let starts = 0;
  let gate: Promise<void> = Promise.resolve();
  let refusals = 0;
  const start = async (): Promise<EmbeddedService> => {
    const pid = 100 + starts++;
    await gate;
    if (refusals > 0) {
      refusals -= 1;
      throw new Error('the port is taken');
    }
    const { promise: exited, resolve } = Promise.withResolvers<Exit>();
    running.push({ kill: () => resolve(killed) });
    const stop = async (): Promise<void> => {
      stopped.push(pid);
      resolve({ code: 0, signal: null });
    };
    return { name: 'store', url: 'store://here', pid, stop, exited };
  };
  return {
    start,
    running,
    stopped,
    starts: () => starts,
    refuse: (times: number) => void (refusals = times),
    hold: (until: Promise<void>) => void (gate = until),
  };
}

function kept(server: ReturnType<typeof scripted>) {
  let restarts = 0;
  let errors = 0;
  const service = keepRunning(server.start, {
    log: { ...quiet, error: () => void (errors += 1) },
    onRestart: () => void (restarts += 1),
    baseDelayMs: 1,
    maxDelayMs: 4,
  });
  return { service, restarts: () => restarts, errors: () => errors };
}

const until = async (holds: () => boolean): Promise<void> => {
  const deadline = Date.now() + 2000;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error('timed out');
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
};

test('restarts a killed server, also after failed attempts', async () => {
  const server = scripted();
  const { service: starting, restarts } = kept(server);
  const service = await starting;
  expect(service.pid).toBe(100);
  server.refuse(2);
  server.running[0]?.kill();
  await until(() => restarts() === 1);
  expect(service.pid).toBe(103);
  expect(service.url).toBe('store://here');
  await service.stop();
  expect(server.stopped).toEqual([103]);
  expect(server.starts()).toBe(4);
});

test('does not restart a stopped server', async () => {
  const server = scripted();
  const { service: starting, restarts } = kept(server);
  const service = await starting;
  await service.stop();
  await expect(service.exited).resolves.toEqual({ code: 0, signal: null });
  expect(server.starts()).toBe(1);
  expect(restarts()).toBe(0);
});

test('a stop during a restart waits for it and stops the new server', async () => {
  const server = scripted();
  const service = await kept(server).service;
  const { promise, resolve } = Promise.withResolvers<void>();
  server.hold(promise);
  server.running[0]?.kill();
  await until(() => server.starts() === 2);
  const stopped = service.stop();
  resolve();
  await stopped;
  expect(server.stopped).toContain(101);
});

test('retries a failing server without limit, and logs errors after many failures', async () => {
  const server = scripted();
  const { service: starting, restarts, errors } = kept(server);
  const service = await starting;
  server.refuse(20);
  server.running[0]?.kill();
  await until(() => restarts() === 1);
  expect(service.pid).toBe(121);
  expect(errors()).toBe(14);
  await service.stop();
});

test('a stop ends the retries', async () => {
  const server = scripted();
  const service = await kept(server).service;
  server.refuse(1e6);
  server.running[0]?.kill();
  await until(() => server.starts() > 5);
  await service.stop();
  await expect(service.exited).resolves.toEqual(killed);
});
