import { describe, expect, test } from 'vitest';

import { loadConfig, required } from '../../../infra/config.ts';

describe('settings', () => {
  test.each([
    '1.1.1.1',
    '127.0.0.1:5353',
    '2606:4700::1111',
    '[2606:4700::1111]:53',
    ' 1.1.1.1 , 8.8.8.8:53',
  ])('name servers %s', (text) => {
    expect(loadConfig({ EGRESS_DNS_SERVERS: text }).egressDnsServers).toEqual(
      text.split(',').map((server) => server.trim()),
    );
  });
  test.each(['dns.example', '1.1.1', '1.1.1.1:65536', '[1.1.1.1]:53', '2606:4700::1111:', '1.1.1.1:53:53'])(
    'rejects %s as a name server',
    (text) => {
      expect(() => loadConfig({ EGRESS_DNS_SERVERS: text })).toThrow(/EGRESS_DNS_SERVERS: .* is not an ip/);
    },
  );

  test.each([
    'kafka-1',
    'kafka://a:9092',
    'a:9092,b',
    'a:9092/',
    'a:0',
    'a:65536',
    '::1:9092',
    '[::1]:9092',
    ':9092',
  ])('rejects %s as brokers', (text) => {
    expect(() => loadConfig({ KAFKA_BROKERS: text })).toThrow(/KAFKA_BROKERS: .* is not host:port/);
  });

  test('an empty environment is every default', () => {
    const config = loadConfig({});
    expect(config.port).toBe(8080);
    expect(config.host).toBe('127.0.0.1');
    expect(config.dataDir).toBe('.data');
    expect(config.rpcTimeoutMs).toBe(10_000);
    expect(config.indexFrom).toBeNull();
    expect(config.secretKey).toBeNull();
  });

  test('values are parsed into what they mean', () => {
    const config = loadConfig({
      KAFKA_BROKERS: 'a:9092, b:9092',
      SECRET_KEY: 'AB'.repeat(32),
      INDEX_FROM: '0',
      TRUSTED_PROXIES: '10.0.0.0/8',
      PORT: '',
    });
    expect(config.kafkaBrokers).toEqual(['a:9092', 'b:9092']);
    expect(config.secretKey).toEqual(Buffer.alloc(32, 0xab));
    expect(config.indexFrom).toBe(0);
    expect(config.trustedProxies.map(({ address, bits }) => `${address.toString()}/${bits}`)).toEqual([
      '10.0.0.0/8',
    ]);
    expect(config.port).toBe(8080);
  });

  test('all wrong settings are named at once', () => {
    const wrong = {
      PORT: 'eighty',
      SECRET_KEY: 'short',
      STARKNET_RPC_URL: 'ftp://node',
      DATABASE_URL: 'not a url',
      RPC_TIMEOUT_MS: '0',
      TRUSTED_PROXIES: '10.0.0.0/33',
      WEBHOOK_ALLOW_NETWORKS: '127.0.0.0/8,loopback',
      EGRESS_DNS_SERVERS: '1.1.1.1:0',
      EXPORT_FILES: 's3://',
      ADMIN_USERNAME: 'root',
    };
    const names = Object.keys(wrong).filter((name) => name !== 'ADMIN_USERNAME');
    expect(() => loadConfig(wrong)).toThrow(
      new RegExp(
        names
          .toSorted()
          .map((name) => `(?=[\\s\\S]*${name}:)`)
          .join('') + '(?=[\\s\\S]*ADMIN_PASSWORD:)',
      ),
    );
  });

  test('a wrong number or level says what is allowed', () => {
    expect(() => loadConfig({ PORT: 'abc', RPC_CONCURRENCY: '0.5', LOG_LEVEL: 'loud' })).toThrow(
      [
        'Wrong settings:',
        '  PORT: must be a whole number from 0 to 65535',
        '  RPC_CONCURRENCY: must be a whole number from 1 to 256',
        '  LOG_LEVEL: must be one of trace, debug, info, warn, error, silent',
      ].join('\n'),
    );
  });

  test('a setting that a role cannot do without is named, without what an embedded start does', () => {
    expect(() => required(loadConfig({}), 'secretKey')).toThrow(
      /^SECRET_KEY must be set: key that encrypts stored secrets, 32 bytes as hex$/,
    );
    expect(() => required(loadConfig({}), 'databaseUrl')).toThrow(/DATABASE_URL must be set/);
    expect(() => required(loadConfig({}), 'kafkaBrokers')).toThrow(/KAFKA_BROKERS must be set/);
  });
});

test('the reading role of a database is derived, the same in every process, unless it is given', () => {
  const env = { DATABASE_URL: 'postgres://owner:secret@db:5432/tds', SECRET_KEY: 'ab'.repeat(32) };
  const url = new URL(required(loadConfig(env), 'apiDatabaseUrl'));
  expect([url.username, url.host, url.pathname]).toEqual(['tds_api', 'db:5432', '/tds']);
  expect(url.password.length).toBeGreaterThan(40);
  expect(loadConfig(env).apiDatabaseUrl).toBe(url.href);
  expect(loadConfig({ ...env, SECRET_KEY: 'cd'.repeat(32) }).apiDatabaseUrl).not.toBe(url.href);
  expect(loadConfig({ ...env, API_DATABASE_URL: 'postgres://r:p@db/tds' }).apiDatabaseUrl).toBe(
    'postgres://r:p@db/tds',
  );
  expect(loadConfig({ DATABASE_URL: env.DATABASE_URL }).apiDatabaseUrl).toBeNull();
});

test('a cluster is refused beside the embedded ClickHouse, and accepted with the URL of either role', () => {
  const cluster = { CLICKHOUSE_CLUSTER: 'main' };
  expect(() => loadConfig({ CLICKHOUSE_INSERT_QUORUM: '2' })).toThrow(
    /CLICKHOUSE_INSERT_QUORUM: needs CLICKHOUSE_CLUSTER/,
  );
  expect(() => loadConfig(cluster)).toThrow(/CLICKHOUSE_CLUSTER: needs CLICKHOUSE_URL/);
  const withoutDatabase = { ...cluster, CLICKHOUSE_URL: 'http://host:8123/' };
  expect(() => loadConfig(withoutDatabase)).toThrow(/CLICKHOUSE_URL: must name the database/);
  for (const name of ['CLICKHOUSE_URL', 'API_CLICKHOUSE_URL']) {
    const config = loadConfig({ ...cluster, [name]: 'http://host:8123/tds' });
    expect([config.clickhouseCluster, config.clickhouseInsertQuorum]).toEqual(['main', 2]);
  }
  const wrong = { CLICKHOUSE_CLUSTER: "it's", CLICKHOUSE_INSERT_QUORUM: '1' };
  expect(() => loadConfig(wrong)).toThrow(/CLICKHOUSE_CLUSTER: must be.*CLICKHOUSE_INSERT_QUORUM: must be/s);
});
