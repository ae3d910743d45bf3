import { z } from 'zod';

import type { Kafka } from '../../infra/kafka/client.ts';
import { sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { topics } from '../../schemas/topics.ts';

/** Whether history is being indexed, or read again for a rebuild: observers then use a bounded share of the machine. */
export type IsBackfilling = () => Promise<boolean>;

const CACHE_MS = 1000;
/** A partition of the log this close to its end counts as projected. */
const MAX_LAG = 10;
/** Pause after work during a backfill, as a multiple of its duration: observers work a fifth of the time. */
const PAUSE_FACTOR = 4;

/** Milliseconds to pause after work during a backfill. */
export function pauseMs(
  workMs: number,
  { min, max }: { readonly min: number; readonly max: number },
): number {
  return Math.min(Math.max(PAUSE_FACTOR * workMs, min), max);
}

/**
 * True while a chunk of history is not ingested to its end, after that until the projections have read the log, and during a
 * rebuild. The answer is cached for a second.
 */
export function createBackfillCheck(
  pool: Pool,
  kafka: Pick<Kafka, 'offsets'>,
  isRebuilding: () => Promise<boolean>,
): IsBackfilling {
  let cached = { until: Number.NEGATIVE_INFINITY, answer: false };
  let isIndexing = false;
  return async () => {
    if (performance.now() >= cached.until) {
      isIndexing = (await hasOpenChunk(pool)) || (isIndexing && (await areProjectionsBehind(pool, kafka)));
      cached = { until: performance.now() + CACHE_MS, answer: isIndexing || (await isRebuilding()) };
    }
    return cached.answer;
  };
}

async function hasOpenChunk(pool: Pool): Promise<boolean> {
  const { rowCount } = await pool.query(
    "SELECT 1 FROM tds.chunks WHERE status = 'open' AND range_end IS NOT NULL LIMIT 1",
  );
  return rowCount === 1;
}

/** Without halted partitions, which an operator has to look at. */
async function areProjectionsBehind(pool: Pool, kafka: Pick<Kafka, 'offsets'>): Promise<boolean> {
  const topic = topics.chainBlocks;
  const reached = await sqlRows(
    pool,
    z.object({ partition: z.number(), next_offset: z.number() }),
    `SELECT partition, min(next_offset) AS next_offset
     FROM tds.projection_checkpoints LEFT JOIN tds.projection_halts USING (projection, build, topic, partition)
     WHERE state = 'serving' AND topic = $1 AND message_offset IS NULL GROUP BY partition`,
    [topic.name],
  );
  const ends = new Map((await kafka.offsets(topic)).map(({ partition, high }) => [partition, high]));
  return reached.some(({ partition, next_offset: next }) => (ends.get(partition) ?? 0) - next > MAX_LAG);
}
