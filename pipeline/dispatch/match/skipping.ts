import type { CheckpointedConsumer } from '../../../infra/kafka/checkpointed-consumer.ts';
import { startLoop } from '../../../infra/loop.ts';
import type { Loop } from '../../../infra/loop.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { DispatchDeps } from '../deps.ts';

/** Between two reads of the end of the log; a decided command only causes a check of the webhooks. */
const CHECK_MS = 5000;

export interface SkippingDeps extends Pick<
  DispatchDeps,
  'kafka' | 'metrics' | 'clock' | 'retryWhileUnavailable'
> {
  readonly matcher: string;
  readonly topic: Topic<unknown>;
  /** A webhook can match a message. */
  readonly isOpen: () => Promise<boolean>;
  readonly consumer: Pick<CheckpointedConsumer, 'skip' | 'resumeSkipped'>;
  /** The partition waits for a projection: its checkpoint stays. */
  readonly isPaused: (partition: number) => boolean;
  /** Messages of the partition were passed: it waits for nothing. */
  readonly onSkipped: (partition: number) => Promise<void>;
  readonly onFatal: (error: unknown) => void;
}

/**
 * Passes messages unread while no webhook can match them: nothing is fetched or decompressed, and the checkpoints move to
 * where the log ended at the previous check.
 *
 * A webhook is still matched with every message that is published after it can be read in PostgreSQL, because the end of
 * the log is read before the check that finds no webhook; and with those of `CHECK_MS` before that, because the end is the one
 * of the previous check, which found none either.
 */
export function startSkipping(deps: SkippingDeps): Loop {
  const { matcher, topic, isOpen, kafka, metrics, consumer, isPaused, onSkipped } = deps;
  /** By partition, the end of the log at the previous check; null: a webhook was found, and nothing is stopped. */
  let ends: ReadonlyMap<number, number> | null = null;
  let nextCheckAt = 0;

  async function check(): Promise<number> {
    if (await isOpen()) {
      if (ends !== null) await consumer.resumeSkipped(topic.name);
      ends = null;
      nextCheckAt = 0;
      return CHECK_MS;
    }
    const waitMs = nextCheckAt - performance.now();
    if (waitMs > 0) return waitMs;
    // Also where this check fails: it may have stopped partitions.
    ends ??= new Map();
    const to = new Map([...ends].filter(([partition]) => !isPaused(partition)));
    const skipped = await consumer.skip(topic.name, to);
    ends = new Map((await kafka.offsets(topic)).map(({ partition, high }) => [partition, high]));
    nextCheckAt = performance.now() + CHECK_MS;
    for (const partition of skipped) {
      // The checkpoint is one check behind the log, which is no backlog: no webhook waits for these messages.
      metrics.lag.set({ matcher, partition }, 0);
      if (!isPaused(partition)) await onSkipped(partition);
    }
    return CHECK_MS;
  }

  return startLoop({ ...deps, round: check });
}
