import type { Topic } from '../../schemas/topics.ts';
import type { Logger } from '../log.ts';
import { CheckpointConflict } from './checkpoints.ts';
import type { Kafka } from './client.ts';
import type { ConsumeOptions, Consumption, Handled, LogBatch, TopicPartition } from './consumption.ts';

export interface ConsumerOptions {
  readonly kafka: Pick<Kafka, 'consume'>;
  readonly log: Logger;
  readonly groupId: string;
  readonly topics: readonly Topic<unknown>[];
  readonly minBytes?: ConsumeOptions['minBytes'];
  /** Fires when the consumer shuts down: an error of the handler then counts as `abandoned`. */
  readonly signal: AbortSignal;
  /** Offset to read a partition from: looked up at every assignment, and by `resume`. */
  readonly startOffset: (topic: string, partition: number) => Promise<number>;
  /** One batch at a time. A `CheckpointConflict` that it throws resumes the partition. */
  readonly handle: (batch: LogBatch) => Promise<Handled>;
  readonly onRevoked?: (partitions: readonly TopicPartition[]) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * A member of a consumer group that reads from stored checkpoints. Made before it is started, so that what it works with
 * can refer to it; `seek`, `resume` and `commit` wait for the start.
 */
export interface LogConsumer {
  start(): Promise<void>;
  /** Reads on from another offset. */
  seek(topic: string, partition: number, offset: number): Promise<void>;
  /** Reads on from `startOffset`; a partition that is no longer assigned is reported as revoked. */
  resume(topic: string, partition: number): Promise<void>;
  /** Stops fetching the assigned partitions until `resume`, `seek` or the next assignment; returns which those are. */
  pause(topic: string): Promise<readonly number[]>;
  /** Moves the group's offset, which only shows lag in Kafka's tools; refused during a rebalance. */
  commit(topic: string, partition: number, nextOffset: number): Promise<void>;
  stop(): Promise<void>;
}

export function createConsumer(options: ConsumerOptions): LogConsumer {
  const { kafka, log, groupId, topics, minBytes, signal, startOffset, handle, onRevoked } = options;
  const consuming = Promise.withResolvers<Consumption>();
  let started: Consumption | null = null;

  const resume: LogConsumer['resume'] = async (topic, partition) => {
    const consumption = await consuming.promise;
    const isAssigned = consumption
      .assigned()
      .some((one) => one.topic === topic && one.partition === partition);
    if (isAssigned) consumption.seek(topic, partition, await startOffset(topic, partition));
    else onRevoked?.([{ topic, partition }]);
  };

  const onBatch = async (batch: LogBatch): Promise<Handled> => {
    const { topic, partition } = batch;
    try {
      return await handle(batch);
    } catch (error) {
      if (signal.aborted) return 'abandoned';
      if (!(error instanceof CheckpointConflict)) throw error;
      log.warn({ groupId, topic, partition, err: error }, 'checkpoint conflict, resuming from stored offset');
      await resume(topic, partition);
      return 'done'; // reading continues from where `resume` has sought
    }
  };

  return {
    async start() {
      started = await kafka.consume({
        groupId,
        topics,
        minBytes,
        startAt: startOffset,
        onBatch,
        ...(onRevoked === undefined ? {} : { onRevoked }),
        onCrash: options.onError,
      });
      consuming.resolve(started);
    },
    resume,
    seek: async (topic, partition, offset) => (await consuming.promise).seek(topic, partition, offset),
    async pause(topic) {
      const consumption = await consuming.promise;
      const partitions = consumption
        .assigned()
        .flatMap((one) => (one.topic === topic ? [one.partition] : []));
      for (const partition of partitions) consumption.pause(topic, partition);
      return partitions;
    },
    commit: async (topic, partition, nextOffset) =>
      await (await consuming.promise).commit(topic, partition, nextOffset),
    stop: async () => await started?.stop(),
  };
}
