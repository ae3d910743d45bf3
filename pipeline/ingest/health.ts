import type { Fence, IngestDeps } from './ports.ts';

/** What /readyz and an operator should hear: alarms by chunk, and stalls even when nothing failed. */
export interface Health {
  /** The chunk got somewhere, or has nothing to do. Clears its alarms. */
  progress(chunk: string): Promise<void>;
  alarm(chunk: string, detail: string): Promise<void>;
  /** The chunk is written by this process from now on, or no longer. Alarms are raised and cleared only while the lease is its own. */
  watch(chunk: string, fence?: Fence): void;
  unwatch(chunk: string): void;
  /** Looks for chunks without progress; to be called about once a second. */
  check(): Promise<void>;
}

interface HealthDeps extends Pick<IngestDeps, 'store' | 'clock' | 'log' | 'metrics'> {
  readonly settings: Pick<IngestDeps['settings'], 'stallMs'>;
}

interface Watched {
  readonly fence: Fence | undefined;
  progressAt: number;
  stalled: boolean;
  alarmed: boolean;
}

export function createHealth({ store, clock, log, metrics, settings }: HealthDeps): Health {
  const watched = new Map<string, Watched>();
  const failing = `ingest.failing:`;
  const stalling = `ingest.stalled:`;

  /** An alarm that cannot be written down is logged all the same: Postgres may be what is away. */
  const write = async (work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      log.warn({ err: error }, 'alarm not written');
      return false;
    }
  };

  return {
    watch(chunk, fence) {
      // Alarms of an earlier process are cleared by the first progress.
      watched.set(chunk, { fence, progressAt: clock.now(), stalled: false, alarmed: true });
    },
    unwatch(chunk) {
      watched.delete(chunk);
      metrics.stalled(chunk, false);
    },
    async progress(chunk) {
      const state = watched.get(chunk);
      if (state === undefined) return;
      state.progressAt = clock.now();
      if (!state.stalled && !state.alarmed) return;
      if (state.stalled) log.info({ chunk }, 'progress again');
      metrics.stalled(chunk, false);
      const cleared = await write(async () => {
        await store.clearAlarm(failing + chunk, state.fence);
        await store.clearAlarm(stalling + chunk, state.fence);
      });
      if (cleared) Object.assign(state, { stalled: false, alarmed: false });
    },
    async alarm(chunk, detail) {
      const state = watched.get(chunk);
      if (state !== undefined) state.alarmed = true;
      await write(() => store.raiseAlarm(failing + chunk, detail, state?.fence));
    },
    async check() {
      for (const [chunk, state] of watched) {
        const idleMs = clock.now() - state.progressAt;
        if (state.stalled || idleMs < settings.stallMs) continue;
        log.error({ chunk, seconds: Math.round(idleMs / 1000) }, 'no progress');
        metrics.stalled(chunk, true);
        // Said once; tried again while it cannot be written down.
        state.stalled = await write(() =>
          store.raiseAlarm(
            stalling + chunk,
            `no progress for ${Math.round(settings.stallMs / 1000)} s`,
            state.fence,
          ),
        );
      }
    },
  };
}
