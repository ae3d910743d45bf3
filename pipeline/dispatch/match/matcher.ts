import { jsonOf } from '../../../infra/json.ts';
import { startCheckpointedConsumer } from '../../../infra/kafka/checkpointed-consumer.ts';
import type { CheckpointedBatch } from '../../../infra/kafka/checkpointed-consumer.ts';
import type { Kafka, LogMessage } from '../../../infra/kafka/client.ts';
import type { Handled } from '../../../infra/kafka/consumption.ts';
import { isTableMissing } from '../../../infra/postgres/client.ts';
import type { PoolClient } from '../../../infra/postgres/client.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Loop } from '../../../infra/loop.ts';
import { createPausedPartitions } from './paused-partitions.ts';
import type { Blocked, PausedPartitionsDeps } from './paused-partitions.ts';
import { startSkipping } from './skipping.ts';

/** The writes of a message, made in the transaction that moves the checkpoint past it; may be repeated. */
export type MatchPlan = (tx: PoolClient) => Promise<void>;

/**
 * What a message leads to: writes, nothing (null), or a wait for projections. It rejects when the dispatcher stops while it
 * waits: the batch is then abandoned, and the next reader begins with this message.
 */
export type Match<M> = (message: M, logged: LogMessage) => Promise<MatchPlan | Blocked | null>;

/** Matches the messages of a topic with the webhooks. */
export interface Matcher<M> {
  /** Part of the name of its checkpoints and consumer group: a renamed matcher begins again. */
  readonly name: string;
  readonly topic: Topic<M>;
  /** Unix milliseconds: without a checkpoint, reading begins with messages of this time; null: with those to come. */
  since(): Promise<number | null>;
  /** Messages matched concurrently; 1 where a message depends on the writes of the previous one. */
  readonly concurrency: number;
  /** Called for every batch, and in between, because webhooks may have changed. Null: no message can match. */
  open(): Promise<{ isRelevant(message: LogMessage): boolean; readonly match: Match<M> } | null>;
}

export interface MatcherDeps extends Omit<PausedPartitionsDeps, 'matcher' | 'topic' | 'resume' | 'onFatal'> {
  readonly kafka: Kafka;
  /** Fires when the dispatcher stops. */
  readonly signal: AbortSignal;
  /** Deliveries may have been stored. */
  readonly onMatched: () => void;
}

/** The result of each item, in their order; `concurrency` items are worked on at a time. */
export async function* mapInOrder<I, R>(
  items: readonly I[],
  concurrency: number,
  work: (item: I) => Promise<R>,
): AsyncGenerator<readonly [item: I, result: R]> {
  const started: (readonly [I, Promise<R>])[] = [];
  for (const [done, item] of items.entries()) {
    for (const next of items.slice(done + started.length, done + concurrency)) {
      const working = work(next);
      // A consumer that has stopped iterating does not await it: its rejection is no unhandled one.
      working.catch(() => {});
      started.push([next, working]);
    }
    const [, result] = started.shift() ?? [item, work(item)];
    yield [item, await result];
  }
}

/**
 * Reads a topic and stores deliveries, each message's in the transaction that moves the checkpoint past it: a crash stores
 * them once, and of two processes that read one partition the later one is refused.
 *
 * A message that is blocked by a projection pauses its partition: the checkpoint stays before it, other partitions
 * continue, and the partition is read on from the checkpoint once the message is projected.
 *
 * While no webhook can match, messages are passed unread (`startSkipping`).
 */
export async function runMatcher<M>(
  matcher: Matcher<M>,
  deps: MatcherDeps,
  onFatal: (error: unknown) => void,
): Promise<Loop> {
  const { kafka, metrics, signal, onMatched } = deps;
  const { name, topic } = matcher;
  const paused = createPausedPartitions({
    ...deps,
    matcher: name,
    topic: topic.name,
    onFatal,
    resume: async (partition) => await (await starting).resume(topic.name, partition),
  });

  async function handle(batch: CheckpointedBatch): Promise<Handled> {
    const { partition, messages, highWatermark } = batch;
    if (paused.has(partition)) return 'abandoned';
    await paused.clearStaleAlarm(partition);
    // As of the fetch: messages that arrive during a long batch count with the next one.
    const reportLag = (next: number): void =>
      metrics.lag.set({ matcher: name, partition }, Math.max(0, highWatermark - next));
    reportLag(messages[0]?.offset ?? 0);
    const match = await createBatchMatch(matcher, deps);
    for await (const [{ offset }, result] of mapInOrder(messages, matcher.concurrency, match)) {
      if (typeof result === 'function') {
        await batch.commit(offset + 1, result);
        onMatched();
      } else if (result !== null) {
        await batch.commit(offset, async () => {});
        paused.pause(partition, result);
        return 'abandoned';
      }
      reportLag(offset + 1);
    }
    return 'done';
  }

  // A matcher that starts later must not end those that run.
  await deps.retryWhileUnavailable(() => kafka.topicId(topic));
  const starting = startCheckpointedConsumer({
    ...deps,
    name: `dispatch-${name}`,
    topics: [topic],
    outsideLog: 'clamp',
    async initialOffset(_, { partition, high }) {
      const since = await matcher.since();
      const offsets = since === null ? [] : await kafka.offsetsAt(topic, since);
      return offsets.find((one) => one.partition === partition)?.offset ?? high;
    },
    handle,
    onRevoked(partitions) {
      for (const { partition } of partitions) {
        paused.forget(partition);
        metrics.lag.remove({ matcher: name, partition });
      }
    },
    signal,
    onError: onFatal,
  });
  const consumer = await starting;
  const skipping = startSkipping({
    ...deps,
    matcher: name,
    topic,
    isOpen: async () => (await matcher.open()) !== null,
    consumer,
    isPaused: (partition) => paused.has(partition),
    onSkipped: (partition) => paused.clearStaleAlarm(partition),
    onFatal,
  });
  return {
    wake: () => skipping.wake(),
    async stop() {
      await Promise.all([consumer.stop(), paused.stop(), skipping.stop()]);
    },
  };
}

/** Matches the messages of one batch; opens the matcher again when a rebuild has removed a table that it read. */
async function createBatchMatch<M>(
  matcher: Matcher<M>,
  { retryWhileUnavailable, log, metrics }: MatcherDeps,
): Promise<(message: LogMessage) => Promise<MatchPlan | Blocked | null>> {
  const { name, topic } = matcher;
  let opened = await retryWhileUnavailable(() => matcher.open());

  /** Null for an invalid message: projections halt at it, and deliveries of later messages must not wait. */
  const parse = ({ partition, offset, value }: LogMessage): M | null => {
    const parsed = topic.schema.safeParse(jsonOf(value));
    if (parsed.success) return parsed.data;
    log.error({ matcher: name, partition, offset }, 'invalid message skipped');
    metrics.unreadable.inc({ topic: topic.name });
    return null;
  };

  return async (message) => {
    if (opened?.isRelevant(message) !== true) return null;
    const value = parse(message);
    if (value === null) return null;
    return await retryWhileUnavailable(async () => {
      try {
        return (await opened?.match(value, message)) ?? null;
      } catch (error) {
        if (isTableMissing(error)) opened = await matcher.open();
        throw error;
      }
    });
  };
}
