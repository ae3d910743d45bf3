import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Kafka, logLevel } from 'kafkajs';
import type { Admin } from 'kafkajs';

import { freePort } from '../../infra/embedded/ports.ts';
import { startService } from '../../infra/embedded/service.ts';
import type { EmbeddedService } from '../../infra/embedded/service.ts';
import { createLogger } from '../../infra/log.ts';
import { retry } from '../../infra/retry.ts';

const jars = fileURLToPath(new URL('../../.cache/kafka-4.3.0/lib/*', import.meta.url));
const java = process.env['JAVA_HOME'] === undefined ? 'java' : join(process.env['JAVA_HOME'], 'bin', 'java');
const JVM = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dlog4j2.level=OFF'];

export interface KafkaCluster {
  /** Three brokers, as `host:port`. */
  readonly brokers: readonly string[];
  readonly admin: Admin;
  /** Creates a topic, of three replicas unless `replicas` says otherwise, and waits until all partitions have leaders. */
  createTopic(topic: string, partitions: number, replicas?: number): Promise<void>;
  /** Moves the leader of a partition to another broker; resolves when the controller has accepted the request. */
  moveLeader(topic: string, partition: number): Promise<void>;
  stop(): Promise<void>;
}

/** Three Kafka brokers on loopback, the first of which is the controller too; topics have three replicas. */
export async function startKafkaCluster(): Promise<KafkaCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'tds-kafka-cluster-'));
  const controllerPort = await freePort();
  const clusterId = newClusterId();
  const services: EmbeddedService[] = [];
  const stopBrokers = async (): Promise<void> => {
    // The controller last: brokers hand over their partitions through it.
    for (const service of services.toReversed()) await service.stop();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    for (const id of [1, 2, 3]) {
      services.push(await startBroker({ id, folder, clusterId, controllerPort, port: await freePort() }));
    }
  } catch (error) {
    await stopBrokers();
    throw error;
  }
  const brokers = services.map(({ url }) => url);
  const admin = new Kafka({ clientId: 'cluster-test', brokers, logLevel: logLevel.NOTHING }).admin();
  await admin.connect();

  const replicasOf = async (topic: string, partition: number): Promise<number[]> => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    const found = topics[0]?.partitions.find(({ partitionId }) => partitionId === partition);
    if (found === undefined) throw new Error(`no partition ${partition} of ${topic}`);
    // The leader first.
    return [found.leader, ...found.replicas.filter((id) => id !== found.leader)];
  };
  const reassign = (topic: string, partition: number, replicas: number[]): Promise<void> =>
    admin.alterPartitionReassignments({
      topics: [{ topic, partitionAssignment: [{ partition, replicas }] }],
    });

  return {
    brokers,
    admin,
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
      const [leader = 0, ...others] = await replicasOf(topic, partition);
      // Without its replica the leader must move; it comes back as a follower.
      await reassign(topic, partition, others);
      await reassign(topic, partition, [...others, leader]);
    },
    async stop() {
      await admin.disconnect();
      await stopBrokers();
    },
  };
}

export function newClusterId(): string {
  return `C${Buffer.from(randomUUID().replaceAll('-', ''), 'hex').toString('base64url').slice(1)}`;
}

export async function startBroker(broker: {
  readonly id: number;
  readonly folder: string;
  readonly clusterId: string;
  readonly controllerPort: number;
  readonly port: number;
  /** Further properties, and arguments that format the storage. */
  readonly properties?: Readonly<Record<string, string | number>>;
  readonly formatArgs?: readonly string[];
}): Promise<EmbeddedService> {
  const { id, folder, clusterId, port } = broker;
  const home = join(folder, String(id));
  mkdirSync(home);
  const configFile = join(home, 'server.properties');
  writeFileSync(configFile, properties(broker, home));
  const format = ['kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', configFile];
  format.push(...(broker.formatArgs ?? []));
  await promisify(execFile)(java, ['-Xmx96m', ...JVM, '-cp', jars, ...format]);
  const url = `127.0.0.1:${port}`;
  return await startService({
    name: `kafka-${id}`,
    url,
    program: {
      command: java,
      args: ['-Xmx256m', '-Xms64m', ...JVM, '-cp', jars, 'kafka.Kafka', configFile],
      stopSignal: 'SIGTERM',
      graceMs: 5000,
    },
    watch: 'guard',
    pidFile: join(home, 'pids'),
    probe: () => describeCluster(url, id),
    readyMs: 120_000,
    log: createLogger('kafka-cluster', 'warn'),
  });
}

function properties(
  { id, controllerPort, port, properties: further = {} }: Parameters<typeof startBroker>[0],
  home: string,
): string {
  const controller = `CONTROLLER://127.0.0.1:${controllerPort}`;
  const entries = {
    'process.roles': id === 1 ? 'broker,controller' : 'broker',
    'node.id': id,
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    'controller.listener.names': 'CONTROLLER',
    listeners: `PLAINTEXT://127.0.0.1:${port}${id === 1 ? `,${controller}` : ''}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${port}`,
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'log.dirs': join(home, 'log'),
    'auto.create.topics.enable': false,
    'offsets.topic.num.partitions': 4,
    'group.initial.rebalance.delay.ms': 0,
    'num.network.threads': 2,
    'num.io.threads': 2,
    'log.cleaner.dedupe.buffer.size': 16_777_216,
    // A slow broker on a loaded machine must not count as dead.
    'broker.session.timeout.ms': 20_000,
    ...further,
  };
  return Object.entries(entries)
    .map(([key, value]) => `${key}=${value}\n`)
    .join('');
}

async function describeCluster(url: string, brokers: number): Promise<void> {
  const admin = new Kafka({
    clientId: 'start',
    brokers: [url],
    retry: { retries: 0 },
    logLevel: logLevel.NOTHING,
  }).admin();
  try {
    await admin.connect();
    const cluster = await admin.describeCluster();
    if (cluster.brokers.length < brokers) throw new Error(`${cluster.brokers.length} of ${brokers} brokers`);
  } finally {
    await admin.disconnect().catch(() => {});
  }
}
