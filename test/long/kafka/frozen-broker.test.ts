import { afterAll, beforeAll, expect, test } from 'vitest';

import { createKafka } from '../../../infra/kafka/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { createLogger } from '../../../infra/log.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import { topics } from '../../../schemas/topics.ts';
import { startKafkaCluster } from '../../support/kafka-cluster.ts';
import type { KafkaCluster } from '../../support/kafka-cluster.ts';

const PREFIX = 'frozen.';
const topic = { ...topics.chainStatus, partitions: 6 };
/** A request to the frozen broker times out after 30 s; kafkajs alone still stalled after 330 s. */
const MAX_STALL_MS = 90_000;

let cluster: KafkaCluster;
beforeAll(async () => {
  cluster = await startKafkaCluster({ sessionMs: 9000 });
  await cluster.createTopic(PREFIX + topic.name, topic.partitions);
});
afterAll(() => cluster?.stop());

test('publishing and consuming resume while a broker that has frozen keeps its connections', async ({
  annotate,
}) => {
  const log = createLogger('test', 'silent');
  const kafka = createKafka({ brokers: cluster.urls, clientId: 'test', topicPrefix: PREFIX, log });
  const publisher = kafka.publisher();
  const stop = new AbortController();
  /** By partition, the times at which messages were sent that are acknowledged, and consumed. */
  const acknowledged = new Map<number, number>();
  const consumed = new Map<number, number>();
  const publish = async (partition: number): Promise<void> => {
    for (; !stop.signal.aborted; await sleep(100)) {
      const at = Date.now();
      const value = { type: 'chunk.finished' as const, v: 1 as const, observed_at: at, name: 'a' };
      try {
        await publisher.publish(topic, [{ partition, value }]);
        acknowledged.set(partition, at);
      } catch (error) {
        if (!isRetryable(error)) throw error;
      }
    }
  };
  const crashes: unknown[] = [];
  const consumption = await kafka.consume({
    groupId: 'frozen',
    topics: [topic],
    startAt: async () => 0,
    onBatch: async ({ partition, messages }) => {
      const last = messages.at(-1);
      if (last !== undefined)
        consumed.set(partition, topic.schema.parse(JSON.parse(last.value.toString())).observed_at);
    },
    onCrash: (error) => crashes.push(error),
  });
  const publishing = Array.from({ length: topic.partitions }, (_, partition) => publish(partition));
  const isPast = (times: ReadonlyMap<number, number>, at: number): boolean =>
    times.size === topic.partitions && [...times.values()].every((time) => time > at);
  const stallOf = async (times: ReadonlyMap<number, number>, from: number): Promise<number> => {
    while (!isPast(times, from) && Date.now() - from < MAX_STALL_MS) await sleep(100);
    return Date.now() - from;
  };
  await stallOf(consumed, Date.now());

  const [frozen] = cluster.brokers;
  const pid = frozen?.pid() ?? 0;
  process.kill(pid, 'SIGSTOP');
  const from = Date.now();
  try {
    const stalls = await Promise.all([stallOf(acknowledged, from), stallOf(consumed, from)]);
    await annotate(`publishing resumed after ${stalls[0]} ms, consuming after ${stalls[1]} ms`);
    expect(Math.max(...stalls)).toBeLessThan(MAX_STALL_MS);
    expect(crashes).toEqual([]);
  } finally {
    process.kill(pid, 'SIGCONT');
    stop.abort();
    await Promise.all(publishing);
    await consumption.stop();
    await publisher.close();
    await kafka.close();
  }
});
