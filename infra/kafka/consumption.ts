import type kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';

export interface LogMessage {
  /** Name in `schemas/topics.ts`, without the prefix. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: string | null;
  readonly value: Buffer;
  /** Unix milliseconds, set by the producer. */
  readonly timestamp: number;
}

export interface LogBatch {
  readonly topic: string;
  readonly partition: number;
  /** Never empty; the first has the expected offset, and offsets ascend. */
  readonly messages: readonly LogMessage[];
  /** The next offset to be written in this partition. */
  readonly highWatermark: number;
}

/** `abandoned`: the batch was not handled; nothing more of its partition is read until a seek or the next assignment. */
export type Handled = 'done' | 'abandoned';

export interface ConsumeOptions {
  readonly groupId: string;
  readonly topics: readonly Topic<unknown>[];
  /** Partitions to read; other assigned ones stay paused. Default: all. */
  readonly partitions?: readonly number[];
  /** Offset to read from; asked for every assigned partition at every assignment. */
  startAt(topic: string, partition: number): Promise<number | 'beginning' | 'end'>;
  /** One batch at a time. Its error ends the consumption with `onCrash`. */
  onBatch(batch: LogBatch): Promise<Handled | void>;
  /** Called with partitions that are no longer assigned to this member. */
  onRevoked?(partitions: readonly { topic: string; partition: number }[]): void;
  /** Called once, when reading cannot continue. */
  onCrash(error: unknown): void;
  /** Longest time that a fetch waits for new messages, which `stop` waits for too. Default: 250. */
  readonly maxWaitMs?: number;
  /** Compressed bytes of one fetch; a larger record batch is fetched alone. Bounds what is decompressed at once. */
  readonly fetchBytes?: number;
}

export interface Consumption {
  stop(): Promise<void>;
  /** Continues reading a partition from another offset. */
  seek(topic: string, partition: number, offset: number): void;
  /** Commits the group's offset, which only shows lag in Kafka's tools. */
  commit(topic: string, partition: number, nextOffset: number): Promise<void>;
  assigned(): readonly { topic: string; partition: number }[];
  /** Stops fetching a partition until `resume`. */
  pause(topic: string, partition: number): void;
}

/** Largest record batch that topics accept, and the most that one fetch returns of a partition. */
export const MAX_MESSAGE_BYTES = 17_000_000;

/**
 * Reads topics as a member of a group, which only assigns partitions and shows lag: the caller says where to read from.
 */
export async function consume(
  kafka: kafkajs.Kafka,
  topicPrefix: string,
  offsetsOf: (topic: Topic<unknown>) => Promise<{ partition: number; low: number; high: number }[]>,
  options: ConsumeOptions,
): Promise<Consumption> {
  const consumer = kafka.consumer({
    groupId: topicPrefix + options.groupId,
    allowAutoTopicCreation: false,
    // A killed member loses its partitions after this time; heartbeats continue during a batch.
    sessionTimeout: 12_000,
    rebalanceTimeout: 30_000,
    heartbeatInterval: 3000,
    maxWaitTimeInMs: options.maxWaitMs ?? 250,
    minBytes: 1,
    maxBytes: options.fetchBytes ?? 4 * MAX_MESSAGE_BYTES,
    maxBytesPerPartition: Math.min(MAX_MESSAGE_BYTES, options.fetchBytes ?? MAX_MESSAGE_BYTES),
    retry: { retries: 10, initialRetryTime: 100, maxRetryTime: 5000 },
  });
  const registered = new Map(options.topics.map((topic) => [topicPrefix + topic.name, topic]));
  const wanted = (partition: number): boolean => options.partitions?.includes(partition) ?? true;

  /** Next offset of each assigned partition; a promise until `startAt` has answered. */
  let expected = new Map<string, Promise<number> | number>();
  /** Partitions with a seek since their last batch began. */
  const sought = new Set<string>();
  const abandoned = new Set<string>();
  let generation = 0;
  let stopping = false;

  const startOf = async (topic: Topic<unknown>, partition: number): Promise<number> => {
    const start = await options.startAt(topic.name, partition);
    if (typeof start === 'number') return start;
    const range = (await offsetsOf(topic)).find((entry) => entry.partition === partition);
    if (range === undefined)
      throw new AppError('NOT_FOUND', `Topic ${topic.name} has no partition ${partition}`);
    return start === 'beginning' ? range.low : range.high;
  };

  const crash = (error: unknown): void => {
    if (stopping) return;
    stopping = true;
    options.onCrash(error);
  };

  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    generation += 1;
    const ownGeneration = generation;
    const previous = expected;
    expected = new Map();
    for (const [fullName, partitions] of Object.entries(payload.memberAssignment)) {
      const topic = registered.get(fullName);
      if (topic === undefined) continue;
      const others = partitions.filter((partition) => !wanted(partition));
      if (others.length > 0) consumer.pause([{ topic: fullName, partitions: others }]);
      for (const partition of partitions.filter(wanted)) {
        const id = idOf(topic.name, partition);
        if (abandoned.delete(id)) consumer.resume([{ topic: fullName, partitions: [partition] }]);
        const start = startOf(topic, partition);
        expected.set(id, start);
        start.then(
          (offset) => {
            if (ownGeneration !== generation || stopping) return;
            expected.set(id, offset);
            consumer.seek({ topic: fullName, partition, offset: String(offset) });
          },
          (error: unknown) => crash(error),
        );
      }
    }
    const revoked = [...previous.keys()].filter((id) => !expected.has(id));
    if (revoked.length > 0) options.onRevoked?.(revoked.map(topicPartitionOf));
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (!payload.restart) crash(payload.error);
  });

  await consumer.connect();
  await consumer.subscribe({ topics: [...registered.keys()], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    partitionsConsumedConcurrently: 1,
    eachBatch: async (payload) => {
      const { batch } = payload;
      const topic = registered.get(batch.topic);
      if (topic === undefined || stopping) return;
      const id = idOf(topic.name, batch.partition);
      const ownGeneration = generation;
      const next = await expected.get(id);
      // Fetched before the seek to the start offset.
      if (next === undefined || ownGeneration !== generation || stopping) return;
      if (!payload.isRunning() || payload.isStale()) return;
      const messages = toLogMessages(topic.name, batch).filter(({ offset }) => offset >= next);
      const [first] = messages;
      const last = messages.at(-1);
      if (first === undefined || last === undefined) {
        payload.resolveOffset(batch.lastOffset());
        return;
      }
      if (first.offset !== next) {
        crash(
          new AppError(
            'CHECKPOINT_OUTSIDE_LOG',
            `${id}: expected offset ${next}, but the log continues at ${first.offset}: messages between have been deleted`,
          ),
        );
        return;
      }
      const heartbeat = setInterval(() => void payload.heartbeat().catch(() => {}), 2000);
      let handled: Handled | void;
      sought.delete(id);
      try {
        handled = await options.onBatch({
          topic: topic.name,
          partition: batch.partition,
          messages,
          highWatermark: Number(batch.highWatermark),
        });
      } catch (error) {
        crash(error);
        return;
      } finally {
        clearInterval(heartbeat);
      }
      if (ownGeneration !== generation || sought.has(id)) return;
      if (handled === 'abandoned') {
        abandoned.add(id);
        consumer.pause([{ topic: batch.topic, partitions: [batch.partition] }]);
        return;
      }
      expected.set(id, last.offset + 1);
      payload.resolveOffset(String(last.offset));
      await payload.heartbeat();
    },
  });

  return {
    async stop() {
      stopping = true;
      await consumer.disconnect();
    },
    seek(topic, partition, offset) {
      if (stopping) return;
      const id = idOf(topic, partition);
      expected.set(id, offset);
      sought.add(id);
      if (abandoned.delete(id)) consumer.resume([{ topic: topicPrefix + topic, partitions: [partition] }]);
      consumer.seek({ topic: topicPrefix + topic, partition, offset: String(offset) });
    },
    async commit(topic, partition, nextOffset) {
      await consumer.commitOffsets([{ topic: topicPrefix + topic, partition, offset: String(nextOffset) }]);
    },
    assigned: () => [...expected.keys()].map(topicPartitionOf),
    pause: (topic, partition) => consumer.pause([{ topic: topicPrefix + topic, partitions: [partition] }]),
  };
}

function idOf(topic: string, partition: number): string {
  return `${topic}:${partition}`;
}

function topicPartitionOf(id: string): { topic: string; partition: number } {
  const colon = id.lastIndexOf(':');
  return { topic: id.slice(0, colon), partition: Number(id.slice(colon + 1)) };
}

function toLogMessages(topic: string, batch: kafkajs.Batch): LogMessage[] {
  return batch.messages.map((message) => ({
    topic,
    partition: batch.partition,
    offset: Number(message.offset),
    key: message.key === null ? null : message.key.toString(),
    value: message.value ?? Buffer.alloc(0),
    timestamp: Number(message.timestamp),
  }));
}
