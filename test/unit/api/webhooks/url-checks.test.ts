import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { createUrlChecks } from '../../../../api/webhooks/url-checks.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Checks of URLs, which take as many milliseconds as the URL says. */
function createWorld() {
  const running: string[] = [];
  const assertCallable = createUrlChecks(async (url) => {
    running.push(url);
    await new Promise((resolve) => setTimeout(resolve, Number(url)));
    return Number(url) >= 5000 ? 'The host does not resolve.' : null;
  });
  const { signal } = new AbortController();
  return {
    running,
    /** The status of the error; 0: none. */
    check: (user: string, url: string): Promise<unknown> =>
      assertCallable({ caller: () => ({ user, name: user }), signal }, url).then(
        () => 0,
        (error: { status: number }) => error.status,
      ),
  };
}

it('checks one URL of a user at a time', async () => {
  const { check, running } = createWorld();
  const checks = Promise.all([check('a', '10'), check('a', '20'), check('b', '30')]);
  await vi.advanceTimersByTimeAsync(0);
  expect(running).toEqual(['10', '30']);
  await vi.advanceTimersByTimeAsync(10);
  expect(running).toEqual(['10', '30', '20']);
  await vi.advanceTimersByTimeAsync(20);
  expect(await checks).toEqual([0, 0, 0]);
});

it('checks no other URL of a user while the lookup of a slow name may run', async () => {
  const { check, running } = createWorld();
  const slow = check('a', '5000');
  await vi.advanceTimersByTimeAsync(5000);
  expect(await slow).toBe(400);
  const next = check('a', '1');
  const other = check('b', '2');
  await vi.advanceTimersByTimeAsync(5000);
  expect([await next, await other]).toEqual([503, 0]);
  expect(running).toEqual(['5000', '2']);
  await vi.advanceTimersByTimeAsync(15_000);
  const last = check('a', '3');
  await vi.advanceTimersByTimeAsync(3);
  expect(await last).toBe(0);
});
