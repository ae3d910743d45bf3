import { z } from 'zod';

import type { Topic } from '../../schemas/topics.ts';
import { prepared, sqlRows } from '../postgres/client.ts';
import type { Sql } from '../postgres/client.ts';
import type { Kafka } from './client.ts';

/** Owner of checkpoints: a consumer, or one build of a projection. */
export interface CheckpointOwner {
  readonly consumer: string;
  /** 0 for a consumer that has no builds. */
  readonly build: number;
}

/** A topic with its id, which changes when the topic is deleted and created again: its offsets are then another log's. */
export interface LogIdentity {
  readonly topic: Topic<unknown>;
  readonly topicId: string;
}

export interface StoredCheckpoint {
  readonly partition: number;
  readonly topicId: string;
  readonly nextOffset: number;
}

export interface CheckpointMove {
  readonly owner: CheckpointOwner;
  readonly partition: number;
  readonly expected: number;
  readonly next: number;
}

/** Thrown where a checkpoint is not at the expected offset: another process has moved it. */
export class CheckpointConflict extends Error {
  constructor({ consumer, build }: CheckpointOwner, place: string, expected: number) {
    super(`Checkpoint of ${consumer} (build ${build}) in ${place} is not at ${expected}`);
  }
}

const storedRow = z.object({ partition: z.number(), topic_id: z.string(), next_offset: z.number() });
const movedRow = z.object({ consumer: z.string(), build: z.number(), partition: z.number() });

export async function identifyLog(
  kafka: Pick<Kafka, 'topicId'>,
  topic: Topic<unknown>,
): Promise<LogIdentity> {
  return { topic, topicId: await kafka.topicId(topic) };
}

/** Checkpoints of one topic, whatever id it had when they were stored. */
export async function storedCheckpoints(
  db: Sql,
  { consumer, build }: CheckpointOwner,
  topic: Topic<unknown>,
): Promise<StoredCheckpoint[]> {
  const rows = await sqlRows(
    db,
    storedRow,
    'SELECT partition, topic_id, next_offset FROM tds.checkpoints WHERE consumer = $1 AND build = $2 AND topic = $3',
    [consumer, build, topic.name],
  );
  return rows.map(({ partition, topic_id, next_offset }) => ({
    partition,
    topicId: topic_id,
    nextOffset: next_offset,
  }));
}

/** Stores first checkpoints; those of partitions that have one stay. Returns how many were stored. */
export async function createCheckpoints(
  db: Sql,
  { consumer, build }: CheckpointOwner,
  { topic, topicId }: LogIdentity,
  offsets: ReadonlyMap<number, number>,
): Promise<number> {
  const { rowCount } = await db.query(
    `INSERT INTO tds.checkpoints (consumer, build, topic, topic_id, partition, next_offset)
     SELECT $1, $2, $3, $4, * FROM unnest($5::int[], $6::bigint[]) ON CONFLICT DO NOTHING`,
    [consumer, build, topic.name, topicId, [...offsets.keys()], [...offsets.values()]],
  );
  return rowCount ?? 0;
}

/** Replaces a checkpoint that the log cannot serve, unless another process has changed it meanwhile. */
export async function replaceCheckpoint(
  db: Sql,
  { consumer, build }: CheckpointOwner,
  { topic, topicId }: LogIdentity,
  stored: StoredCheckpoint,
  next: number,
): Promise<void> {
  await db.query(
    `UPDATE tds.checkpoints SET topic_id = $5, next_offset = $6, updated_at = now()
     WHERE consumer = $1 AND build = $2 AND topic = $3 AND partition = $4 AND topic_id = $7 AND next_offset = $8`,
    [consumer, build, topic.name, stored.partition, topicId, next, stored.topicId, stored.nextOffset],
  );
}

/** The statement of `moveCheckpoints`. */
export const MOVE_CHECKPOINTS = `
  WITH wanted AS (
    SELECT * FROM unnest($3::text[], $4::int[], $5::int[], $6::bigint[], $7::bigint[])
      AS w (consumer, build, partition, expected, next)
  ), moved AS (
    UPDATE tds.checkpoints c SET next_offset = w.next, updated_at = now()
    FROM wanted w
    WHERE c.topic = $1 AND c.topic_id = $2 AND c.consumer = w.consumer AND c.build = w.build
      AND c.partition = w.partition AND c.next_offset = w.expected
      AND NOT EXISTS (SELECT FROM tds.builds b
        WHERE b.projection = w.consumer AND b.build = w.build AND b.state = 'retired')
    RETURNING c.consumer, c.build, c.partition, c.next_offset
  ), cleared AS (
    DELETE FROM tds.projection_halts h USING moved m
    WHERE h.topic = $1 AND h.projection = m.consumer AND h.build = m.build AND h.partition = m.partition
      AND h.message_offset < m.next_offset
  )
  SELECT consumer, build, partition FROM moved`;

/**
 * Moves checkpoints by compare-and-set, all in one statement. Those of a retired build do not move, and halts of a
 * projection that are passed are cleared.
 *
 * @returns the moves that were refused
 */
export async function moveCheckpoints<M extends CheckpointMove>(
  db: Sql,
  { topic, topicId }: LogIdentity,
  moves: readonly M[],
): Promise<M[]> {
  if (moves.length === 0) return [];
  const moved = await sqlRows(
    db,
    movedRow,
    prepared(MOVE_CHECKPOINTS, [
      topic.name,
      topicId,
      moves.map(({ owner }) => owner.consumer),
      moves.map(({ owner }) => owner.build),
      moves.map(({ partition }) => partition),
      moves.map(({ expected }) => expected),
      moves.map(({ next }) => next),
    ]),
  );
  const key = (consumer: string, build: number, partition: number): string =>
    `${consumer}/${build}/${partition}`;
  const done = new Set(moved.map(({ consumer, build, partition }) => key(consumer, build, partition)));
  return moves.filter(({ owner, partition }) => !done.has(key(owner.consumer, owner.build, partition)));
}
