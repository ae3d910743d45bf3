import type { Clock } from '../../../infra/clock.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka, LogMessage } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Build } from '../builds.ts';
import { createBatch } from '../run/batch.ts';
import type { Batch, Reading, Target } from '../run/batch.ts';
import { createReadings } from '../run/readings.ts';
import { createWriter } from '../run/writer.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import { loadCheckpoints, moveCheckpoints } from '../checkpoints.ts';
import type { PostgresProjection, StreamItem } from '../../define.ts';
import { createFolder } from '../run/fold.ts';
import { createGatherer } from '../run/gatherer.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import { createStoreRetry } from '../store-retry.ts';
import { describe, readItem } from '../../streams.ts';
import { DEFAULT_LIMITS, streamOf } from '../run/clickhouse-runner.ts';
import type { RunnerPorts } from '../run/clickhouse-runner.ts';
import { projectionState } from '../state.ts';
import type { ProjectionState } from '../state.ts';

export interface ReplayDeps {
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly pool: Pool;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
  readonly signal: AbortSignal;
}

/** The offsets at which a replay ends (exclusive), by partition. */
export type Goal = ReadonlyMap<number, number>;

/** Called with the number of messages read since the last call. */
export type OnRead = (messages: number) => void;

/** A message that cannot be read or projected. */
export interface Poison {
  readonly message: LogMessage;
  /** True for a message that can be read, but not projected. */
  readonly isReadable: boolean;
  readonly reason: string;
}

/** Stores and clock of a replay, real or simulated. */
export interface ReplayPorts
  extends Pick<RunnerPorts, 'clickhouse' | 'clock' | 'log' | 'metrics'>, Pick<ReplayDeps, 'signal'> {
  readonly kafka: Pick<Kafka, 'topicId' | 'readRanges'>;
  readonly state: Pick<ProjectionState, 'checkpoints' | 'move'>;
  /** Throws to end the replay, or returns to pass over the message. */
  readonly onPoison: (poison: Poison) => Promise<void>;
}

/** `replayTargets` on real stores. */
export async function replayTables(
  deps: ReplayDeps,
  targets: readonly Target[],
  goal: Goal,
  onRead: OnRead,
): Promise<void> {
  const state = projectionState(deps.pool, deps.kafka);
  const builds = targets.map(({ build }) => build);
  const onPoison = (poison: Poison): Promise<void> => assertSkipped(state, builds, poison);
  await replayTargets({ ...deps, state, onPoison }, targets, goal, onRead);
}

/**
 * Reads a stream from the checkpoints of shadow builds up to a goal, and resolves when all rows are written and the
 * checkpoints stand at the goal. No reader uses these builds, so no lock is taken. Resumes after an interruption.
 */
export async function replayTargets(
  ports: ReplayPorts,
  targets: readonly Target[],
  goal: Goal,
  onRead: OnRead,
): Promise<void> {
  const { kafka, clickhouse, state, clock, log, metrics } = ports;
  const topic = streamOf(targets);
  const failed = new AbortController();
  const signal = AbortSignal.any([ports.signal, failed.signal]);
  const retryWhileUnavailable = createStoreRetry('postgres or kafka', ports);
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const readings = createReadings(state, identity, targets, retryWhileUnavailable);
  const writer = createWriter({
    clickhouse,
    state,
    hold: null,
    clock,
    identity,
    log,
    metrics,
    signal,
    onRoom: () => gatherer.onRoom(),
    onFatal: (error) => failed.abort(error),
    onRefused: ({ partition }) =>
      failed.abort(
        new AppError('CHECKPOINT_CONFLICT', `Another process writes these builds (partition ${partition})`),
      ),
  });
  const gatherer = createGatherer(
    writer,
    (before) => createBatch(targets, before?.sizes()),
    DEFAULT_LIMITS,
    clock,
  );

  const ranges = [];
  for (const [partition, to] of goal) {
    ranges.push({ partition, from: (await readings.open(partition)).next, to });
  }
  try {
    let lastYield = clock.now();
    for await (const { partition, messages } of kafka.readRanges(topic, ranges, topic.fetchBytes, signal)) {
      const reading = await readings.open(partition);
      for (const message of messages) {
        const item = readItem(topic, message);
        await gatherer.ready();
        const reason = 'reason' in item ? item.reason : project(gatherer.batch(), reading, item);
        if (reason !== null) {
          await ports.onPoison({ message, isReadable: !('reason' in item), reason });
          await gatherer.ready();
          gatherer.batch().skip(reading, message.offset);
        }
        onRead(1);
        gatherer.added();
        if (clock.now() - lastYield > 10) {
          await clock.turn();
          lastYield = clock.now();
        }
        signal.throwIfAborted();
      }
    }
    await gatherer.drain();
    signal.throwIfAborted();
  } finally {
    gatherer.close();
    await writer.idle();
  }
}

/** The same for a shadow build of a Postgres projection. */
export async function replayFold(
  deps: ReplayDeps,
  projection: PostgresProjection<unknown>,
  build: Build,
  goal: Goal,
  onRead: OnRead,
): Promise<void> {
  const { kafka, pool } = deps;
  const { topic } = projection;
  const retryWhileUnavailable = createStoreRetry('postgres or kafka', deps);
  const state = projectionState(pool, kafka);
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const folder = createFolder({ pool, projection, identity, build, isServed: false, retryWhileUnavailable });
  const checkpoints = new Map(
    await retryWhileUnavailable(() => loadCheckpoints(pool, kafka, identity, build)),
  );
  const ranges = [...goal].map(([partition, to]) => ({
    partition,
    from: checkpoints.get(partition) ?? 0,
    to,
  }));

  const conflict = (partition: number): AppError =>
    new AppError('CHECKPOINT_CONFLICT', `Another process writes this build (partition ${partition})`);
  const skip = async (partition: number, expected: number): Promise<void> => {
    const refused = await retryWhileUnavailable(() =>
      moveCheckpoints(pool, identity, [{ build, partition, expected, next: expected + 1 }]),
    );
    if (refused.length > 0) throw conflict(partition);
  };

  for await (const { partition, messages } of kafka.readRanges(topic, ranges, undefined, deps.signal)) {
    for (let left = messages; left.length > 0;) {
      deps.signal.throwIfAborted();
      const folded = await folder.fold(partition, left);
      if (folded.outcome === 'conflict') throw conflict(partition);
      let { next } = folded;
      if (folded.outcome === 'poison') {
        await assertSkipped(state, [build], { ...folded, isReadable: false });
        await skip(partition, next);
        next += 1;
      }
      onRead(left.filter(({ offset }) => offset < next).length);
      left = left.filter(({ offset }) => offset >= next);
    }
  }
}

/** Refuses to build from a topic whose beginning was deleted. */
export async function assertLogIsComplete(
  kafka: Pick<Kafka, 'offsets'>,
  topic: Topic<unknown>,
): Promise<void> {
  const gone = (await kafka.offsets(topic)).filter(({ low }) => low > 0);
  if (gone.length === 0) return;
  const places = gone
    .map(({ partition, low }) => `partition ${partition} begins at offset ${low}`)
    .join(', ');
  throw new AppError(
    'LOG_BEGINNING_GONE',
    `The beginning of ${topic.name} is gone (${places}): what was built from it cannot be built again. ` +
      `Restore the topic from a backup; or index the chain again into an empty installation (DATA_DIR, or ` +
      `KAFKA_TOPIC_PREFIX and databases of its own). What is served now stays as it is.`,
  );
}

/** Adds a message; returns the reason why it cannot be projected, or null. */
function project(batch: Batch, reading: Reading, item: StreamItem): string | null {
  try {
    batch.add(reading, item);
    return null;
  } catch (error) {
    return describe(error);
  }
}

/**
 * Passes over a message that an operator has skipped for these builds; else records their halt, so that the message can
 * be listed and skipped.
 */
export async function assertSkipped(
  state: Pick<ProjectionState, 'isSkipped' | 'recordHalt'>,
  builds: readonly Build[],
  { message, isReadable, reason }: Poison,
): Promise<void> {
  if (await state.isSkipped(builds, message)) return;
  const stated = isReadable ? `projecting failed: ${reason}` : reason;
  await state.recordHalt(builds, { message, reason: stated, announced: false });
  const { topic, partition, offset } = message;
  throw new AppError(
    'MESSAGE_INVALID',
    `${topic}:${partition}:${offset} cannot be read (${stated}): \`tds quarantine skip ${topic}:${partition}:${offset}\` passes over it`,
  );
}
