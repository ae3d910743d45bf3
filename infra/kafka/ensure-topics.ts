import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import { pause } from '../lifecycle.ts';
import { MAX_MESSAGE_BYTES } from './consumption.ts';

const WAIT_MS = 60_000;
const LOOK_MS = 100;

/**
 * Makes the registry's topics that are missing, each with its retention, checks the partitions of all, and waits until
 * every partition answers: right after it is made, a topic may be unknown to the broker, or without a leader.
 */
export async function ensureTopics(admin: kafkajs.Admin, topicPrefix: string): Promise<void> {
  const existing = new Set(await admin.listTopics());
  const missing = Object.values(topics).filter(({ name }) => !existing.has(topicPrefix + name));
  try {
    await admin.createTopics({
      // kafkajs gives up on a topic that the broker does not know of yet; leaders are waited for below.
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
    if (!isMadeByOthers(cause)) {
      throw new AppError('STORE_UNAVAILABLE', 'Kafka did not make the topics', { retryable: true, cause });
    }
  }
  const began = performance.now();
  for (;;) {
    const cause = await findUnready(admin, topicPrefix);
    if (cause === null) return;
    if (performance.now() - began > WAIT_MS) {
      throw new AppError('STORE_UNAVAILABLE', 'Kafka has no leaders for the topics', {
        retryable: true,
        cause,
      });
    }
    await pause(LOOK_MS);
  }
}

/** Why the topics cannot be used yet; null when they can. Throws `TOPIC_MISMATCH` when they never can. */
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
        `topic ${name} has ${partitions.length} partitions, this program wants ${wanted}`,
      );
    }
  }
  return null;
}

/** Other processes made some at the same time: they are checked like any that exist. */
function isMadeByOthers(error: unknown): boolean {
  const errors = error instanceof kafkajs.KafkaJSAggregateError ? error.errors : [error];
  return errors.every(
    (each) => each instanceof kafkajs.KafkaJSProtocolError && each.type === 'TOPIC_ALREADY_EXISTS',
  );
}
