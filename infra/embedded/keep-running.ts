import { errorMessage } from '../../schemas/errors.ts';
import { sleep } from '../lifecycle.ts';
import { backoffMs } from '../retry.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

const BASE_DELAY_MS = 250;
const MAX_DELAY_MS = 15_000;
/** After this uptime the restart delay starts again at its minimum. */
const HEALTHY_MS = 60_000;
/** From this many consecutive failures each is logged as an error. */
const MANY_FAILURES = 8;

type Exit = Awaited<EmbeddedService['exited']>;

export interface KeepOptions {
  readonly log: ServiceLog;
  /** Called after each restart. */
  readonly onRestart: () => void;
  readonly baseDelayMs?: number;
  readonly maxDelayMs?: number;
}

/**
 * Starts a server and restarts it with backoff, on the same folder and port, whenever it exits. It never gives up: a full
 * disk or a port in use may recover. `pid` is the current one; `exited` resolves when the server is stopped.
 */
export async function keepRunning<S extends EmbeddedService>(
  start: () => Promise<S>,
  { log, onRestart, baseDelayMs = BASE_DELAY_MS, maxDelayMs = MAX_DELAY_MS }: KeepOptions,
): Promise<S> {
  const first = await start();
  const service = first.name;
  const stopping = new AbortController();
  let current = first;
  let startedAt = Date.now();
  let failures = 0;

  /** Null if stopped meanwhile. */
  const restart = async ({ code, signal }: Exit): Promise<S | null> => {
    for (let how: string = signal ?? `code ${code}`; !stopping.signal.aborted;) {
      failures = Date.now() - startedAt > HEALTHY_MS ? 1 : failures + 1;
      const fields = { service, how, failures };
      if (failures < MANY_FAILURES) log.warn(fields, 'embedded service exited, restarting');
      else log.error(fields, 'embedded service keeps failing, retrying');
      const delayMs = backoffMs(failures, { baseMs: baseDelayMs, maxMs: maxDelayMs }, Math.random());
      await sleep(delayMs, stopping.signal);
      if (stopping.signal.aborted) return null;
      startedAt = Date.now();
      try {
        return await start();
      } catch (error) {
        how = errorMessage(error);
      }
    }
    return null;
  };

  const watch = async (): Promise<Exit> => {
    for (;;) {
      const exit = await current.exited;
      const next = await restart(exit);
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
      // A restart in progress is awaited and stopped by `watch`.
      await exited;
    },
  };
}
