import kafkajs from 'kafkajs';

import type { Topic } from '../../schemas/topics.ts';
import type { Logger } from '../log.ts';
import { connectionOptions, kafkaError } from './connection.ts';
import type { KafkaConnection } from './connection.ts';
import { consume } from './consumption.ts';
import type { ConsumeOptions, Consumption, LogMessage } from './consumption.ts';
import { ensureTopics } from './ensure-topics.ts';
import { connectProducer, createPublisher } from './publisher.ts';
import type { Publisher } from './publisher.ts';
import { readRanges } from './read-ranges.ts';
import type { OffsetRange } from './read-ranges.ts';
import { fetchTopicId } from './topic-id.ts';

export type { ConsumeOptions, Consumption, Handled, LogBatch, LogMessage } from './consumption.ts';
export type { Publisher } from './publisher.ts';
export type { OffsetRange } from './read-ranges.ts';

export interface TopicOffsets {
  readonly partition: number;
  /** The first offset that the log still holds. */
  readonly low: number;
  /** The offset of the next message to be written. */
  readonly high: number;
}

/** Access to the log. Only this folder imports kafkajs, so that another client can replace it. */
export interface Kafka {
  /** Creates missing topics with their retention, checks the partitions of the others, and waits for leaders. */
  ensureTopics(): Promise<void>;
  offsets(topic: Topic<unknown>): Promise<TopicOffsets[]>;
  /** By partition, the offset of the first message at or after a time (unix milliseconds); the next offset without one. */
  offsetsAt(topic: Topic<unknown>, timestamp: number): Promise<{ partition: number; offset: number }[]>;
  /** Changes when a topic is deleted and created again. */
  topicId(topic: Topic<unknown>): Promise<string>;
  publisher(): Publisher;
  consume(options: ConsumeOptions): Promise<Consumption>;
  /**
   * Reads ranges of several partitions, in batches of one partition. Each range ends at its `to`, or at the high watermark
   * at the start of the call.
   */
  readRanges(
    topic: Topic<unknown>,
    ranges: readonly OffsetRange[],
    signal?: AbortSignal,
  ): AsyncIterable<{ readonly partition: number; readonly messages: readonly LogMessage[] }>;
  /** Messages of one partition from `from` to before `to`, or to the high watermark at the start of the call. */
  readRange(
    topic: Topic<unknown>,
    partition: number,
    from: number,
    to: number,
    signal?: AbortSignal,
  ): AsyncIterable<LogMessage>;
  /** Deletes the messages of a partition below an offset. */
  deleteBefore(topic: Topic<unknown>, partition: number, offset: number): Promise<void>;
  close(): Promise<void>;
}

export interface KafkaOptions extends KafkaConnection {
  readonly clientId: string;
  readonly topicPrefix: string;
  /** Accept topics that can lose messages. */
  readonly allowUnsafeTopics?: boolean;
  readonly log: Logger;
}

export function createKafka(options: KafkaOptions): Kafka {
  const { topicPrefix } = options;
  const kafka = kafkaOf(options);
  const admin = createAdmin(kafka);
  const nameOf = (topic: Topic<unknown>): string => topicPrefix + topic.name;

  const offsets = async (topic: Topic<unknown>): Promise<TopicOffsets[]> => {
    const fetched = await admin.ask(
      (connected) => connected.fetchTopicOffsets(nameOf(topic)),
      `Kafka did not return the offsets of ${topic.name}`,
    );
    return fetched
      .map(({ partition, low, high }) => ({ partition, low: Number(low), high: Number(high) }))
      .toSorted((a, b) => a.partition - b.partition);
  };

  const client: Kafka = {
    ensureTopics: async () => await ensureTopics(await admin.connected(), options),
    offsets,
    async offsetsAt(topic, timestamp) {
      const fetched = await admin.ask(
        (connected) => connected.fetchTopicOffsetsByTimestamp(nameOf(topic), timestamp),
        `Kafka did not return the offsets of ${topic.name}`,
      );
      return fetched.map(({ partition, offset }) => ({ partition, offset: Number(offset) }));
    },
    topicId: (topic) => fetchTopicId(options, nameOf(topic)),
    publisher: () => createPublisher(() => connectProducer(kafka), topicPrefix),
    consume: (consumed) =>
      consume((socketFactory) => kafkaOf(options, { socketFactory }), topicPrefix, consumed),
    async *readRanges(topic, ranges, signal) {
      const highs = new Map((await offsets(topic)).map(({ partition, high }) => [partition, high]));
      const bounded = ranges.map((range) => ({
        ...range,
        to: Math.min(range.to, highs.get(range.partition) ?? 0),
      }));
      const deleteGroup = async (groupId: string): Promise<void> =>
        void (await (await admin.connected()).deleteGroups([topicPrefix + groupId]).catch(() => {}));
      yield* readRanges(topic, bounded, (consumed) => client.consume(consumed), deleteGroup, signal);
    },
    async *readRange(topic, partition, from, to, signal) {
      const ranges = [{ partition, from, to }];
      for await (const { messages } of client.readRanges(topic, ranges, signal)) yield* messages;
    },
    async deleteBefore(topic, partition, offset) {
      const range = (await offsets(topic)).find((one) => one.partition === partition);
      if (range === undefined || offset <= range.low) return;
      const seek = { topic: nameOf(topic), partitions: [{ partition, offset: String(offset) }] };
      await admin.ask(
        (connected) => connected.deleteTopicRecords(seek),
        `Kafka did not delete messages of ${topic.name}`,
      );
    },
    close: () => admin.close(),
  };
  return client;
}

function kafkaOf(
  { clientId, log, ...connection }: KafkaOptions,
  own: Pick<kafkajs.KafkaConfig, 'socketFactory'> = {},
): kafkajs.Kafka {
  return new kafkajs.Kafka({
    ...connectionOptions(connection),
    ...own,
    clientId,
    retry: { retries: 8, initialRetryTime: 100, maxRetryTime: 3000 },
    logCreator:
      () =>
      ({ level, log: { message, ...rest } }) => {
        if (level <= kafkajs.logLevel.ERROR) log.debug({ kafka: rest }, message);
      },
  });
}

/** An admin client that connects at its first use, and again after a failure to connect. */
function createAdmin(kafka: kafkajs.Kafka) {
  let connecting: Promise<kafkajs.Admin> | null = null;
  const connect = async (): Promise<kafkajs.Admin> => {
    const created = kafka.admin();
    await created.connect();
    return created;
  };
  const connected = async (): Promise<kafkajs.Admin> => {
    try {
      return await (connecting ??= connect());
    } catch (cause) {
      connecting = null;
      throw kafkaError('Kafka is unavailable', cause);
    }
  };
  return {
    connected,
    async ask<T>(work: (admin: kafkajs.Admin) => Promise<T>, failure: string): Promise<T> {
      return await work(await connected()).catch((cause: unknown) => {
        throw kafkaError(failure, cause);
      });
    },
    async close(): Promise<void> {
      const admin = await connecting?.catch(() => null);
      await admin?.disconnect();
    },
  };
}
