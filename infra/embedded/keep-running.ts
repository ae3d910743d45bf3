import { pause } from '../lifecycle.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 15_000;
/** A server that lived so long is taken for healthy: what went before does not count any more. */
const HEALTHY_MS = 60_000;
/** So many ends in a row, with no healthy run between, are no accident: somebody has to look. */
const MANY_FAILURES = 8;

type Exit = Awaited<EmbeddedService['exited']>;

export interface KeepOptions {
  readonly log: ServiceLog;
  /** Told after each new start. */
  readonly onRestart: () => void;
  readonly firstPauseMs?: number;
  readonly longestPauseMs?: number;
}

/**
 * Starts a server, and starts it again on the same folder and port whenever it ends by itself: clients find it where it
 * was. It never gives up: a disk that is full, or a port that is taken, is so for a while. `pid` is that of the moment;
 * `exited` resolves when it is stopped.
 */
export async function keepRunning<S extends EmbeddedService>(
  start: () => Promise<S>,
  { log, onRestart, firstPauseMs = FIRST_PAUSE_MS, longestPauseMs = LONGEST_PAUSE_MS }: KeepOptions,
): Promise<S> {
  const first = await start();
  const service = first.name;
  const stopping = new AbortController();
  let current = first;
  let startedAt = Date.now();
  let failures = 0;

  /** Null when it was stopped meanwhile. */
  const another = async ({ code, signal }: Exit): Promise<S | null> => {
    for (let how: string = signal ?? `code ${code}`; !stopping.signal.aborted;) {
      failures = Date.now() - startedAt > HEALTHY_MS ? 1 : failures + 1;
      const told = { service, how, failures };
      if (failures < MANY_FAILURES) log.warn(told, `embedded ${service} ended; it is started again`);
      else log.error(told, `embedded ${service} does not come back: ${how}; it is tried on`);
      await pause(Math.min(longestPauseMs, firstPauseMs * 2 ** (failures - 1)), stopping.signal);
      if (stopping.signal.aborted) return null;
      startedAt = Date.now();
      try {
        return await start();
      } catch (error) {
        how = error instanceof Error ? error.message : String(error);
      }
    }
    return null;
  };

  const watch = async (): Promise<Exit> => {
    for (;;) {
      const exit = await current.exited;
      const next = await another(exit);
      if (next === null) return exit;
      current = next;
      if (stopping.signal.aborted) await current.stop();
      else onRestart();
    }
  };
  const exited = watch();

  return {
    ...first,
    get pid() {
      return current.pid;
    },
    exited,
    async stop() {
      stopping.abort();
      await current.stop();
      // A start that was under way is waited for, and stopped in its turn.
      await exited;
    },
  };
}
