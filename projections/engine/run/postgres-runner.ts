import { systemClock } from '../../../infra/clock.ts';
import type { Consumption, Kafka, LogBatch, LogMessage } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { openBuild } from '../builds.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import { loadCheckpoints, moveCheckpoints } from '../checkpoints.ts';
import type { PostgresProjection } from '../../define.ts';
import { createFolder } from './fold.ts';
import type { Halt } from '../halts.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import { createStoreRetry } from '../store-retry.ts';
import { followServed } from './follow-served.ts';
import type { ProjectionRun } from './follow-served.ts';
import { beginFromSnapshot } from '../snapshot/restore.ts';
import { watchState } from '../state.ts';
import { createWatch } from './watch.ts';

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
  /** The stored checkpoint, and so the next offset to fold. */
  next: number;
  halt: Halt | null;
}

/**
 * Folds one topic in order. Rows and checkpoint move in one transaction, so every message is folded exactly once; the
 * checkpoint is moved first, which keeps a second process waiting and then sends it away.
 */
export async function runPostgresProjection<M>(
  options: PostgresProjectionOptions<M>,
): Promise<ProjectionRun> {
  return await followServed(() => runServed(options), options.log);
}

async function runServed<M>(options: PostgresProjectionOptions<M>): Promise<ProjectionRun> {
  const { kafka, pool, projection, log, metrics } = options;
  const { topic } = projection;
  const build = await openBuild(pool, null, projection);
  const readings = new Map<number, Reading>();
  const consuming = Promise.withResolvers<Consumption>();
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
    signal: abort.signal,
  });
  // First, because it fails soon when Kafka is unavailable; kafkajs' own retries last longer than a stop may take.
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const folder = createFolder({ pool, projection, identity, build, isServed: true, retryWhileUnavailable });
  await retryWhileUnavailable(() => beginFromSnapshot({ kafka, pool }, projection, build));

  const goOn = async ({ partition, next }: Reading): Promise<void> =>
    (await consuming.promise).seek(topic.name, partition, next);

  const open = async (partition: number): Promise<Reading> => {
    const stored = await retryWhileUnavailable(() => loadCheckpoints(pool, kafka, identity, build));
    const reading: Reading = { partition, next: stored.get(partition) ?? 0, halt: null };
    readings.set(partition, reading);
    return reading;
  };

  const watch = createWatch<Reading>({
    kafka,
    state: watchState(pool),
    clock: systemClock,
    topic,
    log,
    metrics,
    builds: [build],
    readings: () => readings.values(),
    position: ({ next }) => next,
    concerned: () => [build],
    commit: async (partition, next) => await (await consuming.promise).commit(topic.name, partition, next),
    onError: fail,
    async readAgain(reading) {
      reading.halt = null;
      await goOn(reading);
    },
    async resume(reading) {
      const { partition, next: expected } = reading;
      const next = expected + 1;
      const refused = await moveCheckpoints(pool, identity, [{ build, partition, expected, next }]);
      if (refused.length > 0) return await goOn(await open(partition));
      reading.next = next;
      reading.halt = null;
      await goOn(reading);
    },
  });

  const halt = (reading: Reading, message: LogMessage, reason: string): void => {
    reading.halt = { message, reason, announced: false };
    watch.wake();
  };

  const onBatch = async ({ partition, messages, highWatermark }: LogBatch): Promise<void> => {
    const reading = readings.get(partition);
    if (reading === undefined || reading.halt !== null) return;
    watch.sawHead(partition, highWatermark);
    const wanted = messages.filter(({ offset }) => offset >= reading.next);
    if (wanted[0] === undefined) return;
    if (wanted[0].offset > reading.next) return await goOn(reading);

    const folded = await folder.fold(partition, wanted);
    metrics.messages.inc({ projection: projection.name }, folded.next - reading.next);
    reading.next = folded.next;
    if (folded.outcome === 'refused') await goOn(await open(partition));
    else if (folded.outcome === 'poison') halt(reading, folded.message, folded.reason);
  };

  await retryWhileUnavailable(() => loadCheckpoints(pool, kafka, identity, build)); // a checkpoint outside the log is told now, by name
  const consumption = await kafka.consume({
    groupId: options.groupId,
    topics: [topic],
    startAt: async (_, partition) => (await open(partition)).next,
    onBatch,
    onRevoked: (parts) => parts.forEach(({ partition }) => readings.delete(partition)),
    onCrash: fail,
  });
  consuming.resolve(consumption);
  watch.start();
  log.info({ projection: build }, `projecting ${topic.name}`);

  return {
    done: ending.promise,
    async stop() {
      abort.abort(new Error('stopped'));
      await consumption.stop();
      await watch.stop();
      ending.resolve();
    },
  };
}
