import type kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';

export interface LogMessage {
  /** The registry's name, without prefix. */
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly key: string | null;
  readonly value: Buffer;
  /** Unix milliseconds at which the producer made it. */
  readonly timestamp: number;
}

export interface LogBatch {
  readonly topic: string;
  readonly partition: number;
  /** Offsets strictly ascending, from the expected next one on. Never empty. */
  readonly messages: readonly LogMessage[];
  /** The next offset to be written in this partition. */
  readonly highWatermark: number;
}

/** `abandoned`: the batch was not handled; nothing more of its partition is read until a seek or the next assignment. */
export type Handled = 'done' | 'abandoned';

export interface ConsumeOptions {
  readonly groupId: string;
  readonly topics: readonly Topic<unknown>[];
  /** Only these partitions are read, the others stay paused. Default: all that are assigned. */
  readonly partitions?: readonly number[];
  /** Asked for every assigned partition at every assignment: the offset to begin with. */
  startAt(topic: string, partition: number): Promise<number | 'beginning' | 'end'>;
  /** One batch at a time. Its error ends the consumption with `onCrash`. */
  onBatch(batch: LogBatch): Promise<Handled | void>;
  /** These partitions belong to another member now. */
  onRevoked?(partitions: readonly { topic: string; partition: number }[]): void;
  onCrash(error: unknown): void;
  /** Longest wait of one fetch for new messages; also how long `stop` may take. */
  readonly maxWaitMs?: number;
  /** Compressed bytes of one fetch; a larger record batch still comes, alone. Bounds what is decompressed at once. */
  readonly fetchBytes?: number;
}

export interface Consumption {
  stop(): Promise<void>;
  /** Goes on reading a partition from another offset. */
  seek(topic: string, partition: number, offset: number): void;
  /** Moves the group's offset: shows lag to Kafka's own tools, decides nothing. */
  commit(topic: string, partition: number, nextOffset: number): Promise<void>;
  assigned(): readonly { topic: string; partition: number }[];
  /** Brings nothing more of a partition. */
  pause(topic: string, partition: number): void;
}

/** Largest record batch a broker keeps for us, and what one fetch may bring for one partition. */
export const MAX_MESSAGE_BYTES = 17_000_000;

/**
 * Reads topics as a member of a group. The group gives assignment and lag; where to begin is the caller's checkpoint.
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
    // A killed member's partitions move to another after so long; heartbeats go on during a batch.
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

  /** Next offset of each assigned partition; a promise while it is being asked for. */
  let expected = new Map<string, Promise<number> | number>();
  /** Partitions that were sought while their batch was being handled. */
  const sought = new Set<string>();
  const abandoned = new Set<string>();
  let generation = 0;
  let stopping = false;

  const startOf = async (topic: Topic<unknown>, partition: number): Promise<number> => {
    const start = await options.startAt(topic.name, partition);
    if (typeof start === 'number') return start;
    const place = (await offsetsOf(topic)).find((entry) => entry.partition === partition);
    if (place === undefined)
      throw new AppError('NOT_FOUND', `topic ${topic.name} has no partition ${partition}`);
    return start === 'beginning' ? place.low : place.high;
  };

  const crash = (error: unknown): void => {
    if (stopping) return;
    stopping = true;
    options.onCrash(error);
  };

  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    generation += 1;
    const mine = generation;
    const before = expected;
    expected = new Map();
    for (const [fullName, partitions] of Object.entries(payload.memberAssignment)) {
      const topic = registered.get(fullName);
      if (topic === undefined) continue;
      const others = partitions.filter((partition) => !wanted(partition));
      if (others.length > 0) consumer.pause([{ topic: fullName, partitions: others }]);
      for (const partition of partitions.filter(wanted)) {
        const place = `${topic.name}:${partition}`;
        if (abandoned.delete(place)) consumer.resume([{ topic: fullName, partitions: [partition] }]);
        const start = startOf(topic, partition);
        expected.set(place, start);
        start.then(
          (offset) => {
            if (mine !== generation || stopping) return;
            expected.set(place, offset);
            consumer.seek({ topic: fullName, partition, offset: String(offset) });
          },
          (error: unknown) => crash(error),
        );
      }
    }
    const lost = [...before.keys()].filter((place) => !expected.has(place));
    if (lost.length > 0) options.onRevoked?.(lost.map(placeOf));
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
      const place = `${topic.name}:${batch.partition}`;
      const mine = generation;
      const next = await expected.get(place);
      // The fetch began before the seek to the checkpoint: what it brought is not ours to handle.
      if (next === undefined || mine !== generation || stopping || !payload.isRunning() || payload.isStale())
        return;
      const messages = batch.messages
        .map((message): LogMessage => ({
          topic: topic.name,
          partition: batch.partition,
          offset: Number(message.offset),
          key: message.key === null ? null : message.key.toString(),
          value: message.value ?? Buffer.alloc(0),
          timestamp: Number(message.timestamp),
        }))
        .filter(({ offset }) => offset >= next);
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
            `${place}: expected offset ${next}, the log goes on at ${first.offset}: messages between are gone`,
          ),
        );
        return;
      }
      const beat = setInterval(() => void payload.heartbeat().catch(() => {}), 2000);
      let handled: Handled | void;
      sought.delete(place);
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
        clearInterval(beat);
      }
      if (mine !== generation || sought.has(place)) return;
      if (handled === 'abandoned') {
        abandoned.add(place);
        consumer.pause([{ topic: batch.topic, partitions: [batch.partition] }]);
        return;
      }
      expected.set(place, last.offset + 1);
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
      const place = `${topic}:${partition}`;
      expected.set(place, offset);
      sought.add(place);
      if (abandoned.delete(place)) consumer.resume([{ topic: topicPrefix + topic, partitions: [partition] }]);
      consumer.seek({ topic: topicPrefix + topic, partition, offset: String(offset) });
    },
    async commit(topic, partition, nextOffset) {
      await consumer.commitOffsets([{ topic: topicPrefix + topic, partition, offset: String(nextOffset) }]);
    },
    assigned: () => [...expected.keys()].map(placeOf),
    pause: (topic, partition) => consumer.pause([{ topic: topicPrefix + topic, partitions: [partition] }]),
  };
}

function placeOf(place: string): { topic: string; partition: number } {
  const at = place.lastIndexOf(':');
  return { topic: place.slice(0, at), partition: Number(place.slice(at + 1)) };
}
