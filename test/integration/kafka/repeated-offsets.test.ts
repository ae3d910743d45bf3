import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { expect, test } from 'vitest';

import { startKafka } from '../../../infra/embedded/kafka/kafka.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { createKafka } from '../../../infra/kafka/client.ts';
import type { Kafka, LogMessage } from '../../../infra/kafka/client.ts';
import { createLogger } from '../../../infra/log.ts';
import { topics } from '../../../schemas/topics.ts';

/**
 * What the log of Kafka looks like after a full disk: appends that failed, because the memory-mapped index could not be
 * written, have left their records in the file, all with the same offsets.
 */

const log = createLogger('test', 'silent');
const topic = topics.chainStatus;
const named = (name: string) => ({
  value: { type: 'chunk.finished' as const, v: 1 as const, observed_at: 1, name },
});
const nameOf = ({ offset, value }: LogMessage): string => {
  const message = topic.schema.parse(JSON.parse(value.toString()));
  return `${offset} ${message.type === 'chunk.finished' ? message.name : ''}`;
};

async function consumed(kafka: Kafka, from: number, to: number): Promise<string[]> {
  const names: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const consumption = await kafka.consume({
    groupId: `from-${from}`,
    topics: [topic],
    startAt: async () => from,
    async onBatch({ messages }) {
      names.push(...messages.map(nameOf));
      if ((messages.at(-1)?.offset ?? 0) >= to - 1) resolve();
    },
    onCrash: reject,
  });
  try {
    await promise;
  } finally {
    await consumption.stop();
  }
  return names;
}

test('a log that repeats offsets is read with each offset once', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'tds-repeated-'));
  const ports = { port: await freePort(), controllerPort: await freePort() };
  let server = await startKafka({ dataDir, ...ports, log });
  const kafka = createKafka({ brokers: [server.url], clientId: 'test', topicPrefix: 'repeated.', log });
  const publish = async (...names: string[]): Promise<void> => {
    const publisher = kafka.publisher();
    await publisher.publish(topic, names.map(named));
    await publisher.close();
  };
  try {
    await kafka.ensureTopics();
    await publish('a', 'b', 'c');
    await server.stop();
    const folder = join(dataDir, 'kafka/log', `repeated.${topic.name}-0`);
    const segment = join(folder, '00000000000000000000.log');
    const once = readFileSync(segment);
    appendFileSync(segment, once);
    appendFileSync(segment, once);
    // As after a crash: the broker goes through the file, and finds the end of the log there.
    rmSync(join(dataDir, 'kafka/log/.kafka_cleanshutdown'));
    rmSync(join(dataDir, 'kafka/log/recovery-point-offset-checkpoint'));
    server = await startKafka({ dataDir, ...ports, log });
    await publish('d', 'e');

    const whole = ['0 a', '1 b', '2 c', '3 d', '4 e'];
    expect(await consumed(kafka, 0, 5)).toEqual(whole);
    expect(await consumed(kafka, 1, 5)).toEqual(whole.slice(1));
    expect(await consumed(kafka, 3, 5)).toEqual(whole.slice(3));
    const read: string[] = [];
    for await (const message of kafka.readRange(topic, 0, 0, 5)) read.push(nameOf(message));
    expect(read).toEqual(whole);
    expect(readFileSync(segment).indexOf(once, once.length)).toBe(once.length);
  } finally {
    await kafka.close();
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
});
