import { z } from 'zod';

import { topics } from '../../schemas/topics.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { Kafka } from '../kafka/client.ts';
import { withTimeout } from '../lifecycle.ts';
import { sqlRows } from '../postgres/client.ts';
import type { Sql } from '../postgres/client.ts';

const checkpointRow = z.object({
  role: z.string(),
  consumer: z.string(),
  topic: z.string(),
  partition: z.number(),
  next_offset: z.number(),
  updated_at: z.date(),
  /** The checkpoint has not moved for STALL_SECONDS, and no message has halted the partition. */
  is_idle: z.boolean(),
  /** The halt of a projection that this consumer waits for. */
  waits_for: z.string().nullable(),
});

/** A consumer of the log in one partition: a served build of a projection, an observer or a matcher of webhooks. */
export interface Consumer extends z.infer<typeof checkpointRow> {
  /** Messages that are not processed yet; null while Kafka is unavailable. */
  readonly lag: number | null;
  /** True if the next message has been in the log for STALL_SECONDS and the checkpoint has not moved since. */
  readonly isStuck: boolean;
}

/**
 * `dispatch-requests` is left out: its checkpoint moves only with commands that ask for a delivery. `observe-nft` has left
 * checkpoints in chain.blocks where an earlier release ran, in which it read them itself.
 */
const SELECT_CHECKPOINTS = `
  SELECT 'project' AS role, projection AS consumer, topic, partition, next_offset, updated_at,
    updated_at < now() - make_interval(secs => $1) AND message_offset IS NULL AS is_idle, NULL AS waits_for
  FROM tds.projection_checkpoints LEFT JOIN tds.projection_halts USING (projection, build, topic, partition)
  WHERE state = 'serving'
  UNION ALL
  SELECT role, name, topic, partition, next_offset, updated_at, updated_at < now() - make_interval(secs => $1),
    (SELECT detail FROM tds.alarms a WHERE a.name = concat_ws(':', 'webhooks.waiting', n.name, topic, partition))
  FROM tds.checkpoints, LATERAL (SELECT split_part(consumer, '-', 1) AS role,
    substr(consumer, strpos(consumer, '-') + 1) AS name) AS n
  WHERE build = 0 AND consumer <> 'dispatch-requests' AND (consumer, topic) <> ('observe-nft', 'chain.blocks')
  ORDER BY role, consumer, topic, partition`;

/** Longest wait for Kafka, after which the state is reported without it. */
const KAFKA_TIMEOUT_MS = 1500;

/** Compares the checkpoints with the log; reads the checkpoints first, so that a lag is never negative. */
export async function readConsumers(
  db: Sql,
  kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>,
  stallSeconds: number,
): Promise<{ consumers: Consumer[]; isLogAvailable: boolean }> {
  const stalledAt = Date.now() - stallSeconds * 1000;
  const checkpoints = await sqlRows(db, checkpointRow, SELECT_CHECKPOINTS, [stallSeconds]);
  const [heads, pending] = await Promise.all([
    readOffsets(checkpoints, async (topic) =>
      (await kafka.offsets(topic)).map(({ partition, high }) => ({ partition, offset: high })),
    ),
    readOffsets(
      checkpoints.filter((one) => one.is_idle),
      (topic) => kafka.offsetsAt(topic, stalledAt),
    ),
  ]);
  const consumers = checkpoints.map((one) => {
    const place = `${one.topic}:${one.partition}`;
    const head = heads?.get(place);
    return {
      ...one,
      lag: head === undefined ? null : Math.max(0, head - one.next_offset),
      isStuck: one.is_idle && one.next_offset < (pending?.get(place) ?? 0),
    };
  });
  return { consumers, isLogAvailable: heads !== null };
}

/** An offset of every partition of the topics that these checkpoints name, by `topic:partition`; null without Kafka. */
async function readOffsets(
  checkpoints: readonly { readonly topic: string }[],
  read: (topic: Topic<unknown>) => Promise<{ partition: number; offset: number }[]>,
): Promise<Map<string, number> | null> {
  const names = new Set(checkpoints.map(({ topic }) => topic));
  const reading = Object.values(topics)
    .filter(({ name }) => names.has(name))
    .map(async (topic) =>
      (await read(topic)).map(({ partition, offset }) => [`${topic.name}:${partition}`, offset] as const),
    );
  const found = Promise.all(reading).catch(() => null);
  const offsets = await withTimeout(found, KAFKA_TIMEOUT_MS, null);
  return offsets === null ? null : new Map(offsets.flat());
}
