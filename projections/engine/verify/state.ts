import { z } from 'zod';

import type { Kafka } from '../../../infra/kafka/client.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { projectionHalts } from '../../../infra/working-state.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import type { Heights } from '../compare.ts';
import type { Difference } from './difference.ts';

const checkpointRow = z.object({
  projection: z.string(),
  build: z.number(),
  topic: z.string(),
  partition: z.number(),
  topic_id: z.string(),
  next_offset: z.number(),
});
const chunkRow = z.object({ range_start: z.number(), cursor: z.number() });
const skipRow = z.object({ place: z.string() });

/** Heights that are indexed: of each chunk, what its writer has moved over. Lowest first. */
export async function indexedHeights(db: Sql): Promise<Heights[]> {
  const chunks = await sqlRows(
    db,
    chunkRow,
    'SELECT range_start, cursor FROM tds.chunks WHERE cursor > range_start ORDER BY range_start',
  );
  return chunks.map(({ range_start, cursor }) => ({ from: range_start, to: cursor - 1 }));
}

export async function skippedMessages(db: Sql): Promise<Set<string>> {
  const rows = await sqlRows(
    db,
    skipRow,
    "SELECT DISTINCT partition || ':' || message_offset AS place FROM tds.skips WHERE topic = $1",
    [topics.chainBlocks.name],
  );
  return new Set(rows.map(({ place }) => place));
}

/** Checkpoints that no projection can go on from, and partitions that stand still: of all that is served. */
export async function stateDifferences(
  db: Sql,
  kafka: Pick<Kafka, 'offsets' | 'topicId'>,
): Promise<Difference[]> {
  const checkpoints = await sqlRows(
    db,
    checkpointRow,
    `SELECT projection, build, topic, partition, topic_id, next_offset FROM tds.projection_checkpoints
     WHERE state = 'serving' ORDER BY projection, topic, partition`,
  );
  const differences: Difference[] = [];
  const say = (kind: 'checkpoint' | 'halt', what: string): void =>
    void differences.push({ kind, what, heights: null });
  for (const topic of Object.values(topics)) {
    const own = checkpoints.filter((checkpoint) => checkpoint.topic === topic.name);
    if (own.length === 0) continue;
    const places = new Map((await kafka.offsets(topic)).map((place) => [place.partition, place]));
    const topicId = await kafka.topicId(topic);
    for (const { projection, partition, topic_id, next_offset } of own) {
      const place = places.get(partition);
      const name = `the checkpoint of ${projection} in ${topic.name}:${partition}`;
      if (topic_id !== topicId) say('checkpoint', `${name} belongs to another topic of that name`);
      else if (place === undefined || next_offset < place.low || next_offset > place.high)
        say(
          'checkpoint',
          `${name} is ${next_offset}, the log holds ${place?.low ?? 0} to ${place?.high ?? 0}`,
        );
    }
  }
  for (const halt of await projectionHalts(db)) {
    const { projection, topic, partition, message_offset, reason } = halt;
    say('halt', `${projection} is halted at ${topic}:${partition}:${message_offset}: ${reason}`);
  }
  return differences;
}

/** Lowest checkpoint of what is served from `chain.blocks`, by partition, and the partitions that do not go on. */
export async function chainPositions(db: Sql): Promise<{ lowest: Map<number, number>; halted: Set<number> }> {
  const rows = await sqlRows(
    db,
    checkpointRow.pick({ partition: true, next_offset: true }),
    `SELECT partition, min(next_offset) AS next_offset FROM tds.projection_checkpoints
     WHERE state = 'serving' AND topic = $1 GROUP BY partition`,
    [topics.chainBlocks.name],
  );
  const halted = (await projectionHalts(db)).filter(({ topic }) => topic === topics.chainBlocks.name);
  return {
    lowest: new Map(rows.map(({ partition, next_offset }) => [partition, next_offset])),
    halted: new Set(halted.map(({ partition }) => partition)),
  };
}

/** The partitions that hold messages about these heights. */
export function partitionsOf({ from, to }: Heights): Set<number> {
  const found = new Set<number>();
  for (let height = from; height <= to && found.size < topics.chainBlocks.partitions; height += 512) {
    found.add(partitionOfHeight(height));
  }
  return found.add(partitionOfHeight(to));
}
