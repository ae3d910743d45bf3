import type { Clock } from '../../../infra/clock.ts';
import type { Logger } from '../../../infra/log.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { Alarms } from '../../observe/alarms.ts';
import type { DispatchMetrics } from '../metrics.ts';
import type { ProjectionProgress } from './projection-progress.ts';

/** A message that cannot be matched before some projections have read it. */
export interface Blocked {
  readonly offset: number;
  /** Asked again until it says `projected`. */
  readonly progress: () => Promise<ProjectionProgress>;
}

/** Partitions whose consumption is paused, each until the message that blocks it is projected. */
export interface PausedPartitions {
  pause(partition: number, blocked: Blocked): void;
  has(partition: number): boolean;
  /** Stops waiting for a partition that another process has taken over. */
  forget(partition: number): void;
  /** Clears the alarm that an earlier process left behind. */
  clearAlarm(partition: number): Promise<void>;
  stop(): Promise<void>;
}

const POLL_MS = 1000;

/**
 * While a partition is paused, its gauge is 1, and its alarm is raised as long as the cause is a halt: that ends only when
 * an operator retries or skips the poison message. Then `resume` is called.
 */
export function createPausedPartitions({
  matcher,
  topic,
  resume,
  alarms,
  clock,
  log,
  metrics,
  retryWhileUnavailable,
  onFatal,
}: {
  readonly matcher: string;
  readonly topic: string;
  readonly resume: (partition: number) => Promise<void>;
  readonly alarms: Alarms;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Pick<DispatchMetrics, 'paused'>;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  readonly onFatal: (error: unknown) => void;
}): PausedPartitions {
  const waits = new Map<number, { readonly stopping: AbortController; readonly done: Promise<void> }>();
  const alarmOf = (partition: number): string => `webhooks.waiting:${matcher}:${topic}:${partition}`;

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
      if (found.state !== reported) {
        const fields = { matcher, partition, offset, detail: found.detail };
        if (found.state === 'halted') log.error(fields, 'matching paused: waits for a halted projection');
        else log.warn(fields, 'matching paused: waits for a projection that is behind');
        await retryWhileUnavailable(async () =>
          found.state === 'halted'
            ? await alarms.raise(alarmOf(partition), `offset ${offset} waits: ${found.detail}`)
            : await alarms.clear([alarmOf(partition)]),
        );
        reported = found.state;
      }
      await clock.sleep(POLL_MS, signal);
      if (signal.aborted) return;
    }
    await retryWhileUnavailable(() => alarms.clear([alarmOf(partition)]));
    if (signal.aborted) return;
    log.info({ matcher, partition, offset }, 'matching resumed');
    waits.delete(partition);
    metrics.paused.set({ matcher, partition }, 0);
    await resume(partition);
  }

  const forget = (partition: number): void => {
    waits.get(partition)?.stopping.abort();
    waits.delete(partition);
    metrics.paused.set({ matcher, partition }, 0);
  };

  return {
    forget,
    pause(partition, blocked) {
      forget(partition);
      const stopping = new AbortController();
      metrics.paused.set({ matcher, partition }, 1);
      const done = waitFor(partition, blocked, stopping.signal).catch((error: unknown) => {
        if (!stopping.signal.aborted) onFatal(error);
      });
      waits.set(partition, { stopping, done });
    },
    has: (partition) => waits.has(partition),
    async clearAlarm(partition) {
      if (!waits.has(partition)) await retryWhileUnavailable(() => alarms.clear([alarmOf(partition)]));
    },
    async stop() {
      for (const { stopping } of waits.values()) stopping.abort();
      await Promise.all([...waits.values()].map(({ done }) => done));
    },
  };
}
