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
import { createWriter } from './writer.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import { createConsumer } from '../../../infra/kafka/consumer.ts';
import type { ClickHouseProjection, Stream, StreamItem } from '../../define.ts';
import { followServed } from './follow-served.ts';
import type { ProjectionRun } from './follow-served.ts';
import { createGatherer } from './gatherer.ts';
import type { GatherLimits } from './gatherer.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import { createStoreRetry } from '../store-retry.ts';
import { projectionState } from '../state.ts';
import type { ProjectionState } from '../state.ts';
import { createWatch } from './watch.ts';

/** What projecting reaches the world through: real stores and time, or simulated ones. */
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
  readonly limits?: Partial<GatherLimits>;
}

export interface ClickHouseRunOptions extends RunOptions, Pick<RunnerPorts, 'log' | 'metrics'> {
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly pool: Pool;
  readonly projections: readonly ClickHouseProjection[];
}

export const DEFAULT_LIMITS: GatherLimits = { rows: 50_000, bytes: 32_000_000, waitMs: 1000, gapMs: 150 };

/** Opens the builds that this program writes, keeps them up with their stream, and follows every swap. */
export async function runClickHouseProjections(options: ClickHouseRunOptions): Promise<ProjectionRun> {
  const { pool, kafka, clickhouse, projections } = options;
  const ports = { ...options, state: projectionState(pool, kafka), clock: systemClock };
  const start = async (): Promise<ProjectionRun> => {
    const targets: Target[] = [];
    for (const projection of projections) {
      targets.push({ projection, build: await openBuild(pool, clickhouse, projection) });
    }
    return await runTargets(ports, options, targets);
  };
  return await followServed(start, options.log);
}

/**
 * Keeps the served builds of one stream up with it: one consumer, one decompression, one parse, one decode for all.
 *
 * A message goes: log → `readItem` → `project` for each target that has not passed it → a batch of bytes →
 * `Writer`. The consumer waits in `onBatch` while the batch is full and two are in flight.
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
    if (abort.signal.aborted) return; // told to stop, or failed already
    ending.reject(error);
    abort.abort(error);
  };

  const retryWhileUnavailable = createStoreRetry('postgres or kafka', {
    log,
    metrics,
    clock,
    signal: abort.signal,
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
    handle,
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.drop(partition)),
    onError: fail,
  });
  const seek = (partition: number, offset: number): void => void consumer.seek(topic.name, partition, offset);
  const writer = createWriter({
    clickhouse,
    state,
    isServed: true,
    clock,
    identity,
    log,
    metrics,
    signal: abort.signal,
    onRoom: () => gatherer.roomMade(),
    onFatal: fail,
    onRefused({ partition }) {
      log.warn({ topic: topic.name, partition }, 'checkpoint conflict, resuming from stored offset');
      consumer.resume(topic.name, partition).catch(fail);
    },
  });
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const gatherer = createGatherer(writer, (before) => createBatch(targets, before?.sizes()), limits, clock);
  const watch = createWatch<Reading>({
    kafka,
    state,
    clock,
    topic,
    log,
    metrics,
    builds: targets.map(({ build }) => build),
    readings: () => readings.all(),
    position: ({ stored }, build) => [...stored].find(([target]) => target.build === build)?.[1] ?? 0,
    concerned: ({ planned }, { message }) =>
      targets.filter((target) => (planned.get(target) ?? 0) <= message.offset).map(({ build }) => build),
    resume,
    readAgain(reading) {
      reading.halt = null;
      seek(reading.partition, reading.next);
    },
    commit: (partition, next) => consumer.commit(topic.name, partition, next),
    onError: fail,
  });

  /** Reads one message into the batch; anything that makes it unreadable halts the partition here. */
  async function take(reading: Reading, message: LogMessage): Promise<void> {
    const item = readItem(topic, message);
    await gatherer.ready();
    if (!reading.current) return;
    const reason = 'reason' in item ? item.reason : project(reading, item);
    if (reason === null) {
      gatherer.added();
    } else {
      reading.halt = { message, reason, announced: false };
      watch.wake();
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

  /** An operator has told all these projections to pass over the message that halts this partition. */
  async function resume(reading: Reading): Promise<void> {
    await gatherer.ready();
    if (!reading.current || reading.halt === null) return;
    gatherer.batch().pass(reading, reading.halt.message.offset);
    reading.halt = null;
    gatherer.caughtUp();
    seek(reading.partition, reading.next);
  }

  async function handle({ partition, messages, highWatermark }: LogBatch): Promise<Handled> {
    const reading = readings.get(partition);
    if (reading === undefined) return 'done';
    watch.sawHead(partition, highWatermark);
    let lastYield = clock.now();
    for (const message of messages) {
      if (abort.signal.aborted) return 'abandoned';
      if (!reading.current || reading.halt !== null) return 'done';
      if (message.offset < reading.next) continue;
      if (message.offset > reading.next) {
        seek(partition, reading.next);
        return 'done';
      }
      await take(reading, message);
      // A fetch can hold seconds of work; heartbeats and answers of the stores come in between.
      if (clock.now() - lastYield > 10) {
        await clock.turn();
        lastYield = clock.now();
      }
    }
    if (reading.next >= highWatermark || reading.halt !== null) gatherer.caughtUp();
    return 'done';
  }

  await readings.check(); // a checkpoint outside the log is reported before anything is read
  await consumer.start();
  watch.start();
  log.info({ projections: targets.map(({ build }) => build) }, `projecting ${topic.name}`);

  return {
    done: ending.promise,
    async stop() {
      abort.abort(new Error('stopped'));
      gatherer.close();
      await consumer.stop();
      await watch.stop();
      await writer.idle();
      ending.resolve();
    },
  };
}

/** The stream that all of these are made from. */
export function streamOf(targets: readonly Pick<Target, 'projection'>[]): Stream {
  const [stream, ...others] = new Set(targets.map(({ projection }) => projection.topic));
  if (stream === undefined || others.length > 0) {
    throw new AppError('INVALID', `Tables of one stream are written together, not of ${others.length + 1}`);
  }
  return stream;
}
