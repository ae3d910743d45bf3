import kafkajs from 'kafkajs';

import { AppError, isRetryable } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import { pollUntil, retry } from '../retry.ts';
import { checkTopics, replicationFactor, topicConfig } from './check-topics.ts';
import { kafkaError } from './connection.ts';

const READY_WITHIN_MS = 60_000;
const POLL_MS = 100;

interface TopicOptions {
  /** As configured; fewer may be available. */
  readonly brokers: readonly string[];
  readonly topicPrefix: string;
  readonly allowUnsafeTopics?: boolean;
}

/**
 * Creates the topics of `schemas/topics.ts` that are missing, each with its retention, waits until every partition answers (a
 * new topic may be unknown to a broker, or have no leader yet), and checks the partitions and the configuration of all.
 */
export async function ensureTopics(
  admin: kafkajs.Admin,
  { brokers, topicPrefix, allowUnsafeTopics = false }: TopicOptions,
): Promise<void> {
  const existing = await existingTopics(admin);
  const missing = Object.values(topics).filter(({ name }) => !existing.has(topicPrefix + name));
  const { brokers: available } = await admin.describeCluster();
  // A topic created while a broker is away would keep fewer replicas when it is back.
  const brokerCount = Math.max(available.length, brokers.length);
  try {
    await admin.createTopics({
      // kafkajs fails on a topic that the broker does not know yet; the loop below waits for leaders.
      waitForLeaders: false,
      topics: missing.map((topic) => ({
        topic: topicPrefix + topic.name,
        numPartitions: topic.partitions,
        replicationFactor: replicationFactor(brokerCount),
        configEntries: Object.entries(topicConfig(topic, brokerCount)).map(([key, value]) => ({
          name: key,
          value,
        })),
      })),
    });
  } catch (cause) {
    if (!isCreatedConcurrently(cause)) {
      throw kafkaError('Kafka did not create the topics', cause);
    }
  }
  const cause = await pollUntil(
    () => findUnready(admin, topicPrefix),
    (reason) => reason === null,
    { everyMs: POLL_MS, withinMs: READY_WITHIN_MS },
  );
  if (cause !== null) throw kafkaError(`Topics have no leaders after ${READY_WITHIN_MS / 1000} s`, cause);
  if (!allowUnsafeTopics) await checkTopics(admin, topicPrefix, brokerCount);
}

/** All topics of the cluster. kafkajs fails to list them while any partition, of whichever topic, elects its leader. */
async function existingTopics(admin: kafkajs.Admin): Promise<ReadonlySet<string>> {
  const list = async (): Promise<string[]> => {
    try {
      return await admin.listTopics();
    } catch (cause) {
      throw kafkaError('Kafka did not list its topics', cause);
    }
  };
  return new Set(await retry(list, { isRetryable, deadlineMs: READY_WITHIN_MS }));
}

/** The reason why the topics cannot be used yet; null when they can. Throws `TOPIC_MISMATCH` on wrong partitions. */
async function findUnready(admin: kafkajs.Admin, topicPrefix: string): Promise<unknown> {
  const expected = new Map(
    Object.values(topics).map(({ name, partitions }) => [topicPrefix + name, partitions]),
  );
  let found: kafkajs.ITopicMetadata[];
  try {
    found = (await admin.fetchTopicMetadata({ topics: [...expected.keys()] })).topics;
    await Promise.all([...expected.keys()].map((topic) => admin.fetchTopicOffsets(topic)));
  } catch (error) {
    return error;
  }
  for (const { name, partitions } of found) {
    const wanted = expected.get(name);
    if (wanted !== partitions.length) {
      throw new AppError(
        'TOPIC_MISMATCH',
        `Topic ${name} has ${partitions.length} partitions, but this program needs ${wanted}`,
      );
    }
  }
  return null;
}

/** Other processes created some of the topics at the same time. */
function isCreatedConcurrently(error: unknown): boolean {
  const errors = error instanceof kafkajs.KafkaJSAggregateError ? error.errors : [error];
  return errors.every(
    (each) => each instanceof kafkajs.KafkaJSProtocolError && each.type === 'TOPIC_ALREADY_EXISTS',
  );
}
