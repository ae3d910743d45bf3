import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Kafka, logLevel } from 'kafkajs';
import type { Admin } from 'kafkajs';

import { javaCommand } from '../../infra/embedded/kafka/kafka.ts';
import { freePort } from '../../infra/embedded/ports.ts';
import { startService } from '../../infra/embedded/service.ts';
import type { EmbeddedService } from '../../infra/embedded/service.ts';
import { createLogger } from '../../infra/log.ts';
import { retry } from '../../infra/retry.ts';

const jars = fileURLToPath(new URL('../../.cache/kafka-4.3.0/lib/*', import.meta.url));
const java = javaCommand();
const JVM = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dlog4j2.level=OFF'];
const NODE_IDS = [1, 2, 3];

export interface ClusterBroker {
  /** As `host:port`. */
  readonly url: string;
  /** Process id of the running broker. */
  pid(): number;
  /** SIGTERM: it hands over its partitions first, while a majority of the controllers is there. */
  stop(): Promise<void>;
  /** SIGKILL. */
  kill(): Promise<void>;
  /** Starts it again on its log; resolves when the controller has accepted it. */
  start(): Promise<void>;
}

export interface KafkaCluster {
  readonly brokers: readonly ClusterBroker[];
  /** For `KAFKA_BROKERS`. */
  readonly urls: readonly string[];
  /** The folders of the brokers' logs. */
  readonly logDirs: readonly string[];
  readonly admin: Admin;
  /** Creates a topic, of three replicas unless `replicas` says otherwise, and waits until all partitions have leaders. */
  createTopic(topic: string, partitions: number, replicas?: number): Promise<void>;
  /** Moves the leader of a partition to another broker; resolves when the controller has accepted the request. */
  moveLeader(topic: string, partition: number): Promise<void>;
  /** Prefers another leader for each partition of a topic; the controller elects it within a second if it is in sync. */
  preferOtherLeaders(topic: string): Promise<void>;
  /** True when every replica of every topic is in sync. */
  isInSync(): Promise<boolean>;
  stop(): Promise<void>;
}

/**
 * Three Kafka brokers on loopback, each of which is a controller too; topics have three replicas. `sessionMs`: a broker
 * without heartbeats for so long counts as dead; by default so long that a slow one on a loaded machine does not.
 */
export async function startKafkaCluster({ sessionMs = 20_000 } = {}): Promise<KafkaCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'tds-kafka-cluster-'));
  const controllerPorts = await Promise.all(NODE_IDS.map(freePort));
  const clusterId = newClusterId();
  const started = await Promise.allSettled(
    NODE_IDS.map(async (id) => {
      const properties = { 'broker.session.timeout.ms': sessionMs };
      const port = await freePort();
      return await restartable({ id, folder, clusterId, controllerPorts, port, properties });
    }),
  );
  const brokers = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  const killAll = async (): Promise<void> => {
    await Promise.all(brokers.map((broker) => broker.kill()));
    rmSync(folder, { recursive: true, force: true });
  };
  const failed = started.find((one) => one.status === 'rejected');
  if (failed !== undefined) {
    await killAll();
    throw failed.reason;
  }
  const urls = brokers.map(({ url }) => url);
  const admin = new Kafka({ clientId: 'cluster-test', brokers: urls, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  return {
    brokers,
    urls,
    logDirs: NODE_IDS.map((id) => logDirOf(folder, id)),
    admin,
    ...topicsOf(admin),
    async stop() {
      await admin.disconnect();
      await killAll();
    },
  };
}

function topicsOf(
  admin: Admin,
): Pick<KafkaCluster, 'createTopic' | 'moveLeader' | 'preferOtherLeaders' | 'isInSync'> {
  const partitionsOf = async (topic: string) =>
    (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]?.partitions ?? [];
  const reassign = (topic: string, assignment: readonly [partition: number, replicas: number[]][]) =>
    admin.alterPartitionReassignments({
      topics: [
        {
          topic,
          partitionAssignment: assignment.map(([partition, replicas]) => ({ partition, replicas })),
        },
      ],
    });
  return {
    async createTopic(topic, partitions, replicas = 3) {
      await admin.createTopics({
        // kafkajs fails on a topic that the broker it asks does not know yet.
        waitForLeaders: false,
        topics: [
          {
            topic,
            numPartitions: partitions,
            replicationFactor: replicas,
            configEntries: [{ name: 'min.insync.replicas', value: String(Math.min(2, replicas)) }],
          },
        ],
      });
      await retry(() => admin.fetchTopicOffsets(topic), { isRetryable: () => true, deadlineMs: 30_000 });
    },
    async moveLeader(topic, partition) {
      const found = (await partitionsOf(topic)).find(({ partitionId }) => partitionId === partition);
      if (found === undefined) throw new Error(`no partition ${partition} of ${topic}`);
      const { leader, replicas } = found;
      const others = replicas.filter((id) => id !== leader);
      // Without its replica the leader must move; it comes back as a follower.
      await reassign(topic, [[partition, others]]);
      await reassign(topic, [[partition, [...others, leader]]]);
    },
    async preferOtherLeaders(topic) {
      const partitions = await partitionsOf(topic);
      await reassign(
        topic,
        partitions.map(({ partitionId, replicas }) => [
          partitionId,
          [...replicas.slice(1), ...replicas.slice(0, 1)],
        ]),
      );
    },
    async isInSync() {
      const { topics } = await admin.fetchTopicMetadata();
      return topics.every(({ partitions }) =>
        partitions.every(({ replicas, isr }) => replicas.length === isr.length),
      );
    },
  };
}

export function newClusterId(): string {
  return `C${Buffer.from(randomUUID().replaceAll('-', ''), 'hex').toString('base64url').slice(1)}`;
}

export interface BrokerOptions {
  /** From 1; its controller listens on the port of `controllerPorts` in its place. */
  readonly id: number;
  readonly folder: string;
  readonly clusterId: string;
  readonly controllerPorts: readonly number[];
  readonly port: number;
  /** Further properties, and arguments that format the storage. */
  readonly properties?: Readonly<Record<string, string | number>>;
  readonly formatArgs?: readonly string[];
}

async function restartable(options: BrokerOptions): Promise<ClusterBroker> {
  let service = await startBroker(options);
  return {
    url: service.url,
    pid: () => service.pid,
    stop: () => service.stop(),
    async kill() {
      try {
        process.kill(service.pid, 'SIGKILL');
      } catch {
        // It is not running.
      }
      await service.exited;
    },
    async start() {
      service = await startBroker(options);
    },
  };
}

/** Starts a broker, on storage that is formatted at the first start. */
export async function startBroker(options: BrokerOptions): Promise<EmbeddedService> {
  const { id, folder, clusterId, port } = options;
  const home = join(folder, String(id));
  const configFile = join(home, 'server.properties');
  if (!existsSync(home)) {
    mkdirSync(home);
    writeFileSync(configFile, properties(options));
    const format = ['kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', configFile];
    format.push(...(options.formatArgs ?? []));
    await promisify(execFile)(java, ['-Xmx96m', ...JVM, '-cp', jars, ...format]);
  }
  const url = `127.0.0.1:${port}`;
  return await startService({
    name: `kafka-${id}`,
    url,
    program: {
      command: java,
      args: ['-Xmx256m', '-Xms64m', ...JVM, '-cp', jars, 'kafka.Kafka', configFile],
      stopSignal: 'SIGTERM',
      graceMs: 30_000,
    },
    watch: 'guard',
    pidFile: join(home, 'pids'),
    probe: () => findInCluster(url),
    readyMs: 120_000,
    log: createLogger('kafka-cluster', 'warn'),
  });
}

const logDirOf = (folder: string, id: number): string => join(folder, String(id), 'log');

function properties({ id, folder, controllerPorts, port, properties: further = {} }: BrokerOptions): string {
  const addresses = controllerPorts.map((controllerPort) => `127.0.0.1:${controllerPort}`);
  const entries = {
    'process.roles': 'broker,controller',
    'node.id': id,
    'controller.quorum.voters': addresses.map((address, index) => `${index + 1}@${address}`).join(','),
    'controller.listener.names': 'CONTROLLER',
    listeners: `PLAINTEXT://127.0.0.1:${port},CONTROLLER://${addresses[id - 1]}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${port}`,
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'log.dirs': logDirOf(folder, id),
    'auto.create.topics.enable': false,
    'offsets.topic.num.partitions': 4,
    'group.initial.rebalance.delay.ms': 0,
    'leader.imbalance.check.interval.seconds': 1,
    'num.network.threads': 2,
    'num.io.threads': 2,
    'log.cleaner.dedupe.buffer.size': 16_777_216,
    ...further,
  };
  return Object.entries(entries)
    .map(([key, value]) => `${key}=${value}\n`)
    .join('');
}

/** Fails until the cluster's brokers include the one that is asked. */
async function findInCluster(url: string): Promise<void> {
  const admin = new Kafka({
    clientId: 'start',
    brokers: [url],
    retry: { retries: 0 },
    logLevel: logLevel.NOTHING,
  }).admin();
  try {
    await admin.connect();
    const { brokers } = await admin.describeCluster();
    if (!brokers.some(({ host, port }) => `${host}:${port}` === url))
      throw new Error(`${url} is not in the cluster yet`);
  } finally {
    await admin.disconnect().catch(() => {});
  }
}
