import { z } from 'zod';

import type { LogMessage } from '../../../infra/kafka/client.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import type { MatchDeps } from '../deps.ts';

/** Whether the served builds of some projections have read one message of the log. */
export type ProjectionProgress =
  | { readonly state: 'projected' }
  | { readonly state: 'behind'; readonly detail: string }
  /** Halted at this message or one before it: nothing happens until an operator retries or skips that one. */
  | { readonly state: 'halted'; readonly detail: string };

type MessagePosition = Pick<LogMessage, 'topic' | 'partition' | 'offset'>;

const progressRow = z.object({
  projection: z.string(),
  next_offset: z.number().nullable(),
  halted_offset: z.number().nullable(),
  reason: z.string().nullable(),
});

/** `projected` once all of these projections have read the message; `halted` if one is halted there, even if others are behind. */
export async function projectionProgress(
  db: Sql,
  projections: readonly string[],
  { topic, partition, offset }: MessagePosition,
): Promise<ProjectionProgress> {
  const rows = await sqlRows(
    db,
    progressRow,
    `SELECT wanted.projection, c.next_offset, h.message_offset AS halted_offset, h.reason
     FROM unnest($1::text[]) AS wanted (projection)
     LEFT JOIN tds.builds b ON b.projection = wanted.projection AND b.state = 'serving'
     LEFT JOIN tds.checkpoints c ON c.consumer = b.projection AND c.build = b.build AND c.topic = $2 AND c.partition = $3
     LEFT JOIN tds.projection_halts h ON h.projection = b.projection AND h.build = b.build AND h.topic = $2 AND h.partition = $3
     ORDER BY wanted.projection`,
    [projections, topic, partition],
  );
  const missing = rows.filter(({ next_offset: next }) => (next ?? 0) <= offset);
  const halted = missing.find(({ halted_offset: at }) => at !== null && at <= offset);
  if (halted !== undefined) {
    const { projection, halted_offset: at, reason } = halted;
    return { state: 'halted', detail: `${projection} is halted at ${topic}:${partition}:${at}: ${reason}` };
  }
  const [behind] = missing;
  if (behind === undefined) return { state: 'projected' };
  const { projection, next_offset: next } = behind;
  const reached = next === null ? 'has no checkpoint' : `is at ${topic}:${partition}:${next}`;
  return { state: 'behind', detail: `${projection} ${reached}` };
}

/** By partition, the offset at which the log of the chain ends now. */
export async function chainLogEnds({
  kafka,
}: Pick<MatchDeps, 'kafka'>): Promise<ReadonlyMap<number, number>> {
  const offsets = await kafka.offsets(topics.chainBlocks);
  return new Map(offsets.map(({ partition, high }) => [partition, high]));
}

/** Progress up to one of these ends of the log: that of the partition that has a height of the chain. */
export function progressAtHeight(
  { pool }: Pick<MatchDeps, 'pool'>,
  projections: readonly string[],
  height: number,
  ends: ReadonlyMap<number, number>,
): () => Promise<ProjectionProgress> {
  const partition = partitionOfHeight(height);
  const offset = (ends.get(partition) ?? 0) - 1;
  return async () =>
    await projectionProgress(pool, projections, { topic: topics.chainBlocks.name, partition, offset });
}

/** True where an operator has made one of these projections skip the message. */
export async function isSkipped(
  db: Sql,
  projections: readonly string[],
  { topic, partition, offset }: MessagePosition,
): Promise<boolean> {
  const skipped = await sqlRows(
    db,
    z.object({ projection: z.string() }),
    `SELECT projection FROM tds.skips
     WHERE projection = ANY ($1) AND topic = $2 AND partition = $3 AND message_offset = $4`,
    [projections, topic, partition, offset],
  );
  return skipped.length > 0;
}
