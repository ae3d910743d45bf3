import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { Logger } from '../log.ts';
import { consume } from './consumption.ts';
import type { ConsumeOptions, Consumption, LogMessage } from './consumption.ts';
import { ensureTopics } from './ensure-topics.ts';
import { framedSocket } from './framed-socket.ts';
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
    fetchBytes?: number,
    signal?: AbortSignal,
  ): AsyncIterable<{ readonly partition: number; readonly messages: readonly LogMessage[] }>;
  /** Messages of one partition from `from` to before `to`, or to the high watermark at the start of the call. */
  readRange(topic: Topic<unknown>, partition: number, from: number, to: number): AsyncIterable<LogMessage>;
  /** Deletes the messages of a partition below an offset. */
  deleteBefore(topic: Topic<unknown>, partition: number, offset: number): Promise<void>;
  close(): Promise<void>;
}

export interface KafkaOptions {
  readonly brokers: readonly string[];
  readonly clientId: string;
  readonly topicPrefix: string;
  readonly log: Logger;
}

export function createKafka({ brokers, clientId, topicPrefix, log }: KafkaOptions): Kafka {
  const kafka = new kafkajs.Kafka({
    brokers: [...brokers],
    clientId,
    connectionTimeout: 5000,
    requestTimeout: 30_000,
    retry: { retries: 8, initialRetryTime: 100, maxRetryTime: 3000 },
    socketFactory: framedSocket,
    logCreator:
      () =>
      ({ level, log: { message, ...rest } }) => {
        if (level <= kafkajs.logLevel.ERROR) log.debug({ kafka: rest }, message);
      },
  });
  let connectedAdmin: Promise<kafkajs.Admin> | null = null;
  const connectAdmin = async (): Promise<kafkajs.Admin> => {
    const created = kafka.admin();
    await created.connect();
    return created;
  };
  const admin = async (): Promise<kafkajs.Admin> => {
    try {
      return await (connectedAdmin ??= connectAdmin());
    } catch (cause) {
      connectedAdmin = null;
      throw unavailable('Kafka is unavailable', cause);
    }
  };
  const ask = async <T>(work: (admin: kafkajs.Admin) => Promise<T>, failure: string): Promise<T> => {
    const connected = await admin();
    return await work(connected).catch((cause: unknown) => {
      throw unavailable(failure, cause);
    });
  };

  const offsets = async (topic: Topic<unknown>): Promise<TopicOffsets[]> => {
    const fetched = await ask(
      (connected) => connected.fetchTopicOffsets(topicPrefix + topic.name),
      `Kafka did not return the offsets of ${topic.name}`,
    );
    return fetched
      .map(({ partition, low, high }) => ({ partition, low: Number(low), high: Number(high) }))
      .toSorted((a, b) => a.partition - b.partition);
  };

  const client: Kafka = {
    ensureTopics: async () => await ensureTopics(await admin(), topicPrefix),
    offsets,
    async offsetsAt(topic, timestamp) {
      const fetched = await ask(
        (connected) => connected.fetchTopicOffsetsByTimestamp(topicPrefix + topic.name, timestamp),
        `Kafka did not return the offsets of ${topic.name}`,
      );
      return fetched.map(({ partition, offset }) => ({ partition, offset: Number(offset) }));
    },
    async topicId(topic) {
      let lastError: unknown;
      for (const broker of brokers) {
        try {
          return await fetchTopicId(broker, topicPrefix + topic.name);
        } catch (error) {
          lastError = error;
        }
      }
      throw lastError;
    },
    publisher: () => createPublisher(() => connectProducer(kafka), topicPrefix),
    consume: (options) => consume(kafka, topicPrefix, options),
    async *readRanges(topic, ranges, fetchBytes, signal) {
      const highs = new Map((await offsets(topic)).map(({ partition, high }) => [partition, high]));
      const bounded = ranges.map((range) => ({
        ...range,
        to: Math.min(range.to, highs.get(range.partition) ?? 0),
      }));
      const deleteGroup = async (groupId: string): Promise<void> =>
        void (await (await admin()).deleteGroups([topicPrefix + groupId]).catch(() => {}));
      yield* readRanges(
        topic,
        bounded,
        (options) => client.consume(options),
        deleteGroup,
        fetchBytes,
        signal,
      );
    },
    async *readRange(topic, partition, from, to) {
      for await (const { messages } of client.readRanges(topic, [{ partition, from, to }])) yield* messages;
    },
    async deleteBefore(topic, partition, offset) {
      const range = (await offsets(topic)).find((one) => one.partition === partition);
      if (range === undefined || offset <= range.low) return;
      await ask(
        (connected) =>
          connected.deleteTopicRecords({
            topic: topicPrefix + topic.name,
            partitions: [{ partition, offset: String(offset) }],
          }),
        `Kafka did not delete messages of ${topic.name}`,
      );
    },
    async close() {
      const connected = await connectedAdmin?.catch(() => null);
      await connected?.disconnect();
    },
  };
  return client;
}

function unavailable(message: string, cause: unknown): AppError {
  return new AppError('STORE_UNAVAILABLE', message, { retryable: true, cause });
}
