import { randomBytes } from 'node:crypto';

import { Redis } from 'ioredis';
import kafkajs from 'kafkajs';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';

import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';

/** Features of the stores that the service relies on, tested on the back end of this run. */
let own: Isolated;
beforeAll(async () => {
  own = await isolated();
});
afterAll(() => own.drop());

test('Kafka stores a message of 16 MB', async () => {
  const kafka = new kafkajs.Kafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    logLevel: kafkajs.logLevel.NOTHING,
  });
  const topic = `${own.env.KAFKA_TOPIC_PREFIX}large`;
  const admin = kafka.admin();
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
  const consumer = kafka.consumer({
    groupId: `${own.env.KAFKA_TOPIC_PREFIX}reader`,
    maxBytesPerPartition: 20 * 1024 * 1024,
  });
  const value = randomBytes(16 * 1024 * 1024);
  try {
    await admin.connect();
    await admin.createTopics({
      waitForLeaders: true,
      topics: [
        { topic, numPartitions: 1, configEntries: [{ name: 'max.message.bytes', value: '17825792' }] },
      ],
    });
    await producer.connect();
    await producer.send({ topic, messages: [{ value }] });

    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const got = await new Promise<Buffer | null>((resolve, reject) => {
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value) }).catch(reject);
    });
    expect(got?.equals(value)).toBe(true);
  } finally {
    await Promise.all([consumer.disconnect(), producer.disconnect(), admin.disconnect()]);
  }
});

test('Kafka does not create topics automatically', async () => {
  const kafka = new kafkajs.Kafka({
    brokers: own.env.KAFKA_BROKERS.split(','),
    logLevel: kafkajs.logLevel.NOTHING,
    retry: { retries: 1 },
  });
  const producer = kafka.producer({
    allowAutoTopicCreation: true,
    createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  try {
    await expect(
      producer.send({ topic: `${own.env.KAFKA_TOPIC_PREFIX}nobody-made-me`, messages: [{ value: 'x' }] }),
    ).rejects.toThrow();
  } finally {
    await producer.disconnect();
  }
});

test('PostgreSQL 18 notifies across connections', async () => {
  const listener = new pg.Client({ connectionString: own.env.DATABASE_URL });
  const speaker = new pg.Client({ connectionString: own.env.DATABASE_URL });
  await Promise.all([listener.connect(), speaker.connect()]);
  try {
    const version = await speaker.query<{ v: string }>("SELECT current_setting('server_version_num') AS v");
    expect(Number(version.rows[0]?.v)).toBeGreaterThanOrEqual(180_000);

    await listener.query('LISTEN outcome');
    const received = new Promise((resolve) =>
      listener.once('notification', ({ payload }) => resolve(payload)),
    );
    await speaker.query("SELECT pg_notify('outcome', 'decided')");
    expect(await received).toBe('decided');
  } finally {
    await Promise.all([listener.end(), speaker.end()]);
  }
});

test('Redis counts', async () => {
  const redis = new Redis(own.env.REDIS_URL);
  try {
    await redis.incr('calls');
    expect(await redis.incr('calls')).toBe(2);
  } finally {
    redis.disconnect();
  }
});
