import { GenericContainer, Wait, getContainerRuntimeClient } from 'testcontainers';
import type { StartedTestContainer } from 'testcontainers';

import type { EmbeddedUrls } from '../../infra/embedded/index.ts';
import { freePort } from '../../infra/embedded/ports.ts';

const images = {
  kafka: 'apache/kafka:4.3.0',
  clickhouse: 'clickhouse/clickhouse-server',
  postgres: 'postgres:18',
  redis: 'redis:7',
};

/** Starts the servers from their official images, in parallel. */
export async function startContainers(): Promise<{ urls: EmbeddedUrls; stop(): Promise<void> }> {
  const started: StartedTestContainer[] = [];
  const keep = async (starting: Promise<StartedTestContainer>): Promise<StartedTestContainer> => {
    const container = await starting;
    started.push(container);
    return container;
  };
  const stop = async (): Promise<void> => {
    await Promise.all(started.map((container) => container.stop()));
  };
  const results = await Promise.allSettled([
    startKafka(keep),
    startClickHouse(keep),
    startPostgres(keep),
    startRedis(keep),
  ] as const);
  const [kafka, clickhouse, postgres, redis] = results;
  if (
    kafka.status === 'rejected' ||
    clickhouse.status === 'rejected' ||
    postgres.status === 'rejected' ||
    redis.status === 'rejected'
  ) {
    await stop();
    const reasons = results.flatMap((one) => (one.status === 'rejected' ? [String(one.reason)] : []));
    throw new Error(`containers failed to start: ${reasons.join('; ')}`);
  }
  return {
    urls: {
      KAFKA_BROKERS: kafka.value,
      ...clickhouse.value,
      ...postgres.value,
      REDIS_URL: redis.value,
    },
    stop,
  };
}

type Keep = (starting: Promise<StartedTestContainer>) => Promise<StartedTestContainer>;

/** A broker advertises its address to clients, so the host port must be known before it starts. */
async function startKafka(keep: Keep): Promise<string> {
  const { host } = (await getContainerRuntimeClient()).info.containerRuntime;
  const port = await freePort();
  const environment: Record<string, string> = {
    KAFKA_NODE_ID: '1',
    KAFKA_PROCESS_ROLES: 'broker,controller',
    KAFKA_CONTROLLER_QUORUM_VOTERS: '1@localhost:9093',
    KAFKA_CONTROLLER_LISTENER_NAMES: 'CONTROLLER',
    KAFKA_LISTENERS: 'PLAINTEXT://:9092,CONTROLLER://:9093',
    KAFKA_ADVERTISED_LISTENERS: `PLAINTEXT://${host}:${port}`,
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    KAFKA_AUTO_CREATE_TOPICS_ENABLE: 'false',
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: '1',
    KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS: '4',
    KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: '1',
    KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: '1',
    KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR: '1',
    KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR: '1',
    KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS: '0',
    KAFKA_MESSAGE_MAX_BYTES: String(17 * 1024 * 1024),
    KAFKA_REPLICA_FETCH_MAX_BYTES: String(17 * 1024 * 1024),
  };
  await keep(
    new GenericContainer(images.kafka)
      .withExposedPorts({ container: 9092, host: port })
      .withEnvironment(environment)
      .withWaitStrategy(Wait.forLogMessage(/Kafka Server started/))
      .start(),
  );
  return `${host}:${port}`;
}

/** `readonly = 2`: reads only, but may change query settings, as with the embedded reader. */
async function startClickHouse(
  keep: Keep,
): Promise<Pick<EmbeddedUrls, 'CLICKHOUSE_URL' | 'API_CLICKHOUSE_URL'>> {
  const container = await keep(
    new GenericContainer(images.clickhouse)
      .withExposedPorts(8123)
      .withEnvironment({
        CLICKHOUSE_USER: 'default',
        CLICKHOUSE_PASSWORD: 'writer',
        CLICKHOUSE_DB: 'tds',
        CLICKHOUSE_DEFAULT_ACCESS_MANAGEMENT: '1',
      })
      .withUlimits({ nofile: { soft: 262_144, hard: 262_144 } })
      .withWaitStrategy(Wait.forHttp('/ping', 8123).forStatusCode(200))
      .start(),
  );
  const address = `${container.getHost()}:${container.getMappedPort(8123)}`;
  const statements = [
    "CREATE USER IF NOT EXISTS api IDENTIFIED BY 'reader' SETTINGS readonly = 2",
    'GRANT SELECT ON *.* TO api',
  ];
  for (const sql of statements) {
    const response = await fetch(`http://${address}/`, {
      method: 'POST',
      headers: { 'X-ClickHouse-User': 'default', 'X-ClickHouse-Key': 'writer' },
      body: sql,
    });
    if (!response.ok)
      throw new Error(`could not create the read-only ClickHouse user: ${await response.text()}`);
  }
  return {
    CLICKHOUSE_URL: `http://default:writer@${address}/tds`,
    API_CLICKHOUSE_URL: `http://api:reader@${address}/tds`,
  };
}

async function startPostgres(keep: Keep): Promise<Pick<EmbeddedUrls, 'DATABASE_URL' | 'API_DATABASE_URL'>> {
  const container = await keep(
    new GenericContainer(images.postgres)
      .withExposedPorts(5432)
      .withEnvironment({ POSTGRES_PASSWORD: 'postgres', POSTGRES_DB: 'tds' })
      .withCommand(['postgres', '-c', 'max_connections=300'])
      // The image starts the server twice: to initialize the cluster, then to serve it.
      .withWaitStrategy(Wait.forLogMessage(/database system is ready to accept connections/, 2))
      .start(),
  );
  const address = `${container.getHost()}:${container.getMappedPort(5432)}/tds`;
  return {
    DATABASE_URL: `postgres://postgres:postgres@${address}`,
    API_DATABASE_URL: `postgres://tds_api:reader@${address}`,
  };
}

async function startRedis(keep: Keep): Promise<string> {
  const container = await keep(
    new GenericContainer(images.redis)
      .withExposedPorts(6379)
      .withCommand(['redis-server', '--save', '', '--appendonly', 'no'])
      .withWaitStrategy(Wait.forLogMessage(/Ready to accept connections/))
      .start(),
  );
  return `redis://${container.getHost()}:${container.getMappedPort(6379)}`;
}
