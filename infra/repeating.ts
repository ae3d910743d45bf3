import { sleep } from './lifecycle.ts';

/** Work that runs again and again. */
export interface Repeating {
  /** Runs it again now, or as soon as the present run has ended. */
  readonly wake: () => void;
  readonly close: () => Promise<void>;
}

/**
 * Runs work at once, when it is woken and every `pollMs`, never twice at a time. After each run it rests for as long as the run
 * took, so that many wakes do not keep the process busy. The work must not throw.
 */
export function repeat(work: () => Promise<void>, pollMs: number): Repeating {
  const stop = new AbortController();
  let woken = new AbortController();
  const loop = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      woken = new AbortController();
      const began = performance.now();
      await work();
      await sleep(performance.now() - began, stop.signal);
      await sleep(pollMs, AbortSignal.any([woken.signal, stop.signal]));
    }
  };
  const running = loop();
  return {
    // With a reason: without one, an error is made at each call.
    wake: () => woken.abort('woken'),
    async close() {
      stop.abort();
      await running;
    },
  };
}
