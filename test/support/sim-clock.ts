import type { Clock } from '../../infra/clock.ts';

export interface SimClock extends Clock {
  /** Lets virtual time pass until `done`, or until a limit; everything that is due runs in the order of its time. */
  run(limitMs: number, done?: () => boolean): Promise<void>;
}

/** Virtual time: nothing waits for real, and the same seed gives the same order of everything. */
export function createSimClock(startMs: number, random: () => number): SimClock {
  let time = startMs;
  let order = 0;
  let timers: { at: number; order: number; wake(): void }[] = [];

  return {
    random,
    now: () => Math.floor(time),
    sleep(ms, signal) {
      return new Promise((resolve) => {
        if (signal?.aborted === true) return resolve();
        const timer = { at: time + Math.max(0, ms), order: (order += 1), wake };
        function wake(): void {
          signal?.removeEventListener('abort', wake);
          timers = timers.filter((one) => one !== timer);
          resolve();
        }
        timers.push(timer);
        return signal?.addEventListener('abort', wake, { once: true });
      });
    },
    turn: async () => {},
    async run(limitMs, done = () => false) {
      const end = time + limitMs;
      for (;;) {
        // Everything that can go on without time passing has gone on after this.
        await new Promise((resolve) => setImmediate(resolve));
        if (done()) return;
        const next = timers.toSorted((a, b) => a.at - b.at || a.order - b.order)[0];
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
