import { setImmediate } from 'node:timers/promises';

/** Lets other requests run after each so many units of work done in one go. */
export function createYielder(unitsPerTurn: number): (units: number) => Promise<void> {
  let units = 0;
  return async (done) => {
    units += done;
    if (units < unitsPerTurn) return;
    units = 0;
    await setImmediate();
  };
}
