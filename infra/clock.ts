import { setImmediate as nextTurn } from 'node:timers/promises';

import { sleep } from './lifecycle.ts';

/** Time and randomness as an argument, for code that also runs in a seeded simulation. */
export interface Clock {
  /**
   * Milliseconds since the Unix epoch, for durations: never goes back, and does not follow corrections of the machine's clock
   * or count the time for which the machine was suspended.
   */
  now(): number;
  /** Milliseconds since the Unix epoch by the machine's clock, which can be set. */
  wallTime(): number;
  /** Resolves after `ms`, or when the signal fires; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Yields to the event loop. */
  turn(): Promise<void>;
  /** From 0 to before 1. */
  random(): number;
}

/** `now` is the machine's time at the start of the process plus what has passed since. */
export const systemClock: Clock = {
  now: () => Math.round(performance.timeOrigin + performance.now()),
  wallTime: Date.now,
  sleep,
  turn: () => nextTurn(),
  random: Math.random,
};
