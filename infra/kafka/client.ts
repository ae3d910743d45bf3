import { randomUUID } from 'node:crypto';

import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { Logger } from '../log.ts';
import { consume } from './consumption.ts';
import type { ConsumeOptions, Consumption, LogMessage } from './consumption.ts';
import { ensureTopics } from './ensure-topics.ts';
import { createPublisher } from './publisher.ts';
import type { Publisher } from './publisher.ts';
import { fetchTopicId } from './topic-id.ts';

export type { ConsumeOptions, Consumption, LogBatch, LogMessage } from './consumption.ts';
export type { Publisher } from './publisher.ts';

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
  /** Changes when a topic is deleted and made again. */
  topicId(topic: Topic<unknown>): Promise<string>;
  publisher(): Publisher;
  consume(options: ConsumeOptions): Promise<Consumption>;
  /** Messages of one partition from `from` to before `to`; ends there, or at the high watermark of the moment it began. */
  readRange(topic: Topic<unknown>, partition: number, from: number, to: number): AsyncIterable<LogMessage>;
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

  return {
    ensureTopics: async () => await ensureTopics(await admin(), topicPrefix),
    offsets,
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
    publisher: () => createPublisher(kafka, topicPrefix),
    consume: (options) => consume(kafka, topicPrefix, offsets, options),
    async *readRange(topic, partition, from, to) {
      const high = (await offsets(topic)).find((entry) => entry.partition === partition)?.high ?? 0;
      const end = Math.min(to, high);
      if (from >= end) return;
      // One batch is handed over at a time: the reader's pace bounds what is held in memory.
      const waiting: { messages: readonly LogMessage[]; done: () => void }[] = [];
      let failure: { error: unknown } | null = null;
      let wake: () => void = () => {};
      const groupId = `read-${randomUUID()}`;
      const consumption = await consume(kafka, topicPrefix, offsets, {
        groupId,
        topics: [topic],
        partitions: [partition],
        startAt: async () => from,
        onBatch: ({ messages }) =>
          new Promise<void>((done) => {
            waiting.push({ messages, done });
            wake();
          }),
        onCrash: (error) => {
          failure = { error };
          wake();
        },
      });
      try {
        for (let at = from; at < end;) {
          if (failure !== null) throw (failure as { error: unknown }).error;
          const batch = waiting.shift();
          if (batch === undefined) {
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
            continue;
          }
          try {
            for (const message of batch.messages) {
              if (message.offset >= end) return;
              at = message.offset + 1;
              yield message;
            }
          } finally {
            batch.done();
          }
        }
      } finally {
        for (const { done } of waiting) done();
        await consumption.stop();
        await (await admin()).deleteGroups([topicPrefix + groupId]).catch(() => {});
      }
    },
    async close() {
      const connected = await connectedAdmin?.catch(() => null);
      await connected?.disconnect();
    },
  };
}
