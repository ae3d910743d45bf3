import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Kafka, logLevel } from 'kafkajs';

import { AppError } from '../../../schemas/errors.ts';
import { makeClosedFolder } from '../data-dir.ts';
import { startService } from '../service.ts';
import type { EmbeddedService, ServiceLog } from '../service.ts';

/** Where infra/setup/setup.mjs puts Kafka's own jars; the version is that of pom.xml. */
const jars = fileURLToPath(new URL('../../../.cache/kafka-4.3.0/lib', import.meta.url));

/** One block is one message of up to 16 MB compressed; the rest is room for the record batch around it. */
const maxMessageBytes = 17 * 1024 * 1024;

/**
 * Starts Apache Kafka 4.3 on loopback: one node that is broker and controller (KRaft). The storage is formatted once
 * under a cluster id kept in its folder. `url` is host:port, as `KAFKA_BROKERS` takes it.
 */
export async function startKafka(options: {
  dataDir: string;
  port: number;
  controllerPort: number;
  /** Java heap; 512 MB runs at about 370 MB resident. */
  heapMb?: number;
  log: ServiceLog;
}): Promise<EmbeddedService> {
  const { port, controllerPort, log } = options;
  if (!existsSync(jars)) {
    throw new AppError(
      'STORE_UNAVAILABLE',
      "Kafka's jars are missing: run `node infra/setup/setup.mjs`, or set KAFKA_BROKERS",
    );
  }
  const home = join(options.dataDir, 'kafka');
  makeClosedFolder(home);
  const java =
    process.env['JAVA_HOME'] === undefined ? 'java' : join(process.env['JAVA_HOME'], 'bin', 'java');
  const classPath = join(jars, '*');
  const configFile = join(home, 'server.properties');
  writeFileSync(configFile, properties(join(home, 'log'), port, controllerPort));
  await format(java, classPath, home, configFile);

  const heap = options.heapMb ?? 512;
  return startService({
    name: 'kafka',
    url: `127.0.0.1:${port}`,
    program: {
      command: java,
      args: [
        `-Xmx${heap}m`,
        '-Xms128m',
        // Two cores are shared with everything else; these start a second sooner and hold less memory.
        '-XX:+UseSerialGC',
        '-XX:TieredStopAtLevel=1',
        '-Xshare:auto',
        '-XX:+ExitOnOutOfMemoryError',
        '-Dlog4j2.level=OFF',
        '-cp',
        classPath,
        'kafka.Kafka',
        configFile,
      ],
      stopSignal: 'SIGTERM',
      graceMs: 5000,
    },
    watch: 'guard',
    pidFile: join(home, 'kafka.pids'),
    probe: () => describeCluster(port),
    readyMs: 60_000,
    log,
  });
}

/** Formats once; a run that was killed half-way is done again, because the mark is written last. */
async function format(java: string, classPath: string, home: string, configFile: string): Promise<void> {
  const idFile = join(home, 'cluster.id');
  if (existsSync(idFile)) return;
  rmSync(join(home, 'log'), { recursive: true, force: true });
  const id = clusterId();
  const args = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp', classPath];
  try {
    await promisify(execFile)(java, [
      ...args,
      'kafka.tools.StorageTool',
      'format',
      '-t',
      id,
      '-c',
      configFile,
    ]);
  } catch (cause) {
    throw new AppError('STORE_UNAVAILABLE', 'Kafka could not format its storage (is Java 17 installed?)', {
      cause,
    });
  }
  writeFileSync(`${idFile}.new`, `${id}\n`);
  renameSync(`${idFile}.new`, idFile);
}

/** 16 random bytes as Kafka writes them; one that begins with `-` would be taken for an option. */
function clusterId(): string {
  for (;;) {
    const id = Buffer.from(randomUUID().replaceAll('-', ''), 'hex').toString('base64url');
    if (!id.startsWith('-')) return id;
  }
}

function properties(logDir: string, port: number, controllerPort: number): string {
  const entries: Record<string, string | number | boolean> = {
    'process.roles': 'broker,controller',
    'node.id': 1,
    'controller.quorum.voters': `1@127.0.0.1:${controllerPort}`,
    'controller.listener.names': 'CONTROLLER',
    listeners: `PLAINTEXT://127.0.0.1:${port},CONTROLLER://127.0.0.1:${controllerPort}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${port}`,
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    // A property value reads a backslash as an escape.
    'log.dirs': logDir.replaceAll('\\', '\\\\'),
    'auto.create.topics.enable': false,
    'offsets.topic.replication.factor': 1,
    'offsets.topic.num.partitions': 4,
    'transaction.state.log.replication.factor': 1,
    'transaction.state.log.min.isr': 1,
    'transaction.state.log.num.partitions': 4,
    'share.coordinator.state.topic.replication.factor': 1,
    'share.coordinator.state.topic.min.isr': 1,
    'share.coordinator.state.topic.num.partitions': 1,
    'group.initial.rebalance.delay.ms': 0,
    'message.max.bytes': maxMessageBytes,
    'replica.fetch.max.bytes': maxMessageBytes,
    // Each topic says itself what it forgets; by default the log keeps everything.
    'log.retention.ms': -1,
    'num.network.threads': 2,
    'num.io.threads': 4,
    'log.cleaner.dedupe.buffer.size': 16_777_216,
    // After kill -9 the controller takes the broker for alive, and refuses its next start, for so long. On a machine that
    // has much else to do the broker may be silent for some seconds, and no partition had a leader then.
    'broker.session.timeout.ms': 10_000,
    'broker.heartbeat.interval.ms': 500,
  };
  return Object.entries(entries)
    .map(([key, value]) => `${key}=${value}\n`)
    .join('');
}

async function describeCluster(port: number): Promise<void> {
  const client = new Kafka({
    clientId: 'embedded-start',
    brokers: [`127.0.0.1:${port}`],
    connectionTimeout: 1000,
    retry: { retries: 0 },
    logLevel: logLevel.NOTHING,
  });
  const admin = client.admin();
  try {
    await admin.connect();
    const { brokers } = await admin.describeCluster();
    if (brokers.length === 0) throw new Error('Kafka has no broker yet');
  } finally {
    await admin.disconnect().catch(() => {});
  }
}
