import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, realpathSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { Kafka, logLevel } from 'kafkajs';

import { AppError } from '../../../schemas/errors.ts';
import '../../kafka/kafkajs-requests.ts';
import { makeClosedFolder } from '../data-dir.ts';
import { startService } from '../service.ts';
import type { EmbeddedService, ServiceLog } from '../service.ts';

/** Folder that infra/setup/setup.mjs fills; the version is that of pom.xml. */
const kafkaHome = fileURLToPath(new URL('../../../.cache/kafka-4.3.0', import.meta.url));
const jars = join(kafkaHome, 'lib');
/**
 * Kafka's classes, parsed and verified, which the JVM maps into its memory (class data sharing): a start takes 3 s of
 * CPU instead of 5. record-classes.ts makes it. A JVM other than the one that made it starts without it.
 */
const classArchive = join(kafkaHome, 'classes.jsa');

/** These start a second faster and use less memory on two cores shared with everything else. */
const SMALL_JVM = ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1'];

/** Without a UTF-8 locale, Java cannot open files whose paths are not ASCII. */
const UTF8_PATHS = { LC_ALL: 'C.UTF-8' };

/** One block is one message of up to 16 MB compressed; 1 MB is left for the record batch. */
const maxMessageBytes = 17 * 1024 * 1024;

/**
 * Starts Apache Kafka 4.3 on loopback: one node that is broker and controller (KRaft), whose storage is formatted at the
 * first start. `url` is host:port, as in `KAFKA_BROKERS`.
 */
export async function startKafka(options: {
  dataDir: string;
  port: number;
  controllerPort: number;
  /** Writes the archive of classes to this file when Kafka stops, instead of using the one of the set-up. */
  recordClassesTo?: string;
  log: ServiceLog;
}): Promise<EmbeddedService> {
  const { port, controllerPort, recordClassesTo, log } = options;
  if (!existsSync(jars)) {
    throw new AppError(
      'STORE_UNAVAILABLE',
      "Kafka's jars are missing: run `node infra/setup/setup.mjs`, or set KAFKA_BROKERS",
    );
  }
  const home = join(options.dataDir, 'kafka');
  makeClosedFolder(home);
  const java = javaCommand();
  const classPath = classPathOf(jars);
  const configFile = join(home, 'server.properties');
  writeFileSync(configFile, properties(join(home, 'log'), port, controllerPort));
  await format(java, classPath, home, configFile);

  return startService({
    name: 'kafka',
    url: `127.0.0.1:${port}`,
    program: {
      command: java,
      args: [
        // The process uses about 370 MB of memory with it.
        '-Xmx512m',
        '-Xms128m',
        ...SMALL_JVM,
        '-Xshare:auto',
        ...(recordClassesTo === undefined
          ? sharedClasses()
          : [`-XX:ArchiveClassesAtExit=${recordClassesTo}`]),
        '-XX:+ExitOnOutOfMemoryError',
        '-Dlog4j2.level=OFF',
        '-cp',
        classPath,
        'kafka.Kafka',
        configFile,
      ],
      stopSignal: 'SIGTERM',
      graceMs: recordClassesTo === undefined ? 5000 : 60_000,
    },
    watch: 'guard',
    env: UTF8_PATHS,
    pidFile: join(home, 'kafka.pids'),
    probe: () => describeCluster(port),
    readyMs: 60_000,
    log,
  });
}

/** The Java of JAVA_HOME, or the one on the PATH if that is unset or empty. */
export function javaCommand(): string {
  const home = process.env['JAVA_HOME'] ?? '';
  return home === '' ? 'java' : join(home, 'bin', 'java');
}

/** The real paths in a fixed order: an archive of classes is good for one class path. */
function classPathOf(folder: string): string {
  const real = realpathSync(folder);
  return readdirSync(real)
    .toSorted()
    .map((name) => join(real, name))
    .join(delimiter);
}

/** The JVM would print a warning about an archive that another one has made. */
function sharedClasses(): string[] {
  return existsSync(classArchive) ? [`-XX:SharedArchiveFile=${classArchive}`, '-Xlog:disable'] : [];
}

/** Formats the storage once. The cluster id is written last, so that an interrupted run is repeated. */
async function format(java: string, classPath: string, home: string, configFile: string): Promise<void> {
  const idFile = join(home, 'cluster.id');
  if (existsSync(idFile)) return;
  rmSync(join(home, 'log'), { recursive: true, force: true });
  const id = clusterId();
  try {
    const args = ['-Xmx128m', ...SMALL_JVM, ...sharedClasses(), '-cp', classPath, 'kafka.tools.StorageTool'];
    await promisify(execFile)(java, [...args, 'format', '-t', id, '-c', configFile], {
      env: { ...process.env, ...UTF8_PATHS },
    });
  } catch (cause) {
    const printed = cause instanceof Error && 'stderr' in cause ? String(cause.stderr).trim() : '';
    throw new AppError(
      'STORE_UNAVAILABLE',
      `Kafka could not format its storage: check that Java 17 or newer is installed. ${printed}`.trim(),
      { cause },
    );
  }
  writeFileSync(`${idFile}.new`, `${id}\n`);
  renameSync(`${idFile}.new`, idFile);
}

/** 16 random bytes as base64url, not beginning with `-`, which Kafka would parse as an option. */
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
    'log.dirs': logDir,
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
    // An acknowledged append is on disk: after a power cut, no checkpoint in PostgreSQL may be past the end of the log. A block is
    // acknowledged after 4.6 and 4.9 ms (p50) instead of 3.2 ms: `npm run bench -- pipeline`, three runs in turn.
    'log.flush.interval.messages': 1,
    // Unlimited by default; topics with a retention set it themselves.
    'log.retention.ms': -1,
    'num.network.threads': 2,
    'num.io.threads': 4,
    'log.cleaner.dedupe.buffer.size': 16_777_216,
    // After kill -9 the controller rejects a new start of the broker for this long. A shorter timeout would leave all
    // partitions without a leader when a busy machine delays heartbeats for some seconds.
    'broker.session.timeout.ms': 10_000,
    'broker.heartbeat.interval.ms': 500,
    // By default an idle controller appends a no-op record twice a second, which takes a quarter of the CPU of an idle
    // node. It shows standby controllers that the log still moves; there are none here.
    'metadata.max.idle.interval.ms': 0,
  };
  return Object.entries(entries)
    .map(([key, value]) => `${key}=${escaped(String(value))}\n`)
    .join('');
}

/** Java reads property files as ISO-8859-1, with backslash escapes of UTF-16 code units. */
function escaped(value: string): string {
  const escape = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return value.replaceAll('\\', '\\\\').replaceAll(/[^\x20-\x7e]/g, escape);
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
