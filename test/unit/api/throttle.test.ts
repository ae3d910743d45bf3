import { expect, test } from 'vitest';

import { createThrottle } from '../../../api/throttle.ts';
import type { Throttle } from '../../../api/throttle.ts';

function clocked(limit: (name: string) => number): { throttle: Throttle; pass: (ms: number) => void } {
  let time = 1_000_000;
  const throttle = createThrottle({ limit, windowMs: 60_000, now: () => time });
  return { throttle, pass: (ms) => void (time += ms) };
}

async function fail(throttle: Throttle, names: readonly string[]): Promise<number | null> {
  const attempt = await throttle.begin(names);
  if ('wait' in attempt) return attempt.wait;
  attempt.end(true);
  return null;
}

test('after so many failures a name waits for the end of its window', async () => {
  const { throttle, pass } = clocked(() => 2);
  expect(await fail(throttle, ['user:a'])).toBeNull();
  pass(10_000);
  expect(await fail(throttle, ['user:a'])).toBeNull();
  expect(await fail(throttle, ['user:a'])).toBe(50);
  expect(await fail(throttle, ['user:b'])).toBeNull();
  pass(50_000);
  expect(await fail(throttle, ['user:a'])).toBeNull();
});

test('names invented by an address that is refused do not push its own failures out', async () => {
  const { throttle } = clocked((name) => (name.startsWith('ip:') ? 3 : 10));
  for (let i = 0; i < 3; i += 1) expect(await fail(throttle, ['ip:x', `user:${i}`])).toBeNull();
  for (let i = 0; i < 60_000; i += 1) {
    expect(await fail(throttle, ['ip:x', `user:invented-${i}`])).not.toBeNull();
  }
});

test('right attempts count for nothing, however many there are', async () => {
  const { throttle } = clocked(() => 1);
  for (let i = 0; i < 5; i += 1) {
    const attempt = await throttle.begin(['user:a']);
    if ('wait' in attempt) throw new Error('refused');
    attempt.end(false);
  }
  expect(await fail(throttle, ['user:a'])).toBeNull();
  expect(await fail(throttle, ['user:a'])).not.toBeNull();
});
