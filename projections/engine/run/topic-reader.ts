import { createConsumer } from '../../../infra/kafka/consumer.ts';
import type { ConsumerOptions } from '../../../infra/kafka/consumer.ts';
import type { LogBatch } from '../../../infra/kafka/client.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Reading, Readings } from './readings.ts';

export interface TopicReaderOptions extends Pick<
  ConsumerOptions,
  'kafka' | 'log' | 'groupId' | 'signal' | 'onError'
> {
  readonly topic: Topic<unknown> & { readonly minBytes?: number };
  readonly readings: Readings;
  onBatch(reading: Reading, batch: LogBatch): Promise<void>;
}

/** A consumer of one topic that reads each partition from its checkpoint. */
export interface TopicReader {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Reads on from `reading.next`, which ends a halt. */
  readonly resume: (reading: Reading) => Promise<void>;
  /** Reads on from the stored checkpoint, which another process has moved. */
  readonly reopen: (reading: Reading) => Promise<void>;
  /** Moves the group's offset, which only shows lag in Kafka's tools. */
  commit(partition: number, nextOffset: number): Promise<void>;
}

export function createTopicReader(options: TopicReaderOptions): TopicReader {
  const { topic, readings, log } = options;
  const consumer = createConsumer({
    ...options,
    topics: [topic],
    minBytes: topic.minBytes,
    startOffset: async (_, partition) => (await readings.open(partition)).next,
    async handle(batch) {
      const reading = readings.get(batch.partition);
      if (reading !== undefined) await options.onBatch(reading, batch);
      return 'done';
    },
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.drop(partition)),
  });
  return {
    start: () => consumer.start(),
    stop: () => consumer.stop(),
    async resume(reading) {
      reading.halt = null;
      await consumer.seek(topic.name, reading.partition, reading.next);
    },
    async reopen(reading) {
      const { partition } = reading;
      log.warn({ topic: topic.name, partition }, 'checkpoint conflict, resuming from stored offset');
      reading.current = false;
      await consumer.resume(topic.name, partition);
    },
    commit: (partition, nextOffset) => consumer.commit(topic.name, partition, nextOffset),
  };
}
