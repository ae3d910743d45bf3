import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { PoolClient, Sql } from '../../../infra/postgres/client.ts';

/** How far a matcher has read a partition. A topic that was made anew has another id, and is read from its beginning. */
export interface Place {
  readonly matcher: string;
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
}

const row = z.object({ next_offset: z.number() });

/** Null where nothing of this topic was read. */
export async function readPosition(
  db: Sql,
  { matcher, topic, topicId, partition }: Place,
): Promise<number | null> {
  const [found] = await sqlRows(
    db,
    row,
    `SELECT next_offset FROM tds.checkpoints
     WHERE consumer = 'dispatch-' || $1 AND build = 0 AND topic = $2 AND partition = $3 AND topic_id = $4`,
    [matcher, topic, partition, topicId],
  );
  return found?.next_offset ?? null;
}

/** Says where to begin; a position that is there stays. */
export async function beginAt(
  db: Sql,
  { matcher, topic, topicId, partition }: Place,
  offset: number,
): Promise<void> {
  await db.query(
    `INSERT INTO tds.checkpoints AS known (consumer, topic, partition, topic_id, next_offset)
     VALUES ('dispatch-' || $1, $2, $3, $4, $5)
     ON CONFLICT (consumer, build, topic, partition) DO UPDATE SET topic_id = excluded.topic_id, next_offset = excluded.next_offset
       WHERE known.topic_id <> excluded.topic_id`,
    [matcher, topic, partition, topicId, offset],
  );
}

/** False where another process has moved it meanwhile: what was matched is that one's. */
export async function movePosition(
  tx: PoolClient | Sql,
  { matcher, topic, topicId, partition }: Place,
  from: number,
  to: number,
): Promise<boolean> {
  const moved = await tx.query(
    `UPDATE tds.checkpoints SET next_offset = $6, updated_at = now()
     WHERE consumer = 'dispatch-' || $1 AND build = 0 AND topic = $2 AND partition = $3 AND topic_id = $4 AND next_offset = $5`,
    [matcher, topic, partition, topicId, from, to],
  );
  return moved.rowCount === 1;
}
