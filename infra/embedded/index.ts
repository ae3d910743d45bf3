/**
 * The embedded services: servers on loopback in place of those whose URL setting is unset.
 *
 * They start concurrently, on ports stored in `DATA_DIR/ports.json`, with their data and passwords under `DATA_DIR`. The
 * service only sees their URLs:
 *
 * | setting | embedded part |
 * |---|---|
 * | KAFKA_BROKERS | Apache Kafka, one node (kafka/) |
 * | CLICKHOUSE_URL, API_CLICKHOUSE_URL | ClickHouse (clickhouse/) |
 * | DATABASE_URL, API_DATABASE_URL | PostgreSQL (postgres.ts) |
 * | REDIS_URL | redis-server (redis.ts) |
 */
import { join, resolve } from 'node:path';

import { AppError, errorMessage } from '../../schemas/errors.ts';
import { startClickHouse } from './clickhouse/clickhouse.ts';
import { lockDataDir } from './data-dir.ts';
import { keepRunning } from './keep-running.ts';
import { startKafka } from './kafka/kafka.ts';
import { takePorts } from './ports.ts';
import { awaitEarlierExit } from './processes.ts';
import { startPostgres } from './postgres.ts';
import { startRedis } from './redis.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

export interface EmbeddedUrls {
  readonly KAFKA_BROKERS: string;
  readonly CLICKHOUSE_URL: string;
  /** The same ClickHouse as a user who may only SELECT. */
  readonly API_CLICKHOUSE_URL: string;
  readonly DATABASE_URL: string;
  /** The same PostgreSQL as a role that may only SELECT, which the migrations create. */
  readonly API_DATABASE_URL?: string;
  readonly REDIS_URL: string;
}

export interface Embedded {
  /** The URLs of all stores, both configured and embedded. */
  readonly urls: EmbeddedUrls;
  /** The services started here. */
  readonly services: readonly EmbeddedService[];
  /** Stops them concurrently, within 8 s, and unlocks the folder. */
  stop(): Promise<void>;
}

const portNames = ['kafka', 'kafkaController', 'clickhouse', 'postgres', 'redis'] as const;

export interface EmbeddedOptions {
  readonly dataDir: string;
  readonly log: ServiceLog;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** If given, a service that exits is restarted, and this is called after each restart. */
  readonly onRestart?: () => void;
  /** Called once the folder is locked for this process: from now on it may start other servers there. */
  readonly onLocked?: () => void;
}

/** Starts every store whose URL is unset in `env`; if one fails, the others are stopped and the error names each cause. */
export async function startEmbedded(options: EmbeddedOptions): Promise<Embedded> {
  const dataDir = resolve(options.dataDir);
  const release = await lockDataDir(dataDir);
  const services: EmbeddedService[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(services.map((service) => service.stop()));
    release();
  };
  try {
    options.onLocked?.();
    // Before the ports are checked: processes of a killed start may still listen on them.
    const parts = ['kafka', 'clickhouse', 'postgres', 'redis'];
    await Promise.all(parts.map((part) => awaitEarlierExit(join(dataDir, part, `${part}.pids`), 8000)));
    const starting = await starters({ ...options, dataDir }, services);
    // All are awaited, even if one fails, so that none is still starting when the others are stopped.
    const settled = await Promise.allSettled(starting);
    const failure = startFailure(settled);
    if (failure !== null) throw failure;
    const [clickhouse, postgres, kafka, redis] = await Promise.all(starting);
    return { urls: { ...clickhouse, ...postgres, ...kafka, ...redis }, services, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** An error that names why each of some servers did not start; null if all did. */
export function startFailure(settled: readonly PromiseSettledResult<unknown>[]): AppError | null {
  const failures = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason as unknown] : []));
  if (failures.length === 0) return null;
  return new AppError('STORE_UNAVAILABLE', failures.map(errorMessage).join('\n'), { cause: failures[0] });
}

/** Starts each store, or takes its URL from `env`; started services are added to `services`. */
async function starters({ dataDir, log, env, onRestart }: EmbeddedOptions, services: EmbeddedService[]) {
  const ports = await takePorts(dataDir, portNames);
  const common = { dataDir, log };
  const given = (name: keyof EmbeddedUrls): string | null => {
    const value = env[name];
    return value === undefined || value === '' ? null : value;
  };
  const keep = async <S extends EmbeddedService>(start: () => Promise<S>): Promise<S> => {
    const service = await (onRestart === undefined ? start() : keepRunning(start, { log, onRestart }));
    services.push(service);
    return service;
  };

  const clickhouse = async (): Promise<Pick<EmbeddedUrls, 'CLICKHOUSE_URL' | 'API_CLICKHOUSE_URL'>> => {
    const url = given('CLICKHOUSE_URL');
    if (url !== null) {
      const reader = given('API_CLICKHOUSE_URL');
      if (reader === null)
        log.warn({}, 'API_CLICKHOUSE_URL is not set: the API uses the writing user of CLICKHOUSE_URL');
      return { CLICKHOUSE_URL: url, API_CLICKHOUSE_URL: reader ?? url };
    }
    const service = await keep(() => startClickHouse({ ...common, port: ports.clickhouse }));
    return { CLICKHOUSE_URL: service.url, API_CLICKHOUSE_URL: service.apiUrl };
  };
  const postgres = async (): Promise<Pick<EmbeddedUrls, 'DATABASE_URL' | 'API_DATABASE_URL'>> => {
    const url = given('DATABASE_URL');
    const reader = given('API_DATABASE_URL');
    if (url !== null) return { DATABASE_URL: url, ...(reader === null ? {} : { API_DATABASE_URL: reader }) };
    const service = await keep(() => startPostgres({ ...common, port: ports.postgres }));
    return { DATABASE_URL: service.url, API_DATABASE_URL: service.apiUrl };
  };
  const kafka = async () => {
    const { kafka: port, kafkaController: controllerPort } = ports;
    const start = () => startKafka({ ...common, port, controllerPort });
    return { KAFKA_BROKERS: given('KAFKA_BROKERS') ?? (await keep(start)).url };
  };
  const redis = async () => {
    const start = () => startRedis({ ...common, port: ports.redis });
    return { REDIS_URL: given('REDIS_URL') ?? (await keep(start)).url };
  };
  return [clickhouse(), postgres(), kafka(), redis()] as const;
}
