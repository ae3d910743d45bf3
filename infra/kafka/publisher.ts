import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
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
   * Appends messages to a topic. Resolves after all in-sync replicas have them, with where each one lies, in the order
   * given. Rejects with a retryable `STORE_UNAVAILABLE`; the messages may be in the log all the same.
   */
  publish<M>(topic: Topic<M>, messages: readonly OutgoingMessage<M>[]): Promise<Publication[]>;
  close(): Promise<void>;
}

interface Pending {
  readonly topic: string;
  readonly messages: { partition: number; key: string | null; value: string }[];
  readonly size: number;
  resolve(result: Publication[]): void;
  reject(error: unknown): void;
}

/** Uncompressed bytes of one request when several calls share it; one record batch must stay below 16 MB compressed. */
const REQUEST_BYTES = 12_000_000;

/**
 * One idempotent producer, one request in flight; calls made meanwhile share the next request. After an error the
 * producer is replaced: its sequence numbers can no longer be trusted.
 */
export function createPublisher(kafka: kafkajs.Kafka, topicPrefix: string): Publisher {
  const choose = kafkajs.Partitioners.DefaultPartitioner();
  let producer: Promise<kafkajs.Producer> | null = null;
  let queue: Pending[] = [];
  let sending: Promise<void> | null = null;
  let closed = false;

  const connect = async (): Promise<kafkajs.Producer> => {
    const fresh = kafka.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      allowAutoTopicCreation: false,
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
      retry: { retries: 3, initialRetryTime: 100, maxRetryTime: 1000 },
    });
    await fresh.connect();
    return fresh;
  };

  const takeBatch = (): Pending[] => {
    let bytes = 0;
    let count = 0;
    for (const pending of queue) {
      bytes += pending.size;
      if (count > 0 && bytes > REQUEST_BYTES) break;
      count += 1;
    }
    const batch = queue.slice(0, count);
    queue = queue.slice(count);
    return batch;
  };

  const send = async (batch: readonly Pending[]): Promise<void> => {
    const byTopic = Map.groupBy(batch, ({ topic }) => topic);
    try {
      producer ??= connect();
      const connected = await producer;
      const metadata = await connected.sendBatch({
        acks: -1,
        compression: ZSTD,
        topicMessages: [...byTopic].map(([topic, calls]) => ({
          topic,
          messages: calls.flatMap((call) => call.messages),
        })),
      });
      const next = new Map(
        metadata.map(({ topicName, partition, baseOffset }) => [
          `${topicName}:${partition}`,
          Number(baseOffset ?? 'NaN'),
        ]),
      );
      for (const call of batch) {
        call.resolve(
          call.messages.map(({ partition }) => {
            const place = `${call.topic}:${partition}`;
            const offset = next.get(place) ?? Number.NaN;
            next.set(place, offset + 1);
            return { partition, offset };
          }),
        );
      }
    } catch (cause) {
      const broken = producer;
      producer = null;
      void broken?.then((old) => old.disconnect()).catch(() => {});
      const error = new AppError('STORE_UNAVAILABLE', 'Kafka did not acknowledge', {
        retryable: true,
        cause,
      });
      for (const call of batch) call.reject(error);
    }
  };

  const drain = async (): Promise<void> => {
    while (queue.length > 0) await send(takeBatch());
    sending = null;
  };

  return {
    async publish(topic, messages) {
      if (closed) throw new AppError('STORE_UNAVAILABLE', 'the publisher is closed');
      if (messages.length === 0) return [];
      const name = topicPrefix + topic.name;
      const partitionMetadata = Array.from({ length: topic.partitions }, (_, partitionId) => ({
        partitionErrorCode: 0,
        partitionId,
        leader: 0,
        replicas: [],
        isr: [],
      }));
      const encoded = messages.map(({ value, key, partition }) => ({
        partition:
          partition ?? choose({ topic: name, partitionMetadata, message: { key: key ?? null, value: null } }),
        key: key ?? null,
        value: JSON.stringify(value),
      }));
      const size = encoded.reduce((sum, { value }) => sum + value.length, 0);
      return await new Promise<Publication[]>((resolve, reject) => {
        queue.push({ topic: name, messages: encoded, size, resolve, reject });
        sending ??= drain();
      });
    },
    async close() {
      closed = true;
      await sending;
      await (await producer?.catch(() => null))?.disconnect();
    },
  };
}
