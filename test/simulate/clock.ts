import type { Clock } from '../../infra/clock.ts';

export interface SimClock extends Clock {
  /** Advances virtual time until `done` or a limit; timers fire in order of time. */
  run(limitMs: number, done?: () => boolean): Promise<void>;
}

interface Timer {
  readonly at: number;
  readonly order: number;
  wake(): void;
}

/** Virtual time: no real waiting, and the same seed gives the same order of events. */
export function createSimClock(startMs: number, random: () => number): SimClock {
  let time = startMs;
  let order = 0;
  /** Sorted; the next timer is last. */
  const timers: Timer[] = [];

  const isLater = (one: Timer, other: Timer): boolean =>
    one.at > other.at || (one.at === other.at && one.order > other.order);
  const add = (timer: Timer): void => {
    let [low, high] = [0, timers.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = timers[middle];
      if (other !== undefined && isLater(other, timer)) low = middle + 1;
      else high = middle;
    }
    timers.splice(low, 0, timer);
  };

  const sleep: Clock['sleep'] = (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) return resolve();
      const timer = { at: time + Math.max(0, ms), order: (order += 1), wake };
      function wake(): void {
        signal?.removeEventListener('abort', wake);
        const index = timers.indexOf(timer);
        if (index >= 0) timers.splice(index, 1);
        resolve();
      }
      add(timer);
      return signal?.addEventListener('abort', wake, { once: true });
    });

  return {
    random,
    now: () => Math.floor(time),
    wallTime: () => Math.floor(time),
    sleep,
    turn: () => sleep(0),
    async run(limitMs, done = () => false) {
      const end = time + limitMs;
      for (;;) {
        // Lets everything run that needs no time to pass.
        await new Promise((resolve) => setImmediate(resolve));
        if (done()) return;
        const next = timers.at(-1);
        if (next === undefined || next.at > end) {
          time = end;
          return;
        }
        time = Math.max(time, next.at);
        next.wake();
      }
    },
  };
}
