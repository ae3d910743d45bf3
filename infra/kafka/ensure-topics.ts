import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import { pollUntil } from '../retry.ts';
import { MAX_MESSAGE_BYTES } from './consumption.ts';

const READY_WITHIN_MS = 60_000;
const POLL_MS = 100;

/**
 * Creates the topics of `schemas/topics.ts` that are missing, each with its retention, checks the partitions of all, and
 * waits until every partition answers: a new topic may be unknown to a broker, or have no leader yet.
 */
export async function ensureTopics(admin: kafkajs.Admin, topicPrefix: string): Promise<void> {
  const existing = new Set(await admin.listTopics());
  const missing = Object.values(topics).filter(({ name }) => !existing.has(topicPrefix + name));
  try {
    await admin.createTopics({
      // kafkajs fails on a topic that the broker does not know yet; the loop below waits for leaders.
      waitForLeaders: false,
      topics: missing.map(({ name, partitions, retention }) => ({
        topic: topicPrefix + name,
        numPartitions: partitions,
        replicationFactor: -1,
        configEntries: [
          { name: 'cleanup.policy', value: 'delete' },
          { name: 'retention.ms', value: retention === 'forever' ? '-1' : String(retention) },
          { name: 'retention.bytes', value: '-1' },
          { name: 'max.message.bytes', value: String(MAX_MESSAGE_BYTES) },
        ],
      })),
    });
  } catch (cause) {
    if (!isCreatedConcurrently(cause)) {
      throw new AppError('STORE_UNAVAILABLE', 'Kafka did not create the topics', { retryable: true, cause });
    }
  }
  const cause = await pollUntil(
    () => findUnready(admin, topicPrefix),
    (reason) => reason === null,
    { everyMs: POLL_MS, withinMs: READY_WITHIN_MS },
  );
  if (cause === null) return;
  throw new AppError('STORE_UNAVAILABLE', `Topics have no leaders after ${READY_WITHIN_MS / 1000} s`, {
    retryable: true,
    cause,
  });
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
