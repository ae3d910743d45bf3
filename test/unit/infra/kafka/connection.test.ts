import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import kafkajs from 'kafkajs';
import { afterAll, expect, test } from 'vitest';

import { loadConfig } from '../../../../infra/config.ts';
import { connectionOptions, kafkaConnection } from '../../../../infra/kafka/connection.ts';

const folder = mkdtempSync(join(tmpdir(), 'tds-pem-'));
afterAll(() => rmSync(folder, { recursive: true }));

test('every connection uses the certificates that its files have by then', async () => {
  const file = (name: string): string => join(folder, `${name}.pem`);
  const write = (version: number): void => {
    for (const name of ['ca', 'cert', 'key']) writeFileSync(file(name), `${name} ${version}`);
  };
  write(1);
  const connection = kafkaConnection(
    loadConfig({
      KAFKA_BROKERS: '127.0.0.1:1',
      KAFKA_SSL: 'true',
      KAFKA_SSL_CA: file('ca'),
      KAFKA_SSL_CERT: file('cert'),
      KAFKA_SSL_KEY: file('key'),
    }),
  );
  const used: unknown[] = [];
  const admin = new kafkajs.Kafka({
    ...connectionOptions(connection),
    socketFactory({ ssl, port, onConnect }) {
      used.push({ ...ssl });
      return connect({ host: '127.0.0.1', port }, onConnect);
    },
    retry: { retries: 0 },
    logLevel: kafkajs.logLevel.NOTHING,
  }).admin();
  await expect(admin.connect()).rejects.toThrow('ECONNREFUSED');
  write(2);
  await expect(admin.connect()).rejects.toThrow('ECONNREFUSED');
  expect(used).toEqual([
    { ca: 'ca 1', cert: 'cert 1', key: 'key 1' },
    { ca: 'ca 2', cert: 'cert 2', key: 'key 2' },
  ]);
});
