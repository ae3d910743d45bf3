/**
 * The embedded services: real servers on loopback for whoever has set no URL of their own.
 *
 * Each service whose URL setting is absent is started, all side by side, on ports kept in `DATA_DIR/ports.json`; its
 * data, passwords and logs are under `DATA_DIR`. Product code is given URLs and cannot tell these from others:
 *
 * | setting | embedded part |
 * |---|---|
 * | KAFKA_BROKERS | Apache Kafka, one node (kafka/) |
 * | CLICKHOUSE_URL, API_CLICKHOUSE_URL | the ClickHouse engine in a process of its own (clickhouse/) |
 * | DATABASE_URL, API_DATABASE_URL | PostgreSQL (postgres.ts) |
 * | REDIS_URL | redis-server (redis.ts) |
 */
import { join, resolve } from 'node:path';

import { AppError } from '../../schemas/errors.ts';
import { startClickHouse } from './clickhouse/clickhouse.ts';
import { lockDataDir } from './data-dir.ts';
import { keepRunning } from './keep-running.ts';
import { startKafka } from './kafka/kafka.ts';
import { takePorts } from './ports.ts';
import { settleEarlier } from './processes.ts';
import { startPostgres } from './postgres.ts';
import { startRedis } from './redis.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

export interface EmbeddedUrls {
  readonly KAFKA_BROKERS: string;
  readonly CLICKHOUSE_URL: string;
  /** The same ClickHouse as a user who may only SELECT. */
  readonly API_CLICKHOUSE_URL: string;
  readonly DATABASE_URL: string;
  /** The same PostgreSQL as a role that may only SELECT; the role is made when the stores are prepared. */
  readonly API_DATABASE_URL?: string;
  readonly REDIS_URL: string;
}

export interface Embedded {
  /** Every setting of the stores: those that were given, and those of the embedded services. */
  readonly urls: EmbeddedUrls;
  /** What was started here. */
  readonly services: readonly EmbeddedService[];
  /** Ends them side by side and frees the folder; within 8 s. */
  stop(): Promise<void>;
}

const portNames = ['kafka', 'kafkaController', 'clickhouse', 'postgres', 'redis'] as const;

/** Starts what has no URL in `env`; when one of them fails, the others are stopped and the error says which and why. */
export async function startEmbedded(options: {
  dataDir: string;
  log: ServiceLog;
  env: Readonly<Record<string, string | undefined>>;
  /** With it, a service that ends by itself is started again, and this is called then. */
  onRestart?: () => void;
}): Promise<Embedded> {
  const { log, env, onRestart } = options;
  const dataDir = resolve(options.dataDir);
  const release = await lockDataDir(dataDir);
  const services: EmbeddedService[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(services.map((service) => service.stop()));
    release();
  };
  const given = (name: keyof EmbeddedUrls): string | null => {
    const value = env[name];
    return value === undefined || value === '' ? null : value;
  };
  const keep = async <S extends EmbeddedService>(start: () => Promise<S>): Promise<S> => {
    const service = await (onRestart === undefined ? start() : keepRunning(start, { log, onRestart }));
    services.push(service);
    return service;
  };

  try {
    // What a killed start left is waited for before ports are looked at: it still holds those that are remembered.
    const parts = ['kafka', 'clickhouse', 'postgres', 'redis'];
    await Promise.all(parts.map((part) => settleEarlier(join(dataDir, part, `${part}.pids`), 8000)));
    const ports = await takePorts(dataDir, portNames);
    const common = { dataDir, log };
    const clickhouse = async (): Promise<Pick<EmbeddedUrls, 'CLICKHOUSE_URL' | 'API_CLICKHOUSE_URL'>> => {
      const url = given('CLICKHOUSE_URL');
      if (url !== null) {
        const reader = given('API_CLICKHOUSE_URL');
        if (reader === null)
          log.warn({}, 'API_CLICKHOUSE_URL is not set: the API is given the writer of CLICKHOUSE_URL');
        return { CLICKHOUSE_URL: url, API_CLICKHOUSE_URL: reader ?? url };
      }
      const service = await keep(() => startClickHouse({ ...common, port: ports.clickhouse }));
      return { CLICKHOUSE_URL: service.url, API_CLICKHOUSE_URL: service.apiUrl };
    };
    const postgres = async (): Promise<Pick<EmbeddedUrls, 'DATABASE_URL' | 'API_DATABASE_URL'>> => {
      const url = given('DATABASE_URL');
      const reader = given('API_DATABASE_URL');
      if (url !== null) {
        return { DATABASE_URL: url, ...(reader === null ? {} : { API_DATABASE_URL: reader }) };
      }
      const service = await keep(() => startPostgres({ ...common, port: ports.postgres }));
      return { DATABASE_URL: service.url, API_DATABASE_URL: service.apiUrl };
    };
    const kafka = async (): Promise<string> => {
      const { kafka: port, kafkaController: controllerPort } = ports;
      return (
        given('KAFKA_BROKERS') ?? (await keep(() => startKafka({ ...common, port, controllerPort }))).url
      );
    };
    const redis = async (): Promise<string> =>
      given('REDIS_URL') ?? (await keep(() => startRedis({ ...common, port: ports.redis }))).url;

    const starting = [clickhouse(), postgres(), kafka(), redis()] as const;
    // All are waited for, also when one fails, so that none is still starting when the others are stopped.
    const ended = await Promise.allSettled(starting);
    const failures = ended.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
    if (failures.length > 0) {
      const messages = failures.map((one) => (one instanceof Error ? one.message : String(one)));
      throw new AppError('STORE_UNAVAILABLE', messages.join('\n'), { cause: failures[0] });
    }
    const [analytics, accounts, KAFKA_BROKERS, REDIS_URL] = await Promise.all(starting);
    return { urls: { ...analytics, ...accounts, KAFKA_BROKERS, REDIS_URL }, services, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
