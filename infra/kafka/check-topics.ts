import kafkajs from 'kafkajs';

import { AppError } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import type { Topic } from '../../schemas/topics.ts';

/** Largest record batch that topics accept. */
const MAX_MESSAGE_BYTES = 17_000_000;
/** A cluster of at least this many brokers keeps this many replicas, of which one may fail. */
const REPLICATED_BROKERS = 3;
const MIN_INSYNC_REPLICAS = 2;

/** The number of replicas that a topic is created with; -1 for the cluster's default. */
export function replicationFactor(brokers: number): number {
  return brokers < REPLICATED_BROKERS ? -1 : REPLICATED_BROKERS;
}

/** The configuration that a topic is created with. */
export function topicConfig(
  { retention, isStampedByBroker }: Topic<unknown>,
  brokers: number,
): Record<string, string> {
  return {
    'cleanup.policy': 'delete',
    'retention.ms': retention === 'forever' ? '-1' : String(retention),
    'retention.bytes': '-1',
    'max.message.bytes': String(MAX_MESSAGE_BYTES),
    // A leader that was not in sync lacks acknowledged messages, and gives their offsets to others.
    'unclean.leader.election.enable': 'false',
    // As the publisher compresses. A broker's default may be a codec that consumers do not have.
    'compression.type': 'producer',
    ...(isStampedByBroker === true ? { 'message.timestamp.type': 'LogAppendTime' } : {}),
    ...(brokers < REPLICATED_BROKERS ? {} : { 'min.insync.replicas': String(MIN_INSYNC_REPLICAS) }),
  };
}

/**
 * Refuses topics that can lose acknowledged messages, cannot hold the largest one, or are compressed so that it cannot be read.
 *
 * @throws AppError `TOPIC_MISMATCH` that names each such topic with the command that changes it
 */
export async function checkTopics(
  admin: kafkajs.Admin,
  topicPrefix: string,
  brokerCount: number,
): Promise<void> {
  const declared = new Map(Object.values(topics).map((topic) => [topicPrefix + topic.name, topic]));
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [...declared.keys()].map((name) => ({ type: kafkajs.ConfigResourceTypes.TOPIC, name })),
  });
  const { topics: described } = await admin.fetchTopicMetadata({ topics: [...declared.keys()] });
  const replicasOf = new Map(
    described.map(({ name, partitions }) => [
      name,
      Math.min(...partitions.map(({ replicas }) => replicas.length)),
    ]),
  );
  const problems = resources.flatMap(({ resourceName: name, configEntries }) => {
    const topic = declared.get(name);
    if (topic === undefined) return [];
    const actual = new Map(configEntries.map(({ configName, configValue }) => [configName, configValue]));
    return [
      ...unsafeConfig(name, topicConfig(topic, brokerCount), actual),
      ...underReplicated(name, replicasOf.get(name) ?? 0, brokerCount),
    ];
  });
  if (problems.length === 0) return;
  throw new AppError(
    'TOPIC_MISMATCH',
    `Topics that can lose messages, or cannot be read (set KAFKA_ALLOW_UNSAFE_TOPICS=true to accept them):\n  ${problems.join('\n  ')}`,
  );
}

/**
 * Settings that keep messages shorter, keep fewer replicas in sync, elect others, allow smaller messages than `wanted`, or compress
 * them with a codec that consumers do not have.
 */
function unsafeConfig(
  name: string,
  wanted: Readonly<Record<string, string>>,
  actual: ReadonlyMap<string, string>,
): string[] {
  const wrong = Object.entries(wanted).filter(([key, value]) => !isSafe(key, actual.get(key) ?? '', value));
  if (wrong.length === 0) return [];
  const found = wrong.map(([key]) => `${key}=${actual.get(key) ?? ''}`).join(', ');
  const changes = wrong.map(([key, value]) => `${key}=${value}`).join(',');
  return [
    `${name} has ${found}: kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name ${name} --add-config ${changes}`,
  ];
}

function isSafe(key: string, actual: string, wanted: string): boolean {
  if (key === 'cleanup.policy') return actual === wanted;
  // A broker that does not state it elects no such leader by default.
  if (key === 'unclean.leader.election.enable') return actual !== 'true';
  // No message is lost by it: brokers refuse producers whose clock is an hour fast (message.timestamp.after.max.ms).
  if (key === 'message.timestamp.type') return true;
  // Of kafkajs, and zstd.ts.
  if (key === 'compression.type') return actual !== 'lz4' && actual !== 'snappy';
  // -1 is no limit of retention.
  if (key.startsWith('retention.') && (actual === '-1' || wanted === '-1')) return actual === '-1';
  return Number(actual) >= Number(wanted);
}

function underReplicated(name: string, replicas: number, brokers: number): string[] {
  if (brokers < REPLICATED_BROKERS || replicas >= REPLICATED_BROKERS) return [];
  return [
    `${name} has ${replicas} of ${REPLICATED_BROKERS} replicas: kafka-reassign-partitions.sh --bootstrap-server HOST:PORT --execute --reassignment-json-file FILE`,
  ];
}
