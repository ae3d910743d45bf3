import { systemClock } from '../../../infra/clock.ts';
import type { Handled, Kafka, LogBatch } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { openBuild } from '../builds.ts';
import { CheckpointConflict, identifyLog } from '../../../infra/kafka/checkpoints.ts';
import { createConsumer } from '../../../infra/kafka/consumer.ts';
import { loadCheckpoints, moveCheckpoints, ownerOf } from '../checkpoints.ts';
import type { PostgresProjection } from '../../define.ts';
import { createFolder } from './fold.ts';
import type { Halt } from '../halts.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import { createStoreRetry } from '../store-retry.ts';
import { followServed } from './follow-served.ts';
import type { ProjectionRun } from './follow-served.ts';
import { restoreFromSnapshot } from '../snapshot/restore.ts';
import { haltMonitorState } from '../state.ts';
import { createHaltMonitor } from './halt-monitor.ts';

export interface PostgresProjectionOptions<M> {
  readonly kafka: Kafka;
  readonly pool: Pool;
  readonly projection: PostgresProjection<M>;
  readonly groupId: string;
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
}

interface Reading {
  readonly partition: number;
  /** The stored checkpoint: the next offset to fold. */
  next: number;
  halt: Halt | null;
}

/**
 * Folds one topic in order. Rows and checkpoint move in one transaction, so every message is folded exactly once; the
 * checkpoint is moved first, so that a second process waits for its row and is then refused.
 */
export async function runPostgresProjection<M>(
  options: PostgresProjectionOptions<M>,
): Promise<ProjectionRun> {
  const ports = { ...options, clock: systemClock };
  return await followServed((signal) => runServed(options, signal), ports);
}

async function runServed<M>(
  options: PostgresProjectionOptions<M>,
  stopping: AbortSignal,
): Promise<ProjectionRun> {
  const { kafka, pool, projection, log, metrics } = options;
  const { topic } = projection;
  const build = await openBuild(pool, null, projection);
  const readings = new Map<number, Reading>();
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});
  const abort = new AbortController();
  const fail = (error: unknown): void => {
    ending.reject(error);
    abort.abort(error);
  };
  const retryWhileUnavailable = createStoreRetry('postgres or kafka', {
    log,
    metrics,
    clock: systemClock,
    signal: AbortSignal.any([stopping, abort.signal]),
  });
  // First, because it fails soon when Kafka is unavailable; kafkajs' own retries last longer than a stop may take.
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const folder = createFolder({ pool, projection, identity, build, isServed: true, retryWhileUnavailable });
  await retryWhileUnavailable(() => restoreFromSnapshot({ kafka, pool }, projection, build));

  const openReading = async (partition: number): Promise<Reading> => {
    const stored = await retryWhileUnavailable(() => loadCheckpoints(pool, kafka, identity, build));
    const reading: Reading = { partition, next: stored.get(partition) ?? 0, halt: null };
    readings.set(partition, reading);
    return reading;
  };

  const consumer = createConsumer({
    kafka,
    log,
    groupId: options.groupId,
    topics: [topic],
    signal: abort.signal,
    startOffset: async (_, partition) => (await openReading(partition)).next,
    handle,
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.delete(partition)),
    onError: fail,
  });

  const resumeAt = async (reading: Reading, next: number): Promise<void> => {
    reading.next = next;
    reading.halt = null;
    await consumer.seek(topic.name, reading.partition, next);
  };

  const monitor = createHaltMonitor<Reading>({
    kafka,
    state: haltMonitorState(pool),
    clock: systemClock,
    topic,
    log,
    metrics,
    builds: [build],
    readings: () => readings.values(),
    checkpoint: ({ next }) => next,
    buildsAt: () => [build],
    commit: (partition, next) => consumer.commit(topic.name, partition, next),
    onError: fail,
    retry: (reading) => resumeAt(reading, reading.next),
    async resume(reading) {
      const { partition, next: expected } = reading;
      const next = expected + 1;
      const refused = await moveCheckpoints(pool, identity, [{ build, partition, expected, next }]);
      if (refused.length > 0) await consumer.resume(topic.name, partition);
      else await resumeAt(reading, next);
    },
  });

  async function handle({ partition, messages, highWatermark }: LogBatch): Promise<Handled> {
    const reading = readings.get(partition);
    if (reading === undefined || reading.halt !== null) return 'done';
    monitor.onHighWatermark(partition, highWatermark);
    const wanted = messages.filter(({ offset }) => offset >= reading.next);
    if (wanted[0] === undefined) return 'done';
    if (wanted[0].offset > reading.next) {
      await consumer.seek(topic.name, partition, reading.next);
      return 'done';
    }
    const folded = await folder.fold(partition, wanted);
    metrics.messages.inc({ projection: projection.name }, folded.next - reading.next);
    reading.next = folded.next;
    if (folded.outcome === 'conflict') {
      throw new CheckpointConflict(ownerOf(build), `${topic.name}:${partition}`, folded.next);
    }
    if (folded.outcome === 'poison') {
      reading.halt = { message: folded.message, reason: folded.reason, announced: false };
      monitor.wake();
    }
    return 'done';
  }

  // A checkpoint outside the log is reported before anything is read.
  await retryWhileUnavailable(() => loadCheckpoints(pool, kafka, identity, build));
  await consumer.start();
  monitor.start();
  log.info({ projection: build }, `projecting ${topic.name}`);

  return {
    done: ending.promise,
    async stop() {
      abort.abort(new Error('stopped'));
      await consumer.stop();
      await monitor.stop();
      ending.resolve();
    },
  };
}
