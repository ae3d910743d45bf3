import { randomBytes } from 'node:crypto';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { loadConfig } from '../../../infra/config.ts';
import { createKafka } from '../../../infra/kafka/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { kafkaConnection } from '../../../infra/kafka/connection.ts';
import { createLogger } from '../../../infra/log.ts';
import { migrate } from '../../../infra/postgres/migrate.ts';
import { createPool } from '../../../infra/postgres/client.ts';
import { topics } from '../../../schemas/topics.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';
import { PASSWORD, USERNAME, startSecureKafka } from '../../support/secure-kafka.ts';
import type { SecureKafka } from '../../support/secure-kafka.ts';
import { tds } from '../../support/tds.ts';

/** A broker that clients reach by TLS and with a log-in only. */

const lines: string[] = [];
const log = createLogger('test', 'trace', { write: (line) => void lines.push(line) });
const topicPrefix = `s_${randomBytes(4).toString('hex')}.`;

const EXPIRED = /^The certificate of Kafka has expired: renew it on the brokers, or .* in KAFKA_SSL_CA$/;

const settingsOf = ({ broker, ca }: SecureKafka) => ({
  KAFKA_BROKERS: broker,
  KAFKA_SSL: 'true',
  KAFKA_SSL_CA: ca,
  KAFKA_SASL_MECHANISM: 'scram-sha-512',
  KAFKA_SASL_USERNAME: USERNAME,
  KAFKA_SASL_PASSWORD: PASSWORD,
});

const open = (server: SecureKafka, env: NodeJS.ProcessEnv = {}): Kafka =>
  createKafka({
    ...kafkaConnection(loadConfig({ ...settingsOf(server), ...env })),
    clientId: 'test',
    topicPrefix,
    log,
  });

let own: Isolated;
beforeAll(async () => {
  own = await isolated();
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test', max: 1 });
  await migrate(pool);
  await pool.end();
});
afterAll(() => own.drop());

/** A role that cannot connect exits with code 1 and the sentence, without a stack or a secret. */
async function expectSentence(
  server: SecureKafka,
  role: string,
  env: Readonly<Record<string, string>>,
  sentence: RegExp,
): Promise<void> {
  const { code, stdout, stderr } = await tds(
    {
      ...own.env,
      ...settingsOf(server),
      API_DATABASE_URL: own.env.DATABASE_URL,
      STARKNET_RPC_URL: 'http://127.0.0.1:1',
      SECRET_KEY: randomBytes(32).toString('hex'),
      LOG_LEVEL: 'trace',
      ...env,
    },
    role,
  );
  const logged = [...stdout.matchAll(/^\{"level":60,.*"msg":"(.*)"\}$/gm)].map(([, message]) => message);
  // A command logs to stderr, before its error.
  const errors = logged.length > 0 ? logged : stderr.trim().split('\n').slice(-1);
  expect(errors, stdout + stderr).toEqual([expect.stringMatching(sentence)]);
  expect(stdout + stderr).not.toMatch(/secret|wrong password/);
  expect(code).toBe(1);
}

/** Every way that the service uses a connection. */
async function exchange(kafka: Kafka, name: string): Promise<void> {
  await kafka.ensureTopics();
  expect(await kafka.topicId(topics.chainStatus)).toMatch(/^[0-9a-f]{32}$/);
  const publisher = kafka.publisher();
  const value = { type: 'chunk.finished' as const, v: 1 as const, observed_at: 1, name };
  const [published] = await publisher.publish(topics.chainStatus, [{ value }]);
  await publisher.close();
  const offset = published?.offset ?? 0;
  const read: unknown[] = [];
  for await (const message of kafka.readRange(topics.chainStatus, 0, offset, offset + 1)) {
    read.push(JSON.parse(String(message.value)));
  }
  expect(read).toEqual([value]);
}

describe('a SASL_SSL listener', () => {
  let server: SecureKafka;
  beforeAll(async () => {
    server = await startSecureKafka();
  });
  afterAll(() => server.stop());

  test.each(['plain', 'scram-sha-256', 'scram-sha-512'])('accepts %s', async (mechanism) => {
    const kafka = open(server, { KAFKA_SASL_MECHANISM: mechanism });
    await exchange(kafka, mechanism);
    await kafka.close();
  });

  test.each(['plain', 'scram-sha-256'])(
    'rejects a wrong password of %s in one sentence',
    async (mechanism) => {
      const kafka = open(server, { KAFKA_SASL_MECHANISM: mechanism, KAFKA_SASL_PASSWORD: 'wrong password' });
      const refusal = {
        code: 'CONFIG_INVALID',
        message: expect.stringMatching(
          /^Kafka rejected the log-in \(.*\): check KAFKA_SASL_MECHANISM, .*PASSWORD$/,
        ),
      };
      await expect(kafka.ensureTopics()).rejects.toMatchObject(refusal);
      await expect(kafka.topicId(topics.chainStatus)).rejects.toMatchObject(refusal);
      await kafka.close();
    },
  );

  test.each(['migrate', 'ingest', 'project', 'observe', 'dispatch', 'api'])(
    'ends tds %s in one sentence without a secret where the password is wrong',
    async (role) => {
      const sentence = /^Kafka rejected the log-in \(.*\): check KAFKA_SASL_MECHANISM, .*PASSWORD$/;
      await expectSentence(server, role, { KAFKA_SASL_PASSWORD: 'wrong password' }, sentence);
    },
  );

  test('is not trusted without its authority', async () => {
    const kafka = open(server, { KAFKA_SSL_CA: '' });
    const refusal = {
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/^The certificate of Kafka is not trusted \(.*\): check KAFKA_SSL_CA$/),
    };
    await expect(kafka.topicId(topics.chainStatus)).rejects.toMatchObject(refusal);
    await expect(kafka.ensureTopics()).rejects.toMatchObject(refusal);
    await kafka.close();
  });

  test('leaves no password in the log', () => {
    expect(lines.join('')).not.toMatch(/secret|wrong password/);
  });
});

test('a listener that asks for a client certificate accepts one of its authority', async () => {
  const server = await startSecureKafka({ asksForCertificate: true });
  try {
    const certified = open(server, { KAFKA_SSL_CERT: server.clientCert, KAFKA_SSL_KEY: server.clientKey });
    await exchange(certified, 'certified');
    await certified.close();
    const bare = open(server);
    await expect(bare.topicId(topics.chainStatus)).rejects.toMatchObject({
      code: expect.stringMatching('CONFIG_INVALID|STORE_UNAVAILABLE'),
    });
    await bare.close();
  } finally {
    await server.stop();
  }
});

describe('an expired certificate', () => {
  test('of the broker is named as such, also by each role', async () => {
    const server = await startSecureKafka({ expired: 'broker' });
    try {
      const kafka = open(server);
      const refusal = { code: 'CONFIG_INVALID', message: expect.stringMatching(EXPIRED) };
      await expect(kafka.topicId(topics.chainStatus)).rejects.toMatchObject(refusal);
      await expect(kafka.ensureTopics()).rejects.toMatchObject(refusal);
      await kafka.close();
      await expectSentence(server, 'project', {}, EXPIRED);
    } finally {
      await server.stop();
    }
  });

  test('of the client is named as such', async () => {
    const server = await startSecureKafka({ expired: 'client', asksForCertificate: true });
    try {
      const kafka = open(server, { KAFKA_SSL_CERT: server.clientCert, KAFKA_SSL_KEY: server.clientKey });
      await expect(kafka.topicId(topics.chainStatus)).rejects.toMatchObject({
        code: 'CONFIG_INVALID',
        message: expect.stringMatching(
          /^Kafka rejected the client certificate \(.*\): check KAFKA_SSL_CERT and KAFKA_SSL_KEY$/,
        ),
      });
      await kafka.close();
    } finally {
      await server.stop();
    }
  });
});

test.each([
  [{ KAFKA_SSL_CA: 'ca.pem' }, /KAFKA_SSL_CA has no effect: set KAFKA_SSL=true/],
  [{ KAFKA_SSL: 'true', KAFKA_SSL_CERT: 'c.pem' }, /KAFKA_SSL_CERT and KAFKA_SSL_KEY must be set together/],
  [{ KAFKA_SSL: 'true', KAFKA_SSL_CA: 'no-such.pem' }, /KAFKA_SSL_CA: cannot read no-such.pem/],
  [{ KAFKA_SASL_USERNAME: 'u' }, /have no effect: set KAFKA_SASL_MECHANISM/],
  [
    { KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_USERNAME: 'u' },
    /needs KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD/,
  ],
  [
    { KAFKA_SASL_MECHANISM: 'gssapi' },
    /KAFKA_SASL_MECHANISM: must be one of plain, scram-sha-256, scram-sha-512/,
  ],
  [{ KAFKA_SSL: 'perhaps' }, /KAFKA_SSL: must be true or false/],
])('rejects the settings %j', (env, message) => {
  expect(() => kafkaConnection(loadConfig({ KAFKA_BROKERS: 'a:1', ...env }))).toThrow(message);
});
