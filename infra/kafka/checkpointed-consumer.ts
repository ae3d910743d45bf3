import { AppError } from '../../schemas/errors.ts';
import { sleep } from '../lifecycle.ts';
import { inTransaction } from '../postgres/client.ts';
import type { Pool, PoolClient } from '../postgres/client.ts';
import { isStoreUnavailable } from '../retry-while-unavailable.ts';
import type { RetryWhileUnavailable } from '../retry-while-unavailable.ts';
import {
  CheckpointConflict,
  createCheckpoints,
  identifyLog,
  moveCheckpoints,
  replaceCheckpoint,
  storedCheckpoints,
} from './checkpoints.ts';
import type { CheckpointOwner, LogIdentity } from './checkpoints.ts';
import type { Kafka, TopicOffsets } from './client.ts';
import { createConsumer } from './consumer.ts';
import type { ConsumerOptions, LogConsumer } from './consumer.ts';

import type { Handled, LogBatch } from './consumption.ts';

/** The server ends a transaction that is idle for so long, so that a frozen process does not keep its locks. */
const IDLE_MS = 10_000;
/** Between two comparisons of the stored checkpoints with those in memory; a new message shows a difference at once. */
const CHECKPOINT_CHECK_MS = 30_000;

/** A batch whose first message is the one that the stored checkpoint expects. */
export interface CheckpointedBatch extends LogBatch {
  /** The offset after the last message. */
  readonly nextOffset: number;
  /**
   * Moves the checkpoint to `nextOffset`, in one transaction with `work`, which is repeated while PostgreSQL is
   * unavailable. May be called several times a batch, with rising offsets.
   *
   * @throws CheckpointConflict when another process has moved the checkpoint; nothing of `work` is kept. Let it pass: the
   * consumer resumes from the stored offset.
   */
  commit<T>(nextOffset: number, work: (tx: PoolClient) => Promise<T>): Promise<T>;
}

export interface CheckpointedConsumerOptions extends Omit<
  ConsumerOptions,
  'kafka' | 'groupId' | 'startOffset' | 'handle'
> {
  readonly kafka: Pick<Kafka, 'consume' | 'offsets' | 'topicId'>;
  readonly pool: Pool;
  /** Name of the checkpoints, such as `observe-tokens`: a renamed consumer begins again. */
  readonly name: string;
  /** Default: `name`. Two consumers of one name need two groups, and must not share a topic. */
  readonly groupId?: string;
  /**
   * What becomes of a checkpoint that lies outside the log. `stop`: `onError` with CHECKPOINT_OUTSIDE_LOG. `clamp`: the
   * nearest offset of the log, with an error in the log. `restart`: the first offset. With `clamp` and `restart` a
   * checkpoint of another topic id counts as none.
   */
  readonly outsideLog: 'stop' | 'clamp' | 'restart';
  /** Where to begin without a checkpoint; clamped to the log. Default: its first offset. */
  readonly initialOffset?: (topic: string, partition: TopicOffsets) => Promise<number>;
  /**
   * Handles one batch at a time. `done`: the checkpoint moves to the end of the batch, unless `commit` has moved it there.
   * `abandoned`: the process shuts down, or the batch cannot be finished now; nothing past the last `commit` is stored, and
   * no further batch of the partition comes before `resume` or the next assignment. An error is a bug and goes to
   * `onError`, or counts as `abandoned` once `signal` has fired.
   */
  readonly handle: (batch: CheckpointedBatch) => Promise<Handled>;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  /** Default: 30,000. */
  readonly checkpointCheckMs?: number;
}

export interface CheckpointedConsumer {
  /** Reads a partition again whose batch was abandoned, from its checkpoint. */
  readonly resume: (topic: string, partition: number) => Promise<void>;
  /**
   * Passes messages unread: stops fetching the assigned partitions of a topic, and moves the checkpoints of those that
   * a previous call has stopped up to these offsets, by partition. A checkpoint that another process moves at the same
   * time stays where that process has moved it. Fetching begins again with `resumeSkipped` or the next assignment.
   *
   * @returns the assigned partitions
   */
  readonly skip: (topic: string, offsets: ReadonlyMap<number, number>) => Promise<readonly number[]>;
  /** Reads the partitions that `skip` has stopped from their checkpoints. */
  readonly resumeSkipped: (topic: string) => Promise<void>;
  stop(): Promise<void>;
}

/**
 * Reads topics as a member of a group, each partition from its stored checkpoint, and stores checkpoints by
 * compare-and-set: of two processes that read one partition, the later one resumes from where the other has stored. A
 * checkpoint that has moved back, because PostgreSQL has failed over and lost transactions, is resumed from, too.
 *
 * Starting fails when Kafka does not identify the topics: the caller names what it waits for, and starts again. From then on
 * it waits for Kafka itself.
 *
 * `stop` waits for the handler: abort `signal` before it, and let the handler return `abandoned`.
 */
export async function startCheckpointedConsumer(
  options: CheckpointedConsumerOptions,
): Promise<CheckpointedConsumer> {
  const { kafka, pool, name, topics, retryWhileUnavailable } = options;
  const groupId = options.groupId ?? name;
  const owner = ownerOf(name);
  const logs = new Map<string, LogIdentity>();
  for (const topic of topics) {
    logs.set(topic.name, await identifyLog(kafka, topic));
  }
  const logOf = (topic: string): LogIdentity => {
    const log = logs.get(topic);
    if (log === undefined) throw new RangeError(`${name} does not read ${topic}`);
    return log;
  };

  const move = async (
    db: Pool | PoolClient,
    { topic, partition }: LogBatch,
    expected: number,
    next: number,
  ): Promise<void> => {
    const refused = await moveCheckpoints(db, logOf(topic), [{ owner, partition, expected, next }]);
    if (refused.length > 0) throw new CheckpointConflict(owner, `${topic}:${partition}`, expected);
  };

  const reached = createReachedOffsets();
  async function handle(batch: LogBatch): Promise<Handled> {
    const { topic, partition, messages } = batch;
    let stored = messages[0]?.offset ?? 0;
    const nextOffset = (messages.at(-1)?.offset ?? -1) + 1;
    const handled = await options.handle({
      ...batch,
      nextOffset,
      async commit(next, work) {
        const result = await retryWhileUnavailable(() =>
          inTransaction(
            pool,
            async (tx) => {
              // First the checkpoint: a second process waits for its row, and is then refused.
              await move(tx, batch, stored, next);
              return await work(tx);
            },
            { idleMs: IDLE_MS },
          ),
        );
        stored = next;
        reached.set(topic, partition, stored);
        return result;
      },
    });
    if (handled === 'done' && stored < nextOffset) {
      await retryWhileUnavailable(() => move(pool, batch, stored, nextOffset));
      stored = nextOffset;
      reached.set(topic, partition, stored);
    }
    // Shows lag only; refused during a rebalance, after which the next batch commits.
    consumer.commit(topic, partition, stored).catch(() => {});
    return handled;
  }

  const consumer = createConsumer({
    ...options,
    groupId,
    async startOffset(topic, partition) {
      skipped.forget(topic, partition);
      const offset = await retryWhileUnavailable(() => startOffset(options, logOf(topic), partition));
      reached.set(topic, partition, offset);
      return offset;
    },
    handle,
  });
  const skipped = createSkipped(pool, owner, logOf, reached, consumer);
  await retryWhileUnavailable(() => consumer.start());
  void resumeRewound(options, reached, (topic, partition) => consumer.resume(topic, partition));
  return {
    resume: (topic, partition) => consumer.resume(topic, partition),
    skip: skipped.skip,
    resumeSkipped: (topic) => skipped.resume(topic),
    stop: () => consumer.stop(),
  };
}

function ownerOf(consumer: string): CheckpointOwner {
  return { consumer, build: 0 };
}

type ReachedOffsets = ReturnType<typeof createReachedOffsets>;

/** By partition, the highest offset that this process has stored or read as its checkpoint. */
function createReachedOffsets() {
  const offsets = new Map<string, Map<number, number>>();
  return {
    of: (topic: string): ReadonlyMap<number, number> => new Map(offsets.get(topic)),
    set(topic: string, partition: number, offset: number): void {
      offsets.set(topic, (offsets.get(topic) ?? new Map<number, number>()).set(partition, offset));
    },
  };
}

/** The partitions that are passed unread. */
function createSkipped(
  pool: Pool,
  owner: CheckpointOwner,
  logOf: (topic: string) => LogIdentity,
  reached: ReachedOffsets,
  consumer: LogConsumer,
) {
  const partitionsOf = new Map<string, Set<number>>();
  const skip: CheckpointedConsumer['skip'] = async (topic, offsets) => {
    const stopped = partitionsOf.get(topic) ?? new Set();
    partitionsOf.set(topic, stopped);
    const assigned = await consumer.pause(topic);
    // One that is stopped only now may have a batch under way, whose commit would be refused.
    const idle = assigned.filter((partition) => stopped.has(partition));
    // Before anything can fail, so that `resume` finds them.
    for (const partition of assigned) stopped.add(partition);
    const stored = await storedCheckpoints(pool, owner, logOf(topic).topic);
    const moves = stored.flatMap(({ partition, nextOffset: expected }) => {
      const next = offsets.get(partition) ?? 0;
      const isMoved = next > expected && idle.includes(partition) && stopped.has(partition);
      return isMoved ? [{ owner, partition, expected, next }] : [];
    });
    const refused = await moveCheckpoints(pool, logOf(topic), moves);
    for (const { partition, next } of moves.filter((one) => !refused.includes(one))) {
      reached.set(topic, partition, next);
      consumer.commit(topic, partition, next).catch(() => {});
    }
    return assigned;
  };
  return {
    skip,
    async resume(topic: string): Promise<void> {
      for (const partition of partitionsOf.get(topic) ?? []) await consumer.resume(topic, partition);
    },
    /** The partition is read from its checkpoint. */
    forget: (topic: string, partition: number): void => void partitionsOf.get(topic)?.delete(partition),
  };
}

/** Resumes partitions whose stored checkpoint has moved back, until the consumer shuts down. */
async function resumeRewound(
  { pool, name, topics, log, signal, onError, checkpointCheckMs }: CheckpointedConsumerOptions,
  reached: ReachedOffsets,
  resume: CheckpointedConsumer['resume'],
): Promise<void> {
  const check = async (): Promise<void> => {
    for (const topic of topics) {
      const before = reached.of(topic.name);
      const stored = await storedCheckpoints(pool, ownerOf(name), topic);
      for (const { partition, nextOffset } of stored) {
        if (nextOffset >= (before.get(partition) ?? 0)) continue;
        log.warn({ consumer: name, topic: topic.name, partition, nextOffset }, 'checkpoint has moved back');
        reached.set(topic.name, partition, nextOffset);
        await resume(topic.name, partition);
      }
    }
  };
  for (;;) {
    await sleep(checkpointCheckMs ?? CHECKPOINT_CHECK_MS, signal);
    if (signal.aborted) return;
    try {
      await check();
    } catch (error) {
      if (!isStoreUnavailable(error)) return signal.aborted ? undefined : onError(error);
      log.warn({ consumer: name, err: error }, 'checkpoints not compared; PostgreSQL unavailable');
    }
  }
}

/** The stored offset, made valid for the log as it is. */
async function startOffset(
  options: CheckpointedConsumerOptions,
  identity: LogIdentity,
  partition: number,
): Promise<number> {
  const { kafka, pool, log, name, outsideLog, initialOffset } = options;
  const { topic, topicId } = identity;
  const owner = ownerOf(name);
  // The log is read after the table: a checkpoint that moves in between cannot seem to be past the end.
  const load = async () =>
    (await storedCheckpoints(pool, owner, topic)).find((one) => one.partition === partition);
  const stored = await load();
  const range = (await kafka.offsets(topic)).find((one) => one.partition === partition);
  if (range === undefined)
    throw new AppError('NOT_FOUND', `Topic ${topic.name} has no partition ${partition}`);
  const clamp = (offset: number): number => Math.min(Math.max(offset, range.low), range.high);
  const begin = async (): Promise<number> =>
    initialOffset === undefined ? range.low : clamp(await initialOffset(topic.name, range));

  if (stored === undefined) {
    await createCheckpoints(pool, owner, identity, new Map([[partition, await begin()]]));
  } else if (stored.topicId !== topicId || stored.nextOffset !== clamp(stored.nextOffset)) {
    const detail = { consumer: name, topic: topic.name, partition, stored, low: range.low, high: range.high };
    if (outsideLog === 'stop') {
      throw new AppError(
        'CHECKPOINT_OUTSIDE_LOG',
        `Checkpoint of ${name} in ${topic.name}:${partition} is ${stored.nextOffset} of topic id ${stored.topicId}; the log has ${range.low} to ${range.high} of topic id ${topicId}`,
      );
    }
    const isClamped = outsideLog === 'clamp' && stored.topicId === topicId;
    const next = isClamped ? clamp(stored.nextOffset) : await begin();
    if (isClamped) log.error({ ...detail, next }, 'checkpoint outside the log, messages skipped');
    else log.warn({ ...detail, next }, 'checkpoint outside the log, beginning again');
    await replaceCheckpoint(pool, owner, identity, stored, next);
  } else {
    return stored.nextOffset;
  }
  // Read again: another process may have been faster.
  return (await load())?.nextOffset ?? range.low;
}
