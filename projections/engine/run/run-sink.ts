import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { Kafka, LogBatch, LogMessage } from '../../../infra/kafka/client.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { Build } from '../builds.ts';
import type { ProjectionState } from '../state.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDeps } from '../store-retry.ts';
import type { ProjectionRun } from './lifetime.ts';
import { createHaltMonitor } from './halt-monitor.ts';
import type { HaltMonitor } from './halt-monitor.ts';
import { createLifetime } from './lifetime.ts';
import { createReadings } from './readings.ts';
import type { Reading } from './readings.ts';
import { createTopicReader } from './topic-reader.ts';
import type { TopicReader, TopicReaderOptions } from './topic-reader.ts';

/** Kafka, state and clock of a run, real or simulated. */
export interface RunPorts extends Omit<StoreRetryDeps, 'signal'> {
  readonly kafka: Pick<Kafka, 'consume' | 'offsets' | 'topicId' | 'publisher'>;
  readonly state: ProjectionState;
}

export interface RunOptions {
  readonly groupId: string;
  /** Ends the wait for an unavailable store at the start. */
  readonly signal: AbortSignal;
}

/** What is read, and the builds that it is written into. */
interface Source extends RunOptions, Pick<TopicReaderOptions, 'topic'> {
  readonly builds: readonly Build[];
}

/** Writes messages of a topic into builds, and moves their checkpoints. */
export interface Sink {
  /** Takes messages of a partition that is not halted. An error ends the run. */
  put(reading: Reading, batch: LogBatch): Promise<void>;
  /** Moves past the message that halts a partition, and resumes it. */
  skip(reading: Reading, message: LogMessage): Promise<void>;
  /** Takes no more, and resolves when nothing is in flight. */
  stop(): Promise<void>;
}

/** What a sink needs of its run. */
export interface SinkContext extends Pick<TopicReader, 'resume' | 'reopen'>, Pick<HaltMonitor, 'halt'> {
  readonly identity: LogIdentity;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  /** Fires when the run is stopped or has failed. */
  readonly signal: AbortSignal;
  /** Ends the run. */
  readonly fail: (error: unknown) => void;
}

/** Reads a topic into a sink, as a member of a consumer group, until that fails or is stopped. */
export async function runSink(
  ports: RunPorts,
  source: Source,
  createSink: (context: SinkContext) => Sink | Promise<Sink>,
): Promise<ProjectionRun> {
  const { kafka, state, log } = ports;
  const { topic, builds } = source;
  const lifetime = createLifetime(async () => {
    const sinkStopped = sink.stop();
    await reader.stop();
    await monitor.stop();
    await sinkStopped;
  });
  const { signal, fail } = lifetime;
  const startSignal = AbortSignal.any([source.signal, signal]);
  const retryWhileUnavailable = createStoreRetry('postgres or kafka', { ...ports, signal: startSignal });
  // First, because it fails soon when Kafka is unavailable; kafkajs' own retries last longer than a stop may take.
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const readings = createReadings(state, identity, builds, retryWhileUnavailable);
  const reader = createTopicReader({
    ...ports,
    ...source,
    readings,
    signal,
    onError: fail,
    async onBatch(reading, batch) {
      monitor.onHighWatermark(batch.partition, batch.highWatermark);
      if (reading.current && reading.halt === null) await sink.put(reading, batch);
    },
  });
  const monitor = createHaltMonitor({
    ...ports,
    topic,
    builds,
    readings,
    reader,
    skip: (reading, message) => sink.skip(reading, message),
    onError: fail,
  });
  const sink = await createSink({
    identity,
    retryWhileUnavailable,
    signal,
    fail,
    halt: monitor.halt,
    resume: reader.resume,
    reopen: reader.reopen,
  });

  await readings.check(); // a checkpoint outside the log is reported before anything is read
  await retryWhileUnavailable(() => reader.start());
  monitor.start();
  log.info({ projections: builds }, `projecting ${topic.name}`);
  return lifetime;
}
