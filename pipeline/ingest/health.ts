import type { Fence, IngestDeps } from './ports.ts';

/** Alarms per chunk for `/readyz` and operators: failures, and stalls where nothing failed. */
export interface Health {
  /** The chunk made progress, or has nothing to do. Clears its alarms. */
  progress(chunk: string): Promise<void>;
  alarm(chunk: string, detail: string): Promise<void>;
  /** This process starts writing the chunk. With a fence, alarms change only while its lease is valid. */
  watch(chunk: string, fence?: Fence): void;
  unwatch(chunk: string): void;
  /** Raises alarms for chunks without progress. Called about once a second. */
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

const failing = (chunk: string): string => `ingest.failing:${chunk}`;
const stalling = (chunk: string): string => `ingest.stalled:${chunk}`;

export function createHealth({ store, clock, log, metrics, settings }: HealthDeps): Health {
  const watched = new Map<string, Watched>();

  /** False if PostgreSQL did not take the change; it may be what is unavailable. */
  const tryStore = async (work: () => Promise<void>): Promise<boolean> => {
    try {
      await work();
      return true;
    } catch (error) {
      log.warn({ err: error }, 'alarm not stored');
      return false;
    }
  };

  return {
    watch(chunk, fence) {
      // As if alarmed: the first progress clears the alarms of an earlier process.
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
      if (state.stalled) log.info({ chunk }, 'chunk progresses again');
      metrics.stalled(chunk, false);
      const cleared = await tryStore(async () => {
        await store.clearAlarm(failing(chunk), state.fence);
        await store.clearAlarm(stalling(chunk), state.fence);
      });
      if (cleared) Object.assign(state, { stalled: false, alarmed: false });
    },
    async alarm(chunk, detail) {
      const state = watched.get(chunk);
      if (state !== undefined) state.alarmed = true;
      await tryStore(() => store.raiseAlarm(failing(chunk), detail, state?.fence));
    },
    async check() {
      for (const [chunk, state] of watched) {
        const idleMs = clock.now() - state.progressAt;
        if (state.stalled || idleMs < settings.stallMs) continue;
        log.error({ chunk, seconds: Math.round(idleMs / 1000) }, 'chunk stalled');
        metrics.stalled(chunk, true);
        const detail = `no progress for ${Math.round(settings.stallMs / 1000)} s`;
        // Repeated at the next check until it is stored.
        state.stalled = await tryStore(() => store.raiseAlarm(stalling(chunk), detail, state.fence));
      }
    },
  };
}
