import type { Consumption, LogBatch } from '../../infra/kafka/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { RetryWhileUnavailable } from '../../infra/retry-while-unavailable.ts';
import type { Topic } from '../../schemas/topics.ts';
import { placeInLog } from '../log-reading.ts';
import type { ObserverContext } from './loops.ts';
import { movePosition, readPosition } from './positions.ts';

export interface ObserverConsumerOptions {
  readonly kafka: Kafka;
  readonly pool: Pool;
  readonly observer: string;
  readonly groupId: string;
  readonly topics: readonly Topic<unknown>[];
  /** Compressed bytes of one fetch. */
  readonly fetchBytes?: number;
  /** Handles a batch; repeated after a crash, so it must be idempotent. */
  readonly handle: (batch: LogBatch) => Promise<void>;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
}

/** Consumes from the observer's checkpoint, which moves after each batch. */
export async function consumeTopics(
  options: ObserverConsumerOptions,
  { releasers, fail }: ObserverContext,
): Promise<void> {
  const { kafka, pool, observer, groupId, topics, handle, retryWhileUnavailable } = options;
  const topicIds = new Map<string, string>();
  for (const topic of topics) topicIds.set(topic.name, await kafka.topicId(topic));

  const consumption: Consumption = await kafka.consume({
    groupId,
    topics,
    async startAt(name, partition) {
      const topic = topics.find((candidate) => candidate.name === name);
      if (topic === undefined) return 'beginning';
      const key = { topic: name, topicId: topicIds.get(name) ?? '', partition };
      const offset = await retryWhileUnavailable(() => readPosition(pool, observer, key));
      return await placeInLog(kafka, topic, partition, offset);
    },
    async onBatch(batch) {
      const { topic, partition, messages } = batch;
      await handle(batch);
      const nextOffset = (messages.at(-1)?.offset ?? -1) + 1;
      const position = { topic, topicId: topicIds.get(topic) ?? '', partition, nextOffset };
      await retryWhileUnavailable(() => movePosition(pool, observer, position));
      consumption.commit(topic, partition, nextOffset).catch(() => {}); // shows lag only
    },
    ...(options.fetchBytes === undefined ? {} : { fetchBytes: options.fetchBytes }),
    onCrash: fail,
  });
  releasers.push('consumer', () => consumption.stop());
}
