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
    `SELECT next_offset FROM tds.dispatch_positions
     WHERE matcher = $1 AND topic = $2 AND partition = $3 AND topic_id = $4`,
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
    `INSERT INTO tds.dispatch_positions AS known (matcher, topic, partition, topic_id, next_offset)
     VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (matcher, topic, partition) DO UPDATE SET topic_id = excluded.topic_id, next_offset = excluded.next_offset
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
    `UPDATE tds.dispatch_positions SET next_offset = $6, updated_at = now()
     WHERE matcher = $1 AND topic = $2 AND partition = $3 AND topic_id = $4 AND next_offset = $5`,
    [matcher, topic, partition, topicId, from, to],
  );
  return moved.rowCount === 1;
}
