import type { Topic } from '../../schemas/topics.ts';
import type { Logger } from '../log.ts';
import { CheckpointConflict } from './checkpoints.ts';
import type { Kafka } from './client.ts';
import type { Handled, LogBatch } from './consumption.ts';

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

export interface ConsumerOptions {
  readonly kafka: Pick<Kafka, 'consume'>;
  readonly log: Logger;
  readonly groupId: string;
  readonly topics: readonly Topic<unknown>[];
  /** Compressed bytes of one fetch. */
  readonly fetchBytes?: number;
  /** True once the consumer shuts down: an error of the handler is then `abandoned`. */
  readonly signal: AbortSignal;
  /** Offset to read a partition from: asked at every assignment, and after a checkpoint conflict. */
  readonly startOffset: (topic: string, partition: number) => Promise<number>;
  /** One batch at a time. A `CheckpointConflict` that it throws resumes the partition from `startOffset`. */
  readonly handle: (batch: LogBatch) => Promise<Handled>;
  readonly onRevoked?: (partitions: readonly TopicPartition[]) => void;
  readonly onError: (error: unknown) => void;
}

/** A member of a consumer group that reads from stored checkpoints. */
export interface LogConsumer {
  /** Reads on from another offset. */
  seek(topic: string, partition: number, offset: number): Promise<void>;
  /** Reads on from `startOffset`; a partition that is no longer assigned is reported as revoked. */
  resume(topic: string, partition: number): Promise<void>;
  /** Moves the group's offset, which only shows lag in Kafka's tools; refused during a rebalance. */
  commit(topic: string, partition: number, nextOffset: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startConsumer(options: ConsumerOptions): Promise<LogConsumer> {
  const { kafka, log, groupId, signal, startOffset, handle, onRevoked } = options;
  const consuming = kafka.consume({
    groupId,
    topics: options.topics,
    ...(options.fetchBytes === undefined ? {} : { fetchBytes: options.fetchBytes }),
    startAt: startOffset,
    onBatch,
    ...(onRevoked === undefined ? {} : { onRevoked }),
    onCrash: options.onError,
  });

  async function resume(topic: string, partition: number): Promise<void> {
    const consumption = await consuming;
    const isAssigned = consumption
      .assigned()
      .some((one) => one.topic === topic && one.partition === partition);
    if (isAssigned) consumption.seek(topic, partition, await startOffset(topic, partition));
    else onRevoked?.([{ topic, partition }]);
  }

  async function onBatch(batch: LogBatch): Promise<Handled> {
    const { topic, partition } = batch;
    try {
      return await handle(batch);
    } catch (error) {
      if (signal.aborted) return 'abandoned';
      if (!(error instanceof CheckpointConflict)) throw error;
      log.warn({ groupId, topic, partition, err: error }, 'checkpoint conflict, resuming from stored offset');
      await resume(topic, partition);
      return 'done'; // the seek has taken effect: the end of this batch is not read from
    }
  }

  const consumption = await consuming;
  return {
    resume,
    seek: async (topic, partition, offset) => consumption.seek(topic, partition, offset),
    commit: (topic, partition, nextOffset) => consumption.commit(topic, partition, nextOffset),
    stop: () => consumption.stop(),
  };
}
