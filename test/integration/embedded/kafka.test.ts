import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import kafkajs from 'kafkajs';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

import { startKafka } from '../../../infra/embedded/kafka/kafka.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { createLogger } from '../../../infra/log.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tds-kafka-'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

async function start(dataDir: string) {
  const ports = { port: await freePort(), controllerPort: await freePort() };
  return await startKafka({ dataDir, ...ports, log: createLogger('test', 'silent') });
}

test.each(['C', 'C.UTF-8'])(
  'Kafka keeps its log in a folder that is not ASCII, LC_ALL=%s',
  async (locale) => {
    vi.stubEnv('LC_ALL', locale);
    const dataDir = join(folder, 'dôc Документы \\u0041 😀');
    mkdirSync(dataDir);
    const service = await start(dataDir);
    await service.stop();
    expect(existsSync(join(dataDir, 'kafka/log/meta.properties'))).toBe(true);
  },
);

test('Kafka reports what Java prints when it cannot format the storage', async () => {
  const java = join(folder, 'bin/java');
  mkdirSync(join(folder, 'bin'));
  writeFileSync(java, '#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n');
  chmodSync(java, 0o755);
  vi.stubEnv('JAVA_HOME', folder);
  await expect(start(folder)).rejects.toThrow(
    'Kafka could not format its storage: check that Java 17 or newer is installed. UnsupportedClassVersionError',
  );
});

test('Kafka runs the Java on the PATH if JAVA_HOME is empty', async () => {
  vi.stubEnv('JAVA_HOME', '');
  const service = await start(folder);
  await service.stop();
  expect(existsSync(join(folder, 'kafka/log/meta.properties'))).toBe(true);
});

test('Kafka acknowledges no message that is not on disk', async () => {
  const service = await start(folder);
  const admin = new kafkajs.Kafka({ brokers: [service.url], logLevel: kafkajs.logLevel.NOTHING }).admin();
  await admin.connect();
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic: 'kept', numPartitions: 1 }] });
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: kafkajs.ConfigResourceTypes.TOPIC, name: 'kept' }],
  });
  await admin.disconnect();
  await service.stop();
  const entries = resources.flatMap(({ configEntries }) => configEntries);
  expect(entries.find(({ configName }) => configName === 'flush.messages')?.configValue).toBe('1');
});
