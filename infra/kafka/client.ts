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
  /** The first offset that is still there. */
  readonly low: number;
  /** The next offset to be written. */
  readonly high: number;
}

/** The log. kafkajs stays behind this folder, so that another client can take its place. */
export interface Kafka {
  /** Makes the registry's topics with their retention, checks the partitions of those that exist, waits for leaders. */
  ensureTopics(): Promise<void>;
  offsets(topic: Topic<unknown>): Promise<TopicOffsets[]>;
  /** By partition, the first offset whose message is not older than this (unix milliseconds); the next one where all are. */
  offsetsAt(topic: Topic<unknown>, timestamp: number): Promise<{ partition: number; offset: number }[]>;
  /** Changes when a topic is deleted and made again. */
  topicId(topic: Topic<unknown>): Promise<string>;
  publisher(): Publisher;
  consume(options: ConsumeOptions): Promise<Consumption>;
  /**
   * Ranges of several partitions at once, in batches of one partition; each ends at its `to`, or at the high watermark of
   * the moment it began.
   */
  readRanges(
    topic: Topic<unknown>,
    ranges: readonly OffsetRange[],
    fetchBytes?: number,
    signal?: AbortSignal,
  ): AsyncIterable<{ readonly partition: number; readonly messages: readonly LogMessage[] }>;
  /** Messages of one partition from `from` to before `to`; ends there, or at the high watermark of the moment it began. */
  readRange(topic: Topic<unknown>, partition: number, from: number, to: number): AsyncIterable<LogMessage>;
  /** Deletes the messages of a partition below an offset, for good. */
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
  const admin = async (): Promise<kafkajs.Admin> => {
    connectedAdmin ??= (async () => {
      const fresh = kafka.admin();
      await fresh.connect();
      return fresh;
    })();
    try {
      return await connectedAdmin;
    } catch (cause) {
      connectedAdmin = null;
      throw new AppError('STORE_UNAVAILABLE', 'Kafka did not answer', { retryable: true, cause });
    }
  };

  const offsets = async (topic: Topic<unknown>): Promise<TopicOffsets[]> => {
    try {
      const found = await (await admin()).fetchTopicOffsets(topicPrefix + topic.name);
      return found
        .map(({ partition, low, high }) => ({ partition, low: Number(low), high: Number(high) }))
        .toSorted((a, b) => a.partition - b.partition);
    } catch (cause) {
      if (cause instanceof AppError) throw cause;
      throw new AppError('STORE_UNAVAILABLE', `Kafka did not tell the offsets of ${topic.name}`, {
        retryable: true,
        cause,
      });
    }
  };

  const client: Kafka = {
    ensureTopics: async () => await ensureTopics(await admin(), topicPrefix),
    offsets,
    async offsetsAt(topic, timestamp) {
      try {
        const found = await (await admin()).fetchTopicOffsetsByTimestamp(topicPrefix + topic.name, timestamp);
        return found.map(({ partition, offset }) => ({ partition, offset: Number(offset) }));
      } catch (cause) {
        if (cause instanceof AppError) throw cause;
        throw new AppError('STORE_UNAVAILABLE', `Kafka did not tell the offsets of ${topic.name}`, {
          retryable: true,
          cause,
        });
      }
    },
    async topicId(topic) {
      let last: unknown;
      for (const broker of brokers) {
        try {
          return await fetchTopicId(broker, topicPrefix + topic.name);
        } catch (error) {
          last = error;
        }
      }
      throw last;
    },
    publisher: () => createPublisher(() => connectProducer(kafka), topicPrefix),
    consume: (options) => consume(kafka, topicPrefix, offsets, options),
    async *readRanges(topic, ranges, fetchBytes, signal) {
      const highs = new Map((await offsets(topic)).map(({ partition, high }) => [partition, high]));
      const there = ranges.map((range) => ({
        ...range,
        to: Math.min(range.to, highs.get(range.partition) ?? 0),
      }));
      const forget = async (groupId: string): Promise<void> =>
        void (await (await admin()).deleteGroups([topicPrefix + groupId]).catch(() => {}));
      yield* readRanges(
        topic,
        there,
        (options) => consume(kafka, topicPrefix, offsets, options),
        forget,
        fetchBytes,
        signal,
      );
    },
    async *readRange(topic, partition, from, to) {
      for await (const { messages } of client.readRanges(topic, [{ partition, from, to }])) yield* messages;
    },
    async deleteBefore(topic, partition, offset) {
      const place = (await offsets(topic)).find((one) => one.partition === partition);
      if (place === undefined || offset <= place.low) return;
      try {
        await (
          await admin()
        ).deleteTopicRecords({
          topic: topicPrefix + topic.name,
          partitions: [{ partition, offset: String(offset) }],
        });
      } catch (cause) {
        throw new AppError('STORE_UNAVAILABLE', `Kafka did not delete the beginning of ${topic.name}`, {
          retryable: true,
          cause,
        });
      }
    },
    async close() {
      const connected = await connectedAdmin?.catch(() => null);
      await connected?.disconnect();
    },
  };
  return client;
}
