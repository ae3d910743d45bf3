import { createLogUpdate } from 'log-update';

/** How far a long reading is, such as one of the log. */
export interface Progress {
  readonly phase: string;
  /** Messages, or what else is counted. */
  readonly read: number;
  readonly total: number;
}

const SAY_EVERY_MS = 5000;
const REDRAW_MS = 200;
/** Before, a rate says nothing. */
const ESTIMATE_MS = 2000;

/** Runs what takes long; SIGINT and SIGTERM abort its signal, with a reason. */
export async function withInterrupt<T>(
  reason: () => Error,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  const onSignal = (): void => stop.abort(reason());
  process.once('SIGINT', onSignal);
  process.once('SIGTERM', onSignal);
  try {
    return await work(stop.signal);
  } finally {
    process.off('SIGINT', onSignal);
    process.off('SIGTERM', onSignal);
  }
}

/**
 * To standard error: in place on a terminal, else a line now and then and at each new phase.
 *
 * @param reading the phase whose messages, or other units, are counted
 * @param afterMs what is done by then says nothing, but on a terminal
 */
export function showProgress<P extends Progress>({
  what,
  reading,
  unit = 'messages',
  quiet,
  afterMs = 0,
}: {
  what: string;
  reading: P['phase'];
  unit?: string;
  quiet: boolean;
  afterMs?: number;
}): { show: (progress: P) => void; end: () => void } {
  const began = performance.now();
  const screen = process.stderr.isTTY ? createLogUpdate(process.stderr) : null;
  let saidAt = -Infinity;
  let saidPhase = '';
  return {
    show({ phase, read, total }) {
      const now = performance.now();
      if (screen === null && now - began < afterMs) return;
      const isNews = phase !== saidPhase;
      if (quiet || (!isNews && now - saidAt < (screen === null ? SAY_EVERY_MS : REDRAW_MS))) return;
      [saidAt, saidPhase] = [now, phase];
      const rate = read / Math.max(0.001, (now - began) / 1000);
      const left = rate > 0 ? Math.ceil((total - read) / rate) : 0;
      const pace = now - began < ESTIMATE_MS ? '' : `, ${Math.round(rate)}/s, ${duration(left)} left`;
      const line =
        phase === reading
          ? `${what}: ${((100 * read) / Math.max(1, total)).toFixed(1)} % of ${total} ${unit}${pace}`
          : `${what}: ${phase}`;
      if (screen === null) process.stderr.write(`${line}\n`);
      else screen(line);
    },
    end: () => screen?.clear(),
  };
}

function duration(seconds: number): string {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  return `${hours > 0 ? `${hours}:` : ''}${String(minutes).padStart(hours > 0 ? 2 : 1, '0')}:${String(seconds % 60).padStart(2, '0')}`;
}
