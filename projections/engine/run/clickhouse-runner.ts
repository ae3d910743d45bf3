import { systemClock } from '../../../infra/clock.ts';
import type { Clock } from '../../../infra/clock.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Handled, Kafka, LogBatch, LogMessage } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { openBuild } from '../builds.ts';
import { createBatch } from './batch.ts';
import type { Reading, Target } from './batch.ts';
import { describe, readItem } from '../../streams.ts';
import { createReadings } from './readings.ts';
import type { Readings } from './readings.ts';
import { createWriter } from './writer.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import { createConsumer } from '../../../infra/kafka/consumer.ts';
import type { ClickHouseProjection, Stream, StreamItem } from '../../define.ts';
import { followServed } from './follow-served.ts';
import type { ProjectionRun } from './follow-served.ts';
import { createGatherer } from './gatherer.ts';
import type { GatherLimits, Gatherer } from './gatherer.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import { createStoreRetry } from '../store-retry.ts';
import { projectionState } from '../state.ts';
import type { ProjectionState } from '../state.ts';
import { createHaltMonitor } from './halt-monitor.ts';
import type { HaltMonitor } from './halt-monitor.ts';

/** Stores and clock of the runner, real or simulated. */
export interface RunnerPorts {
  readonly kafka: Pick<Kafka, 'consume' | 'offsets' | 'topicId' | 'publisher'>;
  readonly clickhouse: Pick<ClickHouse, 'insertEncoded' | 'command'>;
  readonly state: ProjectionState;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
}

interface RunOptions {
  readonly groupId: string;
  /** Ends the wait for an unavailable store at the start. */
  readonly signal?: AbortSignal;
  readonly limits?: Partial<GatherLimits>;
}

export interface ClickHouseRunOptions extends RunOptions, Pick<RunnerPorts, 'log' | 'metrics'> {
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly pool: Pool;
  readonly projections: readonly ClickHouseProjection[];
}

export const DEFAULT_LIMITS: GatherLimits = { rows: 50_000, bytes: 32_000_000, waitMs: 1000, gapMs: 150 };

/** Runs projections into their served builds, and continues with the new builds after a swap. */
export async function runClickHouseProjections(options: ClickHouseRunOptions): Promise<ProjectionRun> {
  const { pool, kafka, clickhouse, projections } = options;
  const ports = { ...options, state: projectionState(pool, kafka), clock: systemClock };
  const start = async (signal: AbortSignal): Promise<ProjectionRun> => {
    const targets: Target[] = [];
    for (const projection of projections) {
      targets.push({ projection, build: await openBuild(pool, clickhouse, projection) });
    }
    return await runTargets(ports, { ...options, signal }, targets);
  };
  return await followServed(start, ports);
}

/**
 * Projects one stream into its served builds, with one consumer, decompression, parse and decode for all of them.
 *
 * A message goes from the log through `readItem` and `project`, for each target that has not read it, into a batch of
 * bytes, and to the `Writer`. `handle` waits while the batch is full and two are in flight.
 */
export async function runTargets(
  ports: RunnerPorts,
  options: RunOptions,
  targets: readonly Target[],
): Promise<ProjectionRun> {
  const { kafka, clickhouse, state, clock, log, metrics } = ports;
  const topic = streamOf(targets);
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const abort = new AbortController();
  const fail = (error: unknown): void => {
    if (abort.signal.aborted) return; // stopped, or failed before
    ending.reject(error);
    abort.abort(error);
  };

  const retryWhileUnavailable = createStoreRetry('postgres or kafka', {
    log,
    metrics,
    clock,
    signal: options.signal === undefined ? abort.signal : AbortSignal.any([options.signal, abort.signal]),
  });
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const readings = createReadings(state, identity, targets, retryWhileUnavailable);
  const consumer = createConsumer({
    kafka,
    log,
    groupId: options.groupId,
    topics: [topic],
    fetchBytes: topic.fetchBytes,
    signal: abort.signal,
    startOffset: async (_, partition) => (await readings.open(partition)).next,
    handle: (batch) => handler.handle(batch),
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.drop(partition)),
    onError: fail,
  });
  const seek = (partition: number, offset: number): void => void consumer.seek(topic.name, partition, offset);
  const writer = createWriter({
    clickhouse,
    state,
    hold: (builds) => state.hold(builds),
    clock,
    identity,
    log,
    metrics,
    signal: abort.signal,
    onRoom: () => gatherer.onRoom(),
    onFatal: fail,
    onRefused({ partition }) {
      log.warn({ topic: topic.name, partition }, 'checkpoint conflict, resuming from stored offset');
      consumer.resume(topic.name, partition).catch(fail);
    },
  });
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const gatherer = createGatherer(
    writer,
    (previous) => createBatch(targets, previous?.sizes()),
    limits,
    clock,
  );
  const monitor = createHaltMonitor<Reading>({
    kafka,
    state,
    clock,
    topic,
    log,
    metrics,
    builds: targets.map(({ build }) => build),
    readings: () => readings.all(),
    checkpoint: ({ stored }, build) => [...stored].find(([target]) => target.build === build)?.[1] ?? 0,
    buildsAt: ({ planned }, { message }) =>
      targets.filter((target) => (planned.get(target) ?? 0) <= message.offset).map(({ build }) => build),
    resume: (reading) => handler.resume(reading),
    retry(reading) {
      reading.halt = null;
      seek(reading.partition, reading.next);
    },
    commit: (partition, next) => consumer.commit(topic.name, partition, next),
    onError: fail,
  });

  const { signal } = abort;
  const handler = createHandler({ topic, clock, readings, gatherer, monitor, seek, signal });

  await readings.check(); // a checkpoint outside the log is reported before anything is read
  await consumer.start();
  monitor.start();
  log.info({ projections: targets.map(({ build }) => build) }, `projecting ${topic.name}`);

  return {
    done: ending.promise,
    async stop() {
      abort.abort(new Error('stopped'));
      gatherer.close();
      await consumer.stop();
      await monitor.stop();
      await writer.idle();
      ending.resolve();
    },
  };
}

/** Takes messages from the consumer into batches. */
function createHandler({
  topic,
  clock,
  readings,
  gatherer,
  monitor,
  seek,
  signal,
}: {
  readonly topic: Stream;
  readonly clock: Clock;
  readonly readings: Readings;
  readonly gatherer: Gatherer;
  readonly monitor: HaltMonitor;
  readonly seek: (partition: number, offset: number) => void;
  readonly signal: AbortSignal;
}): { handle(batch: LogBatch): Promise<Handled>; resume(reading: Reading): Promise<void> } {
  /** Adds one message to the batch; a message that cannot be read or projected halts the partition. */
  async function take(reading: Reading, message: LogMessage): Promise<void> {
    const item = readItem(topic, message);
    await gatherer.ready();
    if (!reading.current) return;
    const reason = 'reason' in item ? item.reason : project(reading, item);
    if (reason === null) {
      gatherer.added();
    } else {
      reading.halt = { message, reason, announced: false };
      monitor.wake();
    }
  }

  function project(reading: Reading, item: StreamItem): string | null {
    try {
      gatherer.batch().add(reading, item);
      return null;
    } catch (error) {
      return `projecting failed: ${describe(error)}`;
    }
  }

  /** Continues after the message that halts the partition, which an operator has skipped for all these projections. */
  async function resume(reading: Reading): Promise<void> {
    await gatherer.ready();
    if (!reading.current || reading.halt === null) return;
    gatherer.batch().skip(reading, reading.halt.message.offset);
    reading.halt = null;
    gatherer.caughtUp();
    seek(reading.partition, reading.next);
  }

  async function handle({ partition, messages, highWatermark }: LogBatch): Promise<Handled> {
    const reading = readings.get(partition);
    if (reading === undefined) return 'done';
    monitor.onHighWatermark(partition, highWatermark);
    let lastYield = clock.now();
    for (const message of messages) {
      if (signal.aborted) return 'abandoned';
      if (!reading.current || reading.halt !== null) return 'done';
      if (message.offset < reading.next) continue;
      if (message.offset > reading.next) {
        seek(partition, reading.next);
        return 'done';
      }
      await take(reading, message);
      // A fetch can hold seconds of work: let heartbeats and responses of the stores through.
      if (clock.now() - lastYield > 10) {
        await clock.turn();
        lastYield = clock.now();
      }
    }
    if (reading.next >= highWatermark || reading.halt !== null) gatherer.caughtUp();
    return 'done';
  }

  return { handle, resume };
}

/** The stream that all of these read. */
export function streamOf(targets: readonly Pick<Target, 'projection'>[]): Stream {
  const [stream, ...others] = new Set(targets.map(({ projection }) => projection.topic));
  if (stream === undefined || others.length > 0) {
    throw new AppError('INVALID', `Projections of ${others.length + 1} streams cannot run together`);
  }
  return stream;
}
