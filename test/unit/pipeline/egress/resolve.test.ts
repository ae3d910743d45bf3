import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { createResolve } from '../../../../pipeline/egress/resolve.ts';

/** Lookups of the system's resolver, which end when the test says so. */

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function createWorld() {
  const running = new Map<string, PromiseWithResolvers<readonly string[]>>();
  const looked: string[] = [];
  const resolve = createResolve([], (host) => {
    const answer = Promise.withResolvers<readonly string[]>();
    running.set(host, answer);
    looked.push(host);
    return answer.promise;
  });
  return {
    looked,
    /** The addresses, or why there are none. */
    resolve: async (host: string) => await resolve(host).catch(String),
    end: async (host: string): Promise<void> => {
      running.get(host)?.resolve([`address of ${host}`]);
      await vi.advanceTimersByTimeAsync(0);
    },
  };
}

it('looks up one name at a time, in order of arrival', async () => {
  const { resolve, looked, end } = createWorld();
  const answers = Promise.all(['a', 'b', 'c', 'b'].map(resolve));
  expect(looked).toEqual(['a']);
  await end('a');
  expect(looked).toEqual(['a', 'b']);
  await end('b');
  await end('c');
  expect(await answers).toEqual(['a', 'b', 'c', 'b'].map((host) => [`address of ${host}`]));
  const later = resolve('a');
  await end('a');
  expect(await later).toEqual(['address of a']);
});

it('rejects a name that waits for long behind a slow one, which runs until it ends', async () => {
  const { resolve, looked, end } = createWorld();
  const slow = resolve('slow');
  const waiting = resolve('a');
  await vi.advanceTimersByTimeAsync(3000);
  expect(await waiting).toBe('Error: a slow lookup is running');
  const next = resolve('b');
  expect(looked).toEqual(['slow']);
  await end('slow');
  expect(await slow).toEqual(['address of slow']);
  await end('b');
  expect(await next).toEqual(['address of b']);
});

it('looks up a host that was quick before without a wait, until it is slow once', async () => {
  const { resolve, looked, end } = createWorld();
  const first = resolve('quick');
  await end('quick');
  await first;
  void resolve('slow');
  const again = resolve('quick');
  expect(looked).toEqual(['quick', 'slow', 'quick']);
  await vi.advanceTimersByTimeAsync(1000);
  await end('quick');
  expect(await again).toEqual(['address of quick']);
  const waiting = resolve('quick');
  await vi.advanceTimersByTimeAsync(3000);
  expect(await waiting).toBe('Error: a slow lookup is running');
});

it('rejects names at once while many wait', async () => {
  const { resolve, looked } = createWorld();
  const all = Array.from({ length: 1001 }, (_, index) => resolve(String(index)));
  expect(await resolve('one more')).toBe('Error: too many lookups are waiting');
  await vi.advanceTimersByTimeAsync(3000);
  await Promise.all(all.slice(1));
  expect(looked).toEqual(['0']);
});
