import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { Kafka, LogBatch, LogMessage } from '../../../infra/kafka/client.ts';
import { createConsumer } from '../../../infra/kafka/consumer.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Build } from '../builds.ts';
import type { ProjectionState } from '../state.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDependencies } from '../store-retry.ts';
import type { ProjectionRun } from './follow-served.ts';
import { createHaltMonitor } from './halt-monitor.ts';
import { createReadings } from './readings.ts';
import type { Reading, Readings } from './readings.ts';

/** Kafka, state and clock of a run, real or simulated. */
export interface RunPorts extends Omit<StoreRetryDependencies, 'signal'> {
  readonly kafka: Pick<Kafka, 'consume' | 'offsets' | 'topicId' | 'publisher'>;
  readonly state: ProjectionState;
}

export interface RunOptions {
  readonly groupId: string;
  /** Ends the wait for an unavailable store at the start. */
  readonly signal: AbortSignal;
}

/** What is read, and the builds that it is written into. */
interface Source extends RunOptions {
  readonly topic: Topic<unknown> & { readonly fetchBytes?: number };
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
export interface SinkContext extends Pick<TopicReader, 'resume' | 'reopen'> {
  readonly identity: LogIdentity;
  readonly retryWhileUnavailable: RetryWhileUnavailable;
  /** Fires when the run is stopped or has failed. */
  readonly signal: AbortSignal;
  /** Ends the run. */
  readonly fail: (error: unknown) => void;
  /** Halts a partition at a poison message. */
  readonly halt: (reading: Reading, message: LogMessage, reason: string) => void;
}

/** Reads a topic into a sink, as a member of a consumer group, until that fails or is stopped. */
export async function runSink(
  ports: RunPorts,
  source: Source,
  createSink: (context: SinkContext) => Sink | Promise<Sink>,
): Promise<ProjectionRun> {
  const { kafka, state, log } = ports;
  const { topic, builds } = source;
  const { done, signal, fail, stop } = createLifetime();
  const startSignal = AbortSignal.any([source.signal, signal]);
  const retryWhileUnavailable = createStoreRetry('postgres or kafka', { ...ports, signal: startSignal });
  // First, because it fails soon when Kafka is unavailable; kafkajs' own retries last longer than a stop may take.
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const readings = createReadings(state, identity, builds, retryWhileUnavailable);
  const reader = createTopicReader(ports, source, readings, {
    signal,
    onError: fail,
    async onBatch(reading, batch) {
      monitor.onHighWatermark(batch.partition, batch.highWatermark);
      if (reading.current && reading.halt === null) await sink.put(reading, batch);
    },
  });
  const { resume, reopen, commit } = reader;
  const monitor = createHaltMonitor({
    ...ports,
    topic,
    builds,
    readings,
    skip: (reading, { message }) => sink.skip(reading, message),
    retry: resume,
    commit,
    onError: fail,
  });
  const halt: SinkContext['halt'] = (reading, message, reason) => {
    reading.halt = { message, reason, announced: false };
    monitor.wake();
  };
  const sink = await createSink({ identity, retryWhileUnavailable, signal, fail, halt, resume, reopen });

  await readings.check(); // a checkpoint outside the log is reported before anything is read
  await reader.start();
  monitor.start();
  log.info({ projections: builds }, `projecting ${topic.name}`);
  return {
    done,
    stop: () =>
      stop(async () => {
        const sinkStopped = sink.stop();
        await reader.stop();
        await monitor.stop();
        await sinkStopped;
      }),
  };
}

interface Lifetime {
  /** Rejects with the first failure; resolves when the run is stopped. */
  readonly done: Promise<void>;
  /** Fires when the run is stopped or has failed. */
  readonly signal: AbortSignal;
  readonly fail: (error: unknown) => void;
  readonly stop: (close: () => Promise<void>) => Promise<void>;
}

function createLifetime(): Lifetime {
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const abort = new AbortController();
  const { signal } = abort;
  return {
    done: ending.promise,
    signal,
    fail(error) {
      if (signal.aborted) return; // stopped, or failed before
      ending.reject(error);
      abort.abort(error);
    },
    async stop(close) {
      abort.abort(new Error('stopped'));
      await close();
      ending.resolve();
    },
  };
}

interface TopicReader {
  start(): Promise<void>;
  stop(): Promise<void>;
  /** Reads on from `reading.next`, which ends a halt. */
  readonly resume: (reading: Reading) => Promise<void>;
  /** Reads on from the stored checkpoint, which another process has moved. */
  readonly reopen: (reading: Reading) => Promise<void>;
  /** Moves the group's offset, which only shows lag in Kafka's tools. */
  readonly commit: (partition: number, nextOffset: number) => Promise<void>;
}

/** A consumer of one topic that reads each partition from its checkpoint. */
function createTopicReader(
  { kafka, log }: Pick<RunPorts, 'kafka' | 'log'>,
  { topic, groupId }: Pick<Source, 'topic' | 'groupId'>,
  readings: Readings,
  handlers: {
    readonly signal: AbortSignal;
    onBatch(reading: Reading, batch: LogBatch): Promise<void>;
    onError(error: unknown): void;
  },
): TopicReader {
  const consumer = createConsumer({
    kafka,
    log,
    groupId,
    topics: [topic],
    fetchBytes: topic.fetchBytes,
    signal: handlers.signal,
    startOffset: async (_, partition) => (await readings.open(partition)).next,
    async handle(batch) {
      const reading = readings.get(batch.partition);
      if (reading !== undefined) await handlers.onBatch(reading, batch);
      return 'done';
    },
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.drop(partition)),
    onError: handlers.onError,
  });
  return {
    start: () => consumer.start(),
    stop: () => consumer.stop(),
    async resume(reading) {
      reading.halt = null;
      await consumer.seek(topic.name, reading.partition, reading.next);
    },
    async reopen(reading) {
      const { partition } = reading;
      log.warn({ topic: topic.name, partition }, 'checkpoint conflict, resuming from stored offset');
      reading.current = false;
      await consumer.resume(topic.name, partition);
    },
    commit: (partition, nextOffset) => consumer.commit(topic.name, partition, nextOffset),
  };
}
