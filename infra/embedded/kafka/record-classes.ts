/**
 * Writes an archive of the classes that Kafka loads (kafka.ts): `node record-classes.ts FILE`. Runs a Kafka in a temporary
 * folder, with one topic that is written and read.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Kafka, logLevel } from 'kafkajs';

import { withTimeout } from '../../lifecycle.ts';
import { createLogger } from '../../log.ts';
import { takePorts } from '../ports.ts';
import { startKafka } from './kafka.ts';

const READ_MS = 60_000;

const [file] = process.argv.slice(2);
if (file === undefined) throw new TypeError('usage: node record-classes.ts FILE');
const dataDir = mkdtempSync(join(tmpdir(), 'kafka-classes-'));
try {
  const { port, controllerPort } = await takePorts(dataDir, ['port', 'controllerPort']);
  const service = await startKafka({
    dataDir,
    port,
    controllerPort,
    recordClassesTo: file,
    log: createLogger('kafka', 'warn'),
  });
  try {
    await writeAndRead(service.url);
  } finally {
    await service.stop();
  }
  if (!existsSync(file)) throw new Error('the JVM wrote no archive');
} finally {
  rmSync(dataDir, { recursive: true, force: true });
}

async function writeAndRead(broker: string): Promise<void> {
  const kafka = new Kafka({ clientId: 'record-classes', brokers: [broker], logLevel: logLevel.NOTHING });
  const [admin, producer, consumer] = [
    kafka.admin(),
    kafka.producer(),
    kafka.consumer({ groupId: 'classes' }),
  ];
  const topic = 'classes';
  try {
    await admin.connect();
    await admin.createTopics({ topics: [{ topic, numPartitions: 1 }] });
    await producer.connect();
    await producer.send({ topic, messages: [{ value: 'message' }] });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const read = Promise.withResolvers<void>();
    await consumer.run({ eachMessage: async () => read.resolve() });
    const isRead = read.promise.then(() => true);
    if (!(await withTimeout(isRead, READ_MS, false)))
      throw new Error(`Kafka returned no message within ${READ_MS / 1000} s`);
  } finally {
    for (const client of [consumer, producer, admin]) await client.disconnect();
  }
}
