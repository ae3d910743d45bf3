import { randomBytes } from 'node:crypto';

import { ConfigResourceTypes, Kafka as KafkaJs } from 'kafkajs';
import type { Admin } from 'kafkajs';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';

import { createKafka } from '../../../infra/kafka/client.ts';
import type { Kafka, KafkaOptions } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { topics } from '../../../schemas/topics.ts';

const topicPrefix = `k_${randomBytes(4).toString('hex')}.`;
const log = createLogger('test', 'silent');
const open = (options: Partial<KafkaOptions> = {}): Kafka =>
  createKafka({
    ...options,
    brokers: inject('backend').urls.KAFKA_BROKERS.split(','),
    clientId: 'test',
    topicPrefix,
    log,
  });
const finished = (name: string) => ({
  value: { type: 'chunk.finished' as const, v: 1 as const, observed_at: 1, name },
});

let kafka: Kafka;
beforeAll(async () => {
  kafka = open();
});
afterAll(async () => {
  await kafka.close();
});

test('creates topics once for processes that start together, ready to be written', async () => {
  const others = [open(), open(), open()];
  await Promise.all([kafka, ...others].map((each) => each.ensureTopics()));
  await Promise.all(others.map((each) => each.close()));
  const publisher = kafka.publisher();
  for (const topic of Object.values(topics))
    expect(await kafka.offsets(topic)).toHaveLength(topic.partitions);
  expect(await publisher.publish(topics.chainStatus, [finished('a')])).toEqual([{ partition: 0, offset: 0 }]);
  await publisher.close();
});

test('sends messages that are too large for one request in several, and rejects one that its topic does not accept', async () => {
  const publisher = kafka.publisher();
  // Hexadecimal digits compress to half.
  const large = Array.from({ length: 4 }, () => finished(randomBytes(5_000_000).toString('hex')));
  const stored = await publisher.publish(topics.chainStatus, large);
  const first = stored[0]!.offset;
  expect(stored).toEqual(large.map((_, index) => ({ partition: 0, offset: first + index })));
  const names: string[] = [];
  for await (const { value } of kafka.readRange(topics.chainStatus, 0, first, first + large.length)) {
    const message = topics.chainStatus.schema.parse(JSON.parse(value.toString()));
    if (message.type === 'chunk.finished') names.push(message.name);
  }
  expect(names).toEqual(large.map(({ value }) => value.name));
  const tooLarge = finished(randomBytes(20_000_000).toString('hex'));
  await expect(publisher.publish(topics.chainStatus, [tooLarge])).rejects.toMatchObject({
    code: 'MESSAGE_TOO_LARGE',
    retryable: false,
    message: expect.stringContaining(`${topicPrefix}chain.status`),
  });
  expect(await publisher.publish(topics.chainStatus, [finished('after')])).toEqual([
    { partition: 0, offset: first + large.length },
  ]);
  await publisher.close();
});

test('reports the offset of each message in order, also when calls share a request', async () => {
  const publisher = kafka.publisher();
  const places = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      publisher.publish(topics.chainStatus, [finished(`${n}`), finished(`${n} again`)]),
    ),
  );
  const offsets = places.flat().map(({ offset }) => offset);
  expect(offsets).toEqual(Array.from({ length: 100 }, (_, n) => offsets[0]! + n));
  const names: string[] = [];
  for await (const { value } of kafka.readRange(topics.chainStatus, 0, offsets[0]!, offsets[0]! + 100)) {
    const message = topics.chainStatus.schema.parse(JSON.parse(value.toString()));
    if (message.type === 'chunk.finished') names.push(message.name);
  }
  expect(names).toEqual(Array.from({ length: 50 }, (_, n) => [`${n}`, `${n} again`]).flat());
  await publisher.close();
});

test('ends a range at its end, at the end of the log, when the caller stops early, and when it is aborted', async () => {
  const [place] = await kafka.offsets(topics.chainStatus);
  const read = async (from: number, to: number, most = Infinity): Promise<number[]> => {
    const seen: number[] = [];
    for await (const { offset } of kafka.readRange(topics.chainStatus, 0, from, to)) {
      seen.push(offset);
      if (seen.length >= most) break;
    }
    return seen;
  };
  const aborted = kafka.readRange(topics.chainStatus, 0, 3, 6, AbortSignal.abort(new Error('stopping')));
  await expect(aborted[Symbol.asyncIterator]().next()).rejects.toThrow('stopping');
  expect(await read(3, 6)).toEqual([3, 4, 5]);
  expect(await read(place!.high - 2, place!.high + 100)).toEqual([place!.high - 2, place!.high - 1]);
  expect(await read(place!.high, place!.high + 100)).toEqual([]);
  expect(await read(0, 50, 2)).toEqual([0, 1]);
});

test('reads a few messages at a time where they are large', async () => {
  const publisher = kafka.publisher();
  // Hexadecimal digits compress to half, and calls that follow each other share no request.
  for (let n = 0; n < 8; n += 1)
    await publisher.publish(topics.chainStatus, [finished(randomBytes(1_000_000).toString('hex'))]);
  await publisher.close();
  const [place] = await kafka.offsets(topics.chainStatus);
  const range = { partition: 0, from: place!.high - 8, to: place!.high };
  const read: number[] = [];
  for await (const { messages } of kafka.readRanges(topics.chainStatus, [range])) read.push(messages.length);
  expect(read.reduce((sum, one) => sum + one, 0)).toBe(8);
  expect(Math.max(...read)).toBeLessThanOrEqual(2);
});

test('returns a different id for each topic, and the same id each time', async () => {
  const id = await kafka.topicId(topics.commands);
  expect(id).toMatch(/^[0-9a-f]{32}$/);
  expect(await kafka.topicId(topics.commands)).toBe(id);
  expect(await kafka.topicId(topics.tokens)).not.toBe(id);
  expect(id).not.toBe('0'.repeat(32));
});

test('stops a consumption while its start offset is being loaded, and accepts a seek afterwards', async () => {
  const unhandled: unknown[] = [];
  const listener = (error: unknown): void => void unhandled.push(error);
  process.prependListener('unhandledRejection', listener);
  const checkpoint = Promise.withResolvers<number>();
  const consumption = await kafka.consume({
    groupId: 'stopped-early',
    topics: [topics.chainStatus],
    startAt: () => checkpoint.promise,
    onBatch: async () => {},
    onCrash: () => {},
  });
  await consumption.stop();
  checkpoint.resolve(0);
  expect(() => consumption.seek(topics.chainStatus.name, 0, 0)).not.toThrow();
  await new Promise((resolve) => setTimeout(resolve, 50));
  process.off('unhandledRejection', listener);
  expect(unhandled).toEqual([]);
});

test('creates topics that elect no leader that is not in sync, and keep the compression of the publisher', async () => {
  await kafka.ensureTopics();
  const admin = new KafkaJs({ brokers: inject('backend').urls.KAFKA_BROKERS.split(',') }).admin();
  await admin.connect();
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: Object.values(topics).map((topic) => ({
      type: ConfigResourceTypes.TOPIC,
      name: topicPrefix + topic.name,
    })),
  });
  await admin.disconnect();
  const wanted = { 'unclean.leader.election.enable': 'false', 'compression.type': 'producer' };
  for (const [configName, configValue] of Object.entries(wanted)) {
    // Stated for the topic, so that a change of the broker's default does not matter.
    const stated = expect.objectContaining({ configName, configValue, isDefault: false });
    for (const { configEntries } of resources) expect(configEntries).toContainEqual(stated);
  }
});

describe('topics that can lose messages, or cannot be read', () => {
  const name = `${topicPrefix}${topics.chainBlocks.name}`;
  let admin: Admin;
  const configure = async (entries: Record<string, string>): Promise<void> => {
    const configEntries = Object.entries(entries).map(([key, value]) => ({ name: key, value }));
    await admin.alterConfigs({
      validateOnly: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name, configEntries }],
    });
    // The controller acknowledges a change before the broker that is asked for it has applied it.
    await expect.poll(described).toMatchObject(entries);
  };
  const described = async (): Promise<Record<string, string>> => {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name }],
    });
    return Object.fromEntries(
      resources[0]!.configEntries.map(({ configName, configValue }) => [configName, configValue]),
    );
  };
  beforeAll(async () => {
    admin = new KafkaJs({ brokers: inject('backend').urls.KAFKA_BROKERS.split(',') }).admin();
    await admin.connect();
    await kafka.ensureTopics();
  });
  afterAll(() => admin.disconnect());

  test.each([
    [{ 'retention.ms': '604800000' }, 'retention.ms=604800000', 'retention.ms=-1'],
    [{ 'retention.bytes': '1000000' }, 'retention.bytes=1000000', 'retention.bytes=-1'],
    [{ 'cleanup.policy': 'compact' }, 'cleanup.policy=compact', 'cleanup.policy=delete'],
    [
      { 'unclean.leader.election.enable': 'true' },
      'unclean.leader.election.enable=true',
      'unclean.leader.election.enable=false',
    ],
    [{ 'max.message.bytes': '1048588' }, 'max.message.bytes=1048588', 'max.message.bytes='],
    [{ 'compression.type': 'lz4' }, 'compression.type=lz4', 'compression.type=producer'],
    [{ 'compression.type': 'snappy' }, 'compression.type=snappy', 'compression.type=producer'],
  ])('are refused by name, with the command that changes them: %j', async (unsafe, found, wanted) => {
    // Each setting that a case changes, for `configure` to see that it has its safe value again.
    const safe = {
      'retention.ms': '-1',
      'retention.bytes': '-1',
      'cleanup.policy': 'delete',
      'unclean.leader.election.enable': 'false',
      'max.message.bytes': '17825792',
      'compression.type': 'zstd',
    };
    await configure({ ...safe, ...unsafe });
    try {
      const refused = await kafka.ensureTopics().then(
        () => null,
        (error: unknown) => error,
      );
      expect(refused).toMatchObject({ code: 'TOPIC_MISMATCH' });
      const { message } = refused as Error;
      expect(message).toContain(`${name} has ${found}: kafka-configs.sh `);
      expect(message).toContain(`--entity-name ${name} --add-config ${wanted}`);
      const lenient = open({ allowUnsafeTopics: true });
      await lenient.ensureTopics();
      await lenient.close();
    } finally {
      await configure(safe);
    }
    await kafka.ensureTopics();
  });
});
