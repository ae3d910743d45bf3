import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';

/** How far an observer has read a partition. A topic that was made anew has another id, and is read from its beginning. */
export interface Position {
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly nextOffset: number;
}

const row = z.object({ next_offset: z.number() });

/** Null where nothing of this topic was read. */
export async function readPosition(
  db: Sql,
  observer: string,
  { topic, topicId, partition }: Omit<Position, 'nextOffset'>,
): Promise<number | null> {
  const [found] = await sqlRows(
    db,
    row,
    `SELECT next_offset FROM tds.checkpoints
     WHERE consumer = 'observe-' || $1 AND build = 0 AND topic = $2 AND partition = $3 AND topic_id = $4`,
    [observer, topic, partition, topicId],
  );
  return found?.next_offset ?? null;
}

export async function movePosition(db: Sql, observer: string, position: Position): Promise<void> {
  await db.query(
    `INSERT INTO tds.checkpoints (consumer, topic, partition, topic_id, next_offset)
     VALUES ('observe-' || $1, $2, $3, $4, $5)
     ON CONFLICT (consumer, build, topic, partition) DO UPDATE
       SET topic_id = excluded.topic_id, next_offset = excluded.next_offset, updated_at = now()`,
    [observer, position.topic, position.partition, position.topicId, position.nextOffset],
  );
}
