import { createLogUpdate } from 'log-update';

import { AppError } from '../../../schemas/errors.ts';

/** Progress of a long operation, such as reading the log. */
export interface Progress {
  readonly phase: string;
  /** Messages, or other units. */
  readonly read: number;
  readonly total: number;
}

const PRINT_EVERY_MS = 5000;
const REDRAW_MS = 200;
/** Before this, a rate means nothing. */
const ESTIMATE_MS = 2000;

/** Runs a long operation; SIGINT, SIGTERM and the end of a parent with a channel to it abort its signal, with CONFLICT. */
export async function withInterrupt<T>(
  work: (signal: AbortSignal) => Promise<T>,
  message = 'Stopped; the next run resumes from here',
): Promise<T> {
  const stop = new AbortController();
  const onSignal = (): void => stop.abort(new AppError('CONFLICT', message));
  process.once('SIGINT', onSignal);
  process.once('SIGTERM', onSignal);
  process.once('disconnect', onSignal);
  try {
    return await work(stop.signal);
  } finally {
    process.off('SIGINT', onSignal);
    process.off('SIGTERM', onSignal);
    process.off('disconnect', onSignal);
  }
}

/**
 * Shows progress on stderr: in place on a terminal, otherwise a line every few seconds and at each new phase.
 *
 * @param reading the phase whose units are counted
 * @param afterMs shows nothing before this, except on a terminal
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
  const startedAt = performance.now();
  const screen = process.stderr.isTTY ? createLogUpdate(process.stderr) : null;
  let printedAt = -Infinity;
  let printedPhase = '';
  return {
    show({ phase, read, total }) {
      const now = performance.now();
      if (screen === null && now - startedAt < afterMs) return;
      const isNewPhase = phase !== printedPhase;
      if (quiet || (!isNewPhase && now - printedAt < (screen === null ? PRINT_EVERY_MS : REDRAW_MS))) return;
      [printedAt, printedPhase] = [now, phase];
      const rate = read / Math.max(0.001, (now - startedAt) / 1000);
      const left = rate > 0 ? Math.ceil((total - read) / rate) : 0;
      const pace = now - startedAt < ESTIMATE_MS ? '' : `, ${Math.round(rate)}/s, ${duration(left)} left`;
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
