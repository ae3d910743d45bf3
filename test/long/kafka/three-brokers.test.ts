import { afterAll, beforeAll, expect, test } from 'vitest';

import { createKafka } from '../../../infra/kafka/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { createLogger } from '../../../infra/log.ts';
import { retry } from '../../../infra/retry.ts';
import { topics } from '../../../schemas/topics.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import { startKafkaCluster } from '../../support/kafka-cluster.ts';
import type { KafkaCluster } from '../../support/kafka-cluster.ts';

/** Messages are published for the first time, and on a slow machine until there are enough, up to the second. */
const PUBLISHING_MS = 45_000;
const MAX_PUBLISHING_MS = 180_000;
const ENOUGH = { acknowledged: 2000, moves: 50 };
const PREFIX = 'moves.';
const topic = topics.chainStatus;
/** More partitions than `chain.status` has: one call then writes to all three brokers. */
const wide = { ...topic, partitions: 6 };

let cluster: KafkaCluster;
beforeAll(async () => {
  cluster = await startKafkaCluster();
  await cluster.createTopic(PREFIX + wide.name, wide.partitions);
});
afterAll(() => cluster?.stop());

test('every acknowledged message is in the log at its reported offset while leaders move', async () => {
  const log = createLogger('test', 'silent');
  const kafka = createKafka({ brokers: cluster.urls, clientId: 'test', topicPrefix: PREFIX, log });
  const publisher = kafka.publisher();
  const acknowledged: { partition: number; offset: number; name: string }[] = [];
  const startedAt = performance.now();
  let moves = 0;
  const isDone = (): boolean => {
    const isEnough = acknowledged.length > ENOUGH.acknowledged && moves > ENOUGH.moves;
    return performance.now() - startedAt > (isEnough ? PUBLISHING_MS : MAX_PUBLISHING_MS);
  };

  const publish = async (writer: number): Promise<void> => {
    for (let call = 0; !isDone(); call += 1) {
      const names = Array.from(
        { length: wide.partitions },
        (_, partition) => `${writer}/${call}/${partition}`,
      );
      const messages = names.map((name, partition) => ({
        partition,
        value: { type: 'chunk.finished' as const, v: 1 as const, observed_at: 1, name },
      }));
      try {
        const publications = await publisher.publish(wide, messages);
        publications.forEach((one, index) => acknowledged.push({ ...one, name: names[index] ?? '' }));
      } catch (error) {
        if (!isRetryable(error)) throw error;
      }
    }
  };
  const moveLeaders = async (): Promise<void> => {
    while (!isDone()) {
      // Refused while the partition's previous move is under way.
      await cluster.moveLeader(PREFIX + wide.name, moves % wide.partitions).catch(() => {});
      moves += 1;
      await sleep(50);
    }
  };
  await Promise.all([publish(0), publish(1), publish(2), publish(3), moveLeaders()]);
  await publisher.close();

  const stored = new Map<string, string>();
  // The last moves may still be under way.
  const ranges = await retry(() => kafka.offsets(wide), { isRetryable, deadlineMs: 30_000 });
  for (const { partition, low, high } of ranges) {
    for await (const { offset, value } of kafka.readRange(wide, partition, low, high)) {
      const message = wide.schema.parse(JSON.parse(value.toString()));
      if (message.type === 'chunk.finished') stored.set(`${partition}:${offset}`, message.name);
    }
  }
  await kafka.close();
  // A partition whose replicas have fallen behind has no leader without the one broker that is in sync; kafkajs then lists no
  // topics at all, and the next test stops that broker.
  await cluster.admin.deleteTopics({ topics: [PREFIX + wide.name] });
  const missing = acknowledged.filter(
    ({ partition, offset, name }) => stored.get(`${partition}:${offset}`) !== name,
  );
  expect(missing).toEqual([]);
  expect(acknowledged.length).toBeGreaterThan(ENOUGH.acknowledged);
  expect(moves).toBeGreaterThan(ENOUGH.moves);
});

/** Numbers of replicas of the partitions of `chain.status` under a prefix. */
async function replicaCounts(prefix: string): Promise<number[]> {
  const { topics: described } = await retry(
    () => cluster.admin.fetchTopicMetadata({ topics: [prefix + topic.name] }),
    // The broker that is asked may not know the new topic yet.
    { isRetryable: () => true, deadlineMs: 30_000 },
  );
  return described.flatMap(({ partitions }) => partitions.map(({ replicas }) => replicas.length));
}

test('topics get three replicas also while one of three brokers is away', async () => {
  const log = createLogger('test', 'silent');
  const kafka = createKafka({ brokers: cluster.urls, clientId: 'test', topicPrefix: 'early.', log });
  const [, , last] = cluster.brokers;
  await last?.stop();
  await kafka.ensureTopics();
  await kafka.close();
  expect(await replicaCounts('early.')).toEqual([3]);
  await last?.start();
});

test('topics have three replicas, two of them in sync; one with fewer is refused by name', async () => {
  const log = createLogger('test', 'silent');
  const created = createKafka({ brokers: cluster.urls, clientId: 'test', topicPrefix: 'safe.', log });
  await created.ensureTopics();
  await created.close();
  expect(await replicaCounts('safe.')).toEqual([3]);

  await cluster.createTopic(`few.${topic.name}`, topic.partitions, 1);
  const few = createKafka({ brokers: cluster.urls, clientId: 'test', topicPrefix: 'few.', log });
  const refused = await few.ensureTopics().then(
    () => null,
    (error: unknown) => error,
  );
  await few.close();
  expect(refused).toMatchObject({ code: 'TOPIC_MISMATCH' });
  const { message } = refused as Error;
  expect(message).toMatch(new RegExp(`few.${topic.name} has .*min.insync.replicas=1.*: kafka-configs.sh`));
  expect(message).toMatch(new RegExp(`few.${topic.name} has 1 of 3 replicas: kafka-reassign-partitions.sh`));
});
