import { z } from 'zod';

import type { Kafka } from '../../../infra/kafka/client.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { projectionHalts } from '../../../infra/health/service-health.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { lowestByPartition, servedCheckpoints } from '../../progress.ts';
import type { Heights } from '../compare.ts';
import type { Difference } from './difference.ts';

const chunkRow = z.object({ range_start: z.number(), cursor: z.number() });
const skipRow = z.object({ place: z.string() });

/** The indexed heights of each chunk, lowest first. */
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

/** Checkpoints of served builds that lie outside the log, and halted partitions. */
export async function stateDifferences(
  db: Sql,
  kafka: Pick<Kafka, 'offsets' | 'topicId'>,
): Promise<Difference[]> {
  const byTopic = Map.groupBy(await servedCheckpoints(db), ({ topic }) => topic);
  const differences: Difference[] = [];
  const add = (kind: 'checkpoint' | 'halt', what: string): void =>
    void differences.push({ kind, what, heights: null });
  for (const topic of Object.values(topics)) {
    const checkpoints = byTopic.get(topic.name);
    if (checkpoints === undefined) continue;
    const ranges = new Map((await kafka.offsets(topic)).map((range) => [range.partition, range]));
    const currentId = await kafka.topicId(topic);
    for (const { projection, partition, topicId, nextOffset } of checkpoints) {
      const { low, high } = ranges.get(partition) ?? { low: 0, high: -1 };
      const name = `the checkpoint of ${projection} in ${topic.name}:${partition}`;
      if (topicId !== currentId) add('checkpoint', `${name} belongs to another topic of that name`);
      else if (nextOffset < low || nextOffset > high)
        add('checkpoint', `${name} is ${nextOffset}, the log holds ${low} to ${Math.max(0, high)}`);
    }
  }
  for (const { projection, topic, partition, message_offset, reason } of await projectionHalts(db)) {
    add('halt', `${projection} is halted at ${topic}:${partition}:${message_offset}: ${reason}`);
  }
  return differences;
}

/** Lowest checkpoint of the served builds in `chain.blocks`, by partition, and `partition:offset` of what halts them. */
export async function chainProgress(
  db: Sql,
): Promise<{ lowest: ReadonlyMap<number, number>; halts: ReadonlySet<string> }> {
  const halts = (await projectionHalts(db)).filter(({ topic }) => topic === topics.chainBlocks.name);
  return {
    lowest: lowestByPartition(await servedCheckpoints(db, topics.chainBlocks)),
    halts: new Set(halts.map(({ partition, message_offset: offset }) => `${partition}:${offset}`)),
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
