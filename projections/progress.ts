import { z } from 'zod';

import type { LogIdentity } from '../infra/kafka/checkpoints.ts';
import { sqlRows } from '../infra/postgres/client.ts';
import type { Sql } from '../infra/postgres/client.ts';
import type { Topic } from '../schemas/topics.ts';

/** Progress of the served builds: what their checkpoints say. */

export interface ServedCheckpoint {
  readonly projection: string;
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly nextOffset: number;
}

const checkpointRow = z
  .object({
    projection: z.string(),
    topic: z.string(),
    topic_id: z.string(),
    partition: z.number(),
    next_offset: z.number(),
  })
  .transform(({ topic_id: topicId, next_offset: nextOffset, ...row }) => ({ ...row, topicId, nextOffset }));

/** Checkpoints of every served build, or of those that read one topic. */
export async function servedCheckpoints(
  db: Sql,
  topic: Topic<unknown> | null = null,
): Promise<ServedCheckpoint[]> {
  return await sqlRows(
    db,
    checkpointRow,
    `SELECT projection, topic, topic_id, partition, next_offset FROM tds.projection_checkpoints
     WHERE state = 'serving' AND ($1::text IS NULL OR topic = $1) ORDER BY projection, topic, partition`,
    [topic?.name ?? null],
  );
}

/** Next offset of a projection's served build in a partition; null before its first checkpoint. */
export async function servedCheckpoint(
  db: Sql,
  projection: string,
  topic: Topic<unknown>,
  partition: number,
): Promise<number | null> {
  const checkpoints = await servedCheckpoints(db, topic);
  const own = checkpoints.find((one) => one.projection === projection && one.partition === partition);
  return own?.nextOffset ?? null;
}

/** Lowest next offset of all served builds that read a topic, by partition. */
export async function lowestServed(
  db: Sql,
  { topic, topicId }: LogIdentity,
): Promise<ReadonlyMap<number, number>> {
  const checkpoints = await servedCheckpoints(db, topic);
  return lowestByPartition(checkpoints.filter((one) => one.topicId === topicId));
}

export function lowestByPartition(checkpoints: readonly ServedCheckpoint[]): ReadonlyMap<number, number> {
  const byPartition = Map.groupBy(checkpoints, ({ partition }) => partition);
  return new Map(
    [...byPartition].map(([partition, own]) => [
      partition,
      Math.min(...own.map(({ nextOffset }) => nextOffset)),
    ]),
  );
}

/** True once a served build has read a message of the topic. */
export async function isTopicRead(db: Sql, topic: Topic<unknown>): Promise<boolean> {
  return (await servedCheckpoints(db, topic)).some(({ nextOffset }) => nextOffset > 0);
}
