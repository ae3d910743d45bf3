import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
import { retry } from '../retry.ts';
import { METADATA_MAX_AGE_MS } from './connection.ts';
import { ZSTD } from './zstd.ts';

export interface OutgoingMessage<M> {
  readonly value: M;
  readonly key?: string;
  /** Sent to this partition; without it the key decides (murmur2, as Kafka's own clients do). */
  readonly partition?: number;
}

export interface Publication {
  readonly partition: number;
  readonly offset: number;
}

export interface Publisher {
  /**
   * Appends messages to a topic. Resolves after all in-sync replicas have them, with the partition and offset of each, in
   * the order given; messages of one partition keep their order. Rejects with a retryable `STORE_UNAVAILABLE`, or with
   * `MESSAGE_TOO_LARGE`; messages may be in the log all the same, of each partition those before one that failed.
   */
  publish<M>(topic: Topic<M>, messages: readonly OutgoingMessage<M>[]): Promise<Publication[]>;
  close(): Promise<void>;
}

/** The part of a kafkajs producer that is used. */
export type BatchProducer = Pick<kafkajs.Producer, 'sendBatch' | 'disconnect'>;

interface EncodedMessage {
  readonly partition: number;
  readonly key: string | null;
  readonly value: string;
}

/** Messages of one call for one partition, waiting to be sent in one request. */
interface PendingAppend {
  readonly messages: readonly EncodedMessage[];
  readonly size: number;
  /** Receives the offset of the first message. */
  readonly resolve: (baseOffset: number) => void;
  readonly reject: (error: unknown) => void;
}

/** A producer in use; it is closed when its last request has ended, once it is retired. */
interface ProducerLease {
  readonly producer: Promise<BatchProducer>;
  requests: number;
  isRetired: boolean;
}

/**
 * Uncompressed bytes of one request, unless it is a single message: a topic accepts a record batch of at least
 * `MAX_MESSAGE_BYTES`, compressed.
 */
const REQUEST_BYTES = 12_000_000;
/** Requests to a broker that run side by side: kafkajs sends those of one producer one after the other. */
const PRODUCERS = 4;
/** Attempts with a response that lacks the offset; errors have been retried by kafkajs already. */
const MAX_ATTEMPTS = 3;

class MissingOffset extends Error {
  constructor(topic: string, partition: number) {
    super(`No offset for ${topic}:${partition} in the produce response`);
  }
}

export async function connectProducer(kafka: kafkajs.Kafka): Promise<BatchProducer> {
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    allowAutoTopicCreation: false,
    metadataMaxAge: METADATA_MAX_AGE_MS,
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
    retry: { retries: 3, initialRetryTime: 100, maxRetryTime: 1000 },
  });
  await producer.connect();
  return producer;
}

/** Publishes with idempotent producers; a call may be split into several requests, and may share one with other calls. */
export function createPublisher(connect: () => Promise<BatchProducer>, topicPrefix: string): Publisher {
  const choosePartition = kafkajs.Partitioners.DefaultPartitioner();
  const producers = createProducers(connect);
  const queues = createRequestQueues(producers);
  const calls = new Set<Promise<unknown>>();
  let closed = false;

  /** Appends the messages of one call in as few requests as they fit, none after one that failed; resolves to their offsets. */
  const append = async (
    topic: string,
    partition: number,
    messages: readonly EncodedMessage[],
  ): Promise<number[]> => {
    const offsets: number[] = [];
    const rest = [...messages];
    while (rest.length > 0) {
      const fitting = rest.splice(0, fittingCount(rest.map(({ value }) => value.length)));
      const baseOffset = await queues.add(topic, partition, fitting);
      for (const index of fitting.keys()) offsets.push(baseOffset + index);
    }
    return offsets;
  };

  return {
    async publish(topic, messages) {
      if (closed) throw new AppError('STORE_UNAVAILABLE', 'Publisher is closed');
      const encoded = encode(topic, messages, choosePartition);
      const appends = [...Map.groupBy(encoded, ({ partition }) => partition)].map(
        async ([partition, own]) =>
          [partition, (await append(topicPrefix + topic.name, partition, own)).values()] as const,
      );
      // All of them end before one is reported: a retry by the caller must not run beside what is still being sent.
      const ended = Promise.allSettled(appends);
      calls.add(ended);
      const results = await ended;
      calls.delete(ended);
      const offsets = new Map<number, Iterator<number>>();
      for (const result of results) {
        if (result.status === 'rejected') throw result.reason;
        offsets.set(...result.value);
      }
      return encoded.map(({ partition }) => {
        const offset: number = offsets.get(partition)?.next().value ?? Number.NaN;
        return { partition, offset };
      });
    },
    async close() {
      closed = true;
      await Promise.all(calls);
      await producers.close();
    },
  };
}

/**
 * For each partition one request in flight; messages added meanwhile share the next request. A partition always uses the
 * same one of a few idempotent producers.
 *
 * A request carries one partition. kafkajs (2.2.4) keeps the responses of brokers over its own retries: where a leader
 * moves to a broker that has answered for another partition, it reports success for messages that it has not sent. And
 * an error of one partition hides what became of the others. With a single partition there is nothing to mix up: its
 * retries repeat the same messages under the same sequence numbers, so the broker stores them once and in order.
 */
function createRequestQueues(producers: ReturnType<typeof createProducers>) {
  const queues = new Map<string, PendingAppend[]>();

  const send = async (topic: string, partition: number, appends: readonly PendingAppend[]): Promise<void> => {
    const messages = appends.flatMap((pending) => pending.messages);
    try {
      let offset = await retry(() => producers.append(topic, partition, messages), {
        isRetryable: (error) => error instanceof MissingOffset,
        maxAttempts: MAX_ATTEMPTS,
      });
      for (const pending of appends) {
        pending.resolve(offset);
        offset += pending.messages.length;
      }
    } catch (cause) {
      const error = produceError(topic, messages, cause);
      for (const pending of appends) pending.reject(error);
    }
  };

  return {
    /** Resolves to the offset of the first message. */
    add(topic: string, partition: number, messages: readonly EncodedMessage[]): Promise<number> {
      const id = `${topic}:${partition}`;
      const drain = async (queue: PendingAppend[]): Promise<void> => {
        while (queue.length > 0) {
          const count = fittingCount(queue.map(({ size }) => size));
          await send(topic, partition, queue.splice(0, count));
        }
        queues.delete(id);
      };
      return new Promise((resolve, reject) => {
        const append = { messages, size: sizeOf(messages), resolve, reject };
        const queue = queues.get(id);
        if (queue !== undefined) return void queue.push(append);
        const started = [append];
        queues.set(id, started);
        void drain(started);
      });
    },
  };
}

/**
 * A few producers, each for some of the partitions. After an error a producer is replaced: kafkajs would give the sequence
 * numbers of messages that may have been stored to others, which the broker would then drop as duplicates.
 */
function createProducers(connect: () => Promise<BatchProducer>) {
  const leases = new Map<number, ProducerLease>();
  return {
    /** Sends one request; returns the offset of its first message. */
    async append(topic: string, partition: number, messages: readonly EncodedMessage[]): Promise<number> {
      const slot = partition % PRODUCERS;
      const used = leases.get(slot) ?? { producer: connect(), requests: 0, isRetired: false };
      leases.set(slot, used);
      used.requests += 1;
      try {
        const producer = await used.producer;
        const responses = await producer.sendBatch({
          acks: -1,
          compression: ZSTD,
          topicMessages: [{ topic, messages: [...messages] }],
        });
        const response = responses.find((one) => one.topicName === topic && one.partition === partition);
        const baseOffset = response?.baseOffset ?? '';
        if (!/^\d+$/.test(baseOffset)) throw new MissingOffset(topic, partition);
        return Number(baseOffset);
      } catch (error) {
        used.isRetired = true;
        if (leases.get(slot) === used) leases.delete(slot);
        throw error;
      } finally {
        used.requests -= 1;
        if (used.isRetired && used.requests === 0)
          used.producer.then((unused) => unused.disconnect()).catch(() => {});
      }
    },
    async close(): Promise<void> {
      for (const { producer } of leases.values()) await (await producer.catch(() => null))?.disconnect();
    },
  };
}

function encode<M>(
  topic: Topic<M>,
  messages: readonly OutgoingMessage<M>[],
  choosePartition: ReturnType<typeof kafkajs.Partitioners.DefaultPartitioner>,
): EncodedMessage[] {
  const partitionMetadata = Array.from({ length: topic.partitions }, (_, partitionId) => ({
    partitionErrorCode: 0,
    partitionId,
    leader: 0,
    replicas: [],
    isr: [],
  }));
  return messages.map(({ value, key = null, partition }) => ({
    partition:
      partition ?? choosePartition({ topic: topic.name, partitionMetadata, message: { key, value: null } }),
    key,
    value: JSON.stringify(value),
  }));
}

const sizeOf = (messages: readonly EncodedMessage[]): number =>
  messages.reduce((sum, { value }) => sum + value.length, 0);

/** How many of the first sizes fit one request; at least one. */
function fittingCount(sizes: readonly number[]): number {
  let [bytes, count] = [0, 0];
  for (const size of sizes) {
    bytes += size;
    if (count > 0 && bytes > REQUEST_BYTES) break;
    count += 1;
  }
  return count;
}

const TOO_LARGE = new Set(['MESSAGE_TOO_LARGE', 'RECORD_LIST_TOO_LARGE']);

function produceError(topic: string, messages: readonly EncodedMessage[], cause: unknown): AppError {
  if (!isTooLarge(cause))
    return new AppError('STORE_UNAVAILABLE', 'Kafka did not acknowledge', { retryable: true, cause });
  const [first] = messages;
  return new AppError(
    'MESSAGE_TOO_LARGE',
    `topic ${topic} does not accept ${sizeOf(messages)} bytes before compression (key ${first?.key ?? 'none'}): raise its max.message.bytes, and replica.fetch.max.bytes of the brokers`,
    { cause },
  );
}

function isTooLarge(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof kafkajs.KafkaJSProtocolError && TOO_LARGE.has(error.type)) return true;
  return isTooLarge(error.cause);
}
