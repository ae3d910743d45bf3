import { createAlarms } from '../../../infra/health/alarms.ts';
import type { DispatchDeps } from '../deps.ts';
import type { ProjectionProgress } from './projection-progress.ts';

/** A message that cannot be matched before some projections have read it. */
export interface Blocked {
  readonly offset: number;
  /** Polled until it is `projected`. */
  readonly progress: () => Promise<ProjectionProgress>;
}

export interface PausedPartitionsDeps extends Pick<
  DispatchDeps,
  'pool' | 'clock' | 'log' | 'metrics' | 'retryWhileUnavailable'
> {
  readonly matcher: string;
  readonly topic: string;
  /** Reads the partition again from its checkpoint. */
  readonly resume: (partition: number) => Promise<void>;
  readonly onFatal: (error: unknown) => void;
}

const POLL_MS = 1000;

/**
 * Partitions that are paused, each until the message that blocks it is projected. The gauge of a paused partition is 1. A halt,
 * which only an operator ends, also raises an alarm: `/readyz`, `tds status` and the metric `tds_alarms` show it.
 */
export function createPausedPartitions(deps: PausedPartitionsDeps) {
  const { matcher, topic, pool, clock, log, metrics, retryWhileUnavailable, resume, onFatal } = deps;
  const alarms = createAlarms(pool);
  const waits = new Map<number, { readonly stopping: AbortController; readonly done: Promise<void> }>();
  const cleared = new Set<number>();
  const alarmOf = (partition: number): string => `webhooks.waiting:${matcher}:${topic}:${partition}`;
  const clearAlarm = async (partition: number): Promise<void> =>
    await retryWhileUnavailable(() => alarms.clear([alarmOf(partition)]));

  async function report(
    partition: number,
    offset: number,
    { state, detail }: Exclude<ProjectionProgress, { state: 'projected' }>,
  ): Promise<void> {
    const fields = { matcher, partition, offset, detail };
    if (state === 'halted') {
      log.error(fields, 'matching paused: waits for a halted projection');
      await retryWhileUnavailable(() =>
        alarms.raise(alarmOf(partition), `offset ${offset} waits: ${detail}`),
      );
    } else {
      log.warn(fields, 'matching paused: waits for a projection that is behind');
      await clearAlarm(partition);
    }
  }

  async function waitFor(
    partition: number,
    { offset, progress }: Blocked,
    signal: AbortSignal,
  ): Promise<void> {
    let reported: string | null = null;
    for (;;) {
      const found = await retryWhileUnavailable(progress);
      if (signal.aborted) return;
      if (found.state === 'projected') break;
      if (found.state !== reported) await report(partition, offset, found);
      reported = found.state;
      await clock.sleep(POLL_MS, signal);
      if (signal.aborted) return;
    }
    await clearAlarm(partition);
    if (signal.aborted) return;
    log.info({ matcher, partition, offset }, 'matching resumed');
    waits.delete(partition);
    metrics.paused.set({ matcher, partition }, 0);
    await resume(partition);
  }

  /** Stops waiting: another process reads the partition. */
  const forget = (partition: number): void => {
    waits.get(partition)?.stopping.abort();
    waits.delete(partition);
    cleared.delete(partition);
    metrics.paused.set({ matcher, partition }, 0);
  };

  return {
    forget,
    pause(partition: number, blocked: Blocked): void {
      forget(partition);
      const stopping = new AbortController();
      metrics.paused.set({ matcher, partition }, 1);
      const done = waitFor(partition, blocked, stopping.signal).catch((error: unknown) => {
        if (!stopping.signal.aborted) onFatal(error);
      });
      waits.set(partition, { stopping, done });
    },
    has: (partition: number): boolean => waits.has(partition),
    /** Clears an alarm that the previous reader of the partition has left; once per assignment. */
    async clearStaleAlarm(partition: number): Promise<void> {
      if (cleared.has(partition)) return;
      await clearAlarm(partition);
      cleared.add(partition);
    },
    async stop(): Promise<void> {
      const all = [...waits.values()];
      for (const { stopping } of all) stopping.abort();
      await Promise.all(all.map(({ done }) => done));
    },
  };
}
