import { setImmediate as nextTurn } from 'node:timers/promises';

import { pause } from './lifecycle.ts';

/** Time and chance, as code is given them that also runs in a seeded simulation. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Never rejects; ends early when the signal fires. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Lets everything else that waits for the event loop go first. */
  turn(): Promise<void>;
  /** From 0 to before 1. */
  random(): number;
}

/** Its time never goes back: the machine's clock at the start of the process, and what has passed since. */
export const systemClock: Clock = {
  now: () => Math.round(performance.timeOrigin + performance.now()),
  sleep: pause,
  turn: () => nextTurn(),
  random: Math.random,
};
