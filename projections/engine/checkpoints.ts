import { z } from 'zod';

import type { Kafka } from '../../infra/kafka/client.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { AppError } from '../../schemas/errors.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { Build } from './builds.ts';

/** From where to where a build's checkpoint moves in one partition. */
export interface CheckpointMove {
  readonly build: Build;
  readonly partition: number;
  readonly expected: number;
  readonly next: number;
}

/** A topic as its checkpoints know it. */
export interface LogIdentity {
  readonly topic: Topic<unknown>;
  readonly topicId: string;
}

const checkpointRow = z.object({ partition: z.number(), topic_id: z.string(), next_offset: z.number() });
const movedRow = z.object({ projection: z.string(), partition: z.number() });

export async function identifyLog(
  kafka: Pick<Kafka, 'topicId'>,
  topic: Topic<unknown>,
): Promise<LogIdentity> {
  return { topic, topicId: await kafka.topicId(topic) };
}

/**
 * Where a build goes on, by partition; a partition that it never read begins at the log's first message. A checkpoint
 * of another topic id, or outside the log as it is now, stops by name: `CHECKPOINT_OUTSIDE_LOG`.
 */
export async function loadCheckpoints(
  db: Sql,
  kafka: Pick<Kafka, 'offsets'>,
  log: LogIdentity,
  build: Build,
): Promise<Map<number, number>> {
  const { topic, topicId } = log;
  // The log is asked after the table: a checkpoint that moves meanwhile cannot seem to be past the end.
  const stored = await sqlRows(
    db,
    checkpointRow,
    'SELECT partition, topic_id, next_offset FROM tds.checkpoints WHERE projection = $1 AND build = $2 AND topic = $3',
    [build.projection, build.build, topic.name],
  );
  const offsets = await kafka.offsets(topic);
  if (stored.length < offsets.length) {
    await db.query(
      `INSERT INTO tds.checkpoints (projection, build, topic, topic_id, partition, next_offset)
       SELECT $1, $2, $3, $4, * FROM unnest($5::int[], $6::bigint[]) ON CONFLICT DO NOTHING`,
      [
        build.projection,
        build.build,
        topic.name,
        topicId,
        offsets.map(({ partition }) => partition),
        offsets.map(({ low }) => low),
      ],
    );
    return await loadCheckpoints(db, kafka, log, build);
  }
  const places = new Map(offsets.map((place) => [place.partition, place]));
  for (const { partition, topic_id, next_offset } of stored) {
    const name = `${build.projection} (build ${build.build}), ${topic.name}:${partition}`;
    if (topic_id !== topicId) {
      throw new AppError(
        'CHECKPOINT_OUTSIDE_LOG',
        `The checkpoint of ${name} belongs to topic id ${topic_id}; the topic is now ${topicId}`,
      );
    }
    const place = places.get(partition);
    if (place === undefined || next_offset < place.low || next_offset > place.high) {
      throw new AppError(
        'CHECKPOINT_OUTSIDE_LOG',
        `The checkpoint of ${name} is ${next_offset}, the log holds ${place?.low ?? 0} to ${place?.high ?? 0}`,
      );
    }
  }
  return new Map(stored.map(({ partition, next_offset }) => [partition, next_offset]));
}

/** False where messages that a build has not read are gone: a snapshot has taken their place meanwhile. */
export async function canGoOn(
  db: Sql,
  kafka: Pick<Kafka, 'offsets'>,
  topic: Topic<unknown>,
  { projection, build }: Build,
): Promise<boolean> {
  const stored = await sqlRows(
    db,
    checkpointRow,
    'SELECT partition, topic_id, next_offset FROM tds.checkpoints WHERE projection = $1 AND build = $2 AND topic = $3',
    [projection, build, topic.name],
  );
  const lows = new Map((await kafka.offsets(topic)).map(({ partition, low }) => [partition, low]));
  return stored.every(({ partition, next_offset }) => next_offset >= (lows.get(partition) ?? 0));
}

/** Where the build that is served goes on in a partition; null when it has read nothing of it yet. */
export async function servedCheckpoint(
  db: Sql,
  projection: string,
  topic: Topic<unknown>,
  partition: number,
): Promise<number | null> {
  const [row] = await sqlRows(
    db,
    z.object({ next_offset: z.number() }),
    `SELECT next_offset FROM tds.checkpoints JOIN tds.builds USING (projection, build)
     WHERE projection = $1 AND state = 'serving' AND topic = $2 AND partition = $3`,
    [projection, topic.name, partition],
  );
  return row?.next_offset ?? null;
}

/** How far everything that is served of a topic has read it, by partition; none where nothing has. */
export async function readByAllServed(
  db: Sql,
  { topic, topicId }: LogIdentity,
): Promise<ReadonlyMap<number, number>> {
  const rows = await sqlRows(
    db,
    z.object({ partition: z.number(), next_offset: z.number() }),
    `SELECT partition, min(next_offset) AS next_offset FROM tds.checkpoints JOIN tds.builds USING (projection, build)
     WHERE state = 'serving' AND topic = $1 AND topic_id = $2 GROUP BY partition`,
    [topic.name, topicId],
  );
  return new Map(rows.map(({ partition, next_offset }) => [partition, next_offset]));
}

/**
 * Moves checkpoints by compare-and-set, all in one statement, and clears the halts they pass.
 *
 * @returns the moves that were refused: another process has moved that checkpoint
 */
export async function moveCheckpoints(
  db: Sql,
  topic: Topic<unknown>,
  moves: readonly CheckpointMove[],
): Promise<CheckpointMove[]> {
  if (moves.length === 0) return [];
  const moved = await sqlRows(
    db,
    movedRow,
    `WITH wanted AS (
       SELECT * FROM unnest($2::text[], $3::int[], $4::int[], $5::bigint[], $6::bigint[])
         AS w (projection, build, partition, expected, next)
     ), moved AS (
       UPDATE tds.checkpoints c SET next_offset = w.next, updated_at = now()
       FROM wanted w
       WHERE c.topic = $1 AND c.projection = w.projection AND c.build = w.build AND c.partition = w.partition
         AND c.next_offset = w.expected
         AND NOT EXISTS (SELECT FROM tds.builds b
           WHERE b.projection = w.projection AND b.build = w.build AND b.state = 'retired')
       RETURNING c.projection, c.build, c.partition, c.next_offset
     ), cleared AS (
       DELETE FROM tds.projection_halts h USING moved m
       WHERE h.topic = $1 AND h.projection = m.projection AND h.build = m.build AND h.partition = m.partition
         AND h.message_offset < m.next_offset
     )
     SELECT projection, partition FROM moved`,
    [
      topic.name,
      moves.map(({ build }) => build.projection),
      moves.map(({ build }) => build.build),
      moves.map(({ partition }) => partition),
      moves.map(({ expected }) => expected),
      moves.map(({ next }) => next),
    ],
  );
  const done = new Set(moved.map(({ projection, partition }) => `${projection}:${partition}`));
  return moves.filter(({ build, partition }) => !done.has(`${build.projection}:${partition}`));
}
