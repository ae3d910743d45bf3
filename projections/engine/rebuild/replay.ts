import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Build } from '../builds.ts';
import type { Target } from '../run/batch.ts';
import { createPipeline, streamOf } from '../run/pipeline.ts';
import type { PipelineOptions, Poison } from '../run/pipeline.ts';
import { createReadings } from '../run/readings.ts';
import { identifyLog } from '../../../infra/kafka/checkpoints.ts';
import type { PostgresProjection } from '../../define.ts';
import { createFold } from '../run/fold.ts';
import { createStoreRetry } from '../store-retry.ts';
import type { StoreRetryDeps } from '../store-retry.ts';
import { projectionState } from '../state.ts';
import type { ProjectionState } from '../state.ts';

export interface ReplayDeps extends StoreRetryDeps {
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly pool: Pool;
}

/** The offsets at which a replay ends (exclusive), by partition. */
export type Goal = ReadonlyMap<number, number>;

/** Called with the number of messages read since the last call. */
export type OnRead = (messages: number) => void;

/** Stores and clock of a replay, real or simulated. */
export interface ReplayPorts extends StoreRetryDeps {
  readonly clickhouse: PipelineOptions['clickhouse'];
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
  const { kafka, state } = ports;
  const topic = streamOf(targets);
  const builds = targets.map(({ build }) => build);
  const failed = new AbortController();
  const signal = AbortSignal.any([ports.signal, failed.signal]);
  const retryWhileUnavailable = createStoreRetry('postgres or kafka', ports);
  const identity = await retryWhileUnavailable(() => identifyLog(kafka, topic));
  const readings = createReadings(state, identity, builds, retryWhileUnavailable);
  const ranges = [];
  for (const [partition, to] of goal) {
    ranges.push({ partition, from: (await readings.open(partition)).next, to });
  }
  const pipeline = createPipeline({
    ...ports,
    identity,
    signal,
    targets,
    lockServed: null,
    announceIndexed: null,
    onRefused: ({ partition }) => failed.abort(conflict(partition)),
    onFatal: (error) => failed.abort(error),
  });
  try {
    for await (const { partition, messages } of kafka.readRanges(topic, ranges, signal)) {
      const reading = await readings.open(partition);
      for (const message of messages) {
        const poison = await pipeline.add(reading, message);
        if (poison !== null) {
          await ports.onPoison(poison);
          await pipeline.skip(reading, message);
        }
        onRead(1);
        signal.throwIfAborted();
      }
    }
    await pipeline.drain();
    signal.throwIfAborted();
  } finally {
    await pipeline.stop();
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
  const fold = createFold({ pool, projection, identity, build, isServed: false, retryWhileUnavailable });
  const checkpoints = await retryWhileUnavailable(() => state.checkpoints(identity, build));
  const ranges = [...goal].map(([partition, to]) => ({
    partition,
    from: checkpoints.get(partition) ?? 0,
    to,
  }));
  for await (const { partition, messages } of kafka.readRanges(topic, ranges, deps.signal)) {
    for (let left = messages; left.length > 0;) {
      deps.signal.throwIfAborted();
      const folded = await fold(partition, left);
      if (folded.outcome === 'conflict') throw conflict(partition);
      let { next } = folded;
      if (folded.outcome === 'poison') {
        await assertSkipped(state, [build], folded);
        const move = { build, partition, expected: next, next: next + 1 };
        const refused = await retryWhileUnavailable(() => state.move(identity, [move]));
        if (refused.length > 0) throw conflict(partition);
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
    `The first messages of ${topic.name} were deleted (${places}): its read models cannot be rebuilt. ` +
      `Restore the topic from a backup, or index the chain again into a new installation (another DATA_DIR, or another ` +
      `KAFKA_TOPIC_PREFIX and other databases). The served read models are unchanged.`,
  );
}

function conflict(partition: number): AppError {
  return new AppError('CHECKPOINT_CONFLICT', `Another process writes this build (partition ${partition})`);
}

/**
 * Passes over a message that an operator has skipped for these builds; else records their halt, so that the message can
 * be listed and skipped.
 */
export async function assertSkipped(
  state: Pick<ProjectionState, 'isSkipped' | 'recordHalt'>,
  builds: readonly Build[],
  poison: Poison,
): Promise<void> {
  const { message, reason } = poison;
  if (await state.isSkipped(builds, message)) return;
  await state.recordHalt(builds, { message, reason, announced: false });
  const { topic, partition, offset } = message;
  throw new AppError(
    'MESSAGE_INVALID',
    `${topic}:${partition}:${offset} stops the replay: ${reason}; to skip it, run \`tds quarantine skip ${topic}:${partition}:${offset}\``,
  );
}
