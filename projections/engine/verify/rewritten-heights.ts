import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Heights } from '../compare.ts';
import { chainBlocks, readItem } from '../../streams.ts';
import type { LogRange } from './log.ts';

/** The heights, of those that are verified, about which the log has got messages since it was scanned. */
export type RewrittenHeights = () => Promise<ReadonlySet<number>>;

/**
 * Reads on from where a scan ended. Whatever a projection has written lies in the log: rows that were read before this is
 * asked, and that the scan does not know, are of heights that it names.
 */
export function trackRewrittenHeights(
  kafka: Pick<Kafka, 'offsets' | 'readRanges'>,
  scanned: readonly LogRange[],
  heights: Heights,
  signal: AbortSignal,
): RewrittenHeights {
  const topic = chainBlocks;
  const next = new Map(scanned.map(({ partition, to }) => [partition, to]));
  const found = new Set<number>();
  return async () => {
    const ranges = (await kafka.offsets(topic)).flatMap(({ partition, high }) => {
      const from = next.get(partition);
      return from === undefined || from >= high ? [] : [{ partition, from, to: high }];
    });
    if (ranges.length === 0) return found;
    for await (const { messages } of kafka.readRanges(topic, ranges, topic.fetchBytes, signal)) {
      for (const message of messages) {
        const item = readItem(topic, message);
        if ('reason' in item) continue; // no projection goes past it
        const { height } = item.message.block;
        if (height >= heights.from && height <= heights.to) found.add(height);
      }
    }
    for (const { partition, to } of ranges) next.set(partition, to);
    return found;
  };
}
