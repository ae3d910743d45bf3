import { createCheckpoints, moveCheckpoints, storedCheckpoints } from '../../infra/kafka/checkpoints.ts';
import type { CheckpointOwner, LogIdentity } from '../../infra/kafka/checkpoints.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import { INDEXED_CHANNEL } from '../../schemas/messages/chain-status.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { Build } from './builds.ts';

/** A move of a build's checkpoint in one partition. */
export interface BuildCheckpointMove {
  readonly build: Build;
  readonly partition: number;
  readonly expected: number;
  readonly next: number;
}

export function ownerOf({ projection, build }: Build): CheckpointOwner {
  return { consumer: projection, build };
}

/**
 * Next offsets of a build by partition; a partition that it has not read begins at the log's first message.
 *
 * @throws CHECKPOINT_OUTSIDE_LOG where a checkpoint belongs to another topic id or lies outside the log
 */
export async function loadCheckpoints(
  db: Sql,
  kafka: Pick<Kafka, 'offsets'>,
  log: LogIdentity,
  build: Build,
): Promise<Map<number, number>> {
  const { topic, topicId } = log;
  // The log is asked after the table: a checkpoint that moves meanwhile cannot seem to be past the end.
  const stored = await storedCheckpoints(db, ownerOf(build), topic);
  const ranges = new Map((await kafka.offsets(topic)).map((range) => [range.partition, range]));
  if (stored.length < ranges.size) {
    const lows = new Map([...ranges].map(([partition, { low }]) => [partition, low]));
    await createCheckpoints(db, ownerOf(build), log, lows);
    return await loadCheckpoints(db, kafka, log, build);
  }
  for (const { partition, topicId: storedId, nextOffset } of stored) {
    const name = `${build.projection} (build ${build.build}), ${topic.name}:${partition}`;
    if (storedId !== topicId) {
      throw new AppError(
        'CHECKPOINT_OUTSIDE_LOG',
        `The checkpoint of ${name} belongs to topic id ${storedId}; the topic is now ${topicId}`,
      );
    }
    const { low, high } = ranges.get(partition) ?? { low: 0, high: 0 };
    if (!ranges.has(partition) || nextOffset < low || nextOffset > high) {
      throw new AppError(
        'CHECKPOINT_OUTSIDE_LOG',
        `The checkpoint of ${name} is ${nextOffset}, the log holds ${low} to ${high}: run \`tds rebuild ${build.projection}\``,
      );
    }
  }
  return new Map(stored.map(({ partition, nextOffset }) => [partition, nextOffset]));
}

/** Moves the checkpoints of a build that lie before the log to its first messages. */
export async function passDeletedMessages(
  { pool, kafka, log }: { readonly pool: Sql; readonly kafka: Pick<Kafka, 'offsets'>; readonly log: Logger },
  identity: LogIdentity,
  build: Build,
): Promise<void> {
  const { topic, topicId } = identity;
  const stored = await storedCheckpoints(pool, ownerOf(build), topic);
  const lows = new Map((await kafka.offsets(topic)).map(({ partition, low }) => [partition, low]));
  const moves = stored
    .filter((one) => one.topicId === topicId)
    .map(({ partition, nextOffset: expected }) => ({
      build,
      partition,
      expected,
      next: lows.get(partition) ?? 0,
    }))
    .filter(({ expected, next }) => expected < next);
  for (const { partition, expected, next } of moves) {
    const detail = { projection: build.projection, topic: topic.name, partition, stored: expected, next };
    log.warn(detail, 'checkpoint before the log, expired messages skipped');
  }
  await moveBuildCheckpoints(pool, identity, moves);
}

/**
 * False when messages that the build has not read were deleted from the log, because a snapshot replaces them, and when the
 * log has lost messages that the build has read.
 *
 * @param options.passesDeleted deleted messages do not count, as for a run that passes over them
 */
export async function canResume(
  db: Sql,
  kafka: Pick<Kafka, 'offsets'>,
  topic: Topic<unknown>,
  build: Build,
  { passesDeleted = false }: { readonly passesDeleted?: boolean } = {},
): Promise<boolean> {
  const stored = await storedCheckpoints(db, ownerOf(build), topic);
  const ranges = await kafka.offsets(topic);
  return stored.every(({ partition, nextOffset }) =>
    ranges.some(
      ({ partition: one, low, high }) =>
        one === partition && (nextOffset >= low || passesDeleted) && nextOffset <= high,
    ),
  );
}

/**
 * Moves checkpoints by compare-and-set, all in one statement, and clears the halts they pass.
 *
 * @returns the moves that were refused: another process has moved that checkpoint, or the build is retired
 */
export async function moveBuildCheckpoints(
  db: Sql,
  log: LogIdentity,
  moves: readonly BuildCheckpointMove[],
): Promise<BuildCheckpointMove[]> {
  const owned = moves.map((move) => ({ ...move, owner: ownerOf(move.build), move }));
  return (await moveCheckpoints(db, log, owned)).map(({ move }) => move);
}

/** Notifies the listeners of `INDEXED_CHANNEL` that blocks were indexed or reverted. */
export async function announceIndexed(db: Sql): Promise<void> {
  await db.query("SELECT pg_notify($1, '')", [INDEXED_CHANNEL]);
}
