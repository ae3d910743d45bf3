import type { Kafka } from '../../infra/kafka/client.ts';
import type { Stream, StreamItem } from '../define.ts';
import { readItem } from '../streams.ts';

/**
 * Reads a stream from these offsets (by partition) to its end, and returns what its messages are about, such as their
 * heights; a further call reads on. Every row of a table that was read before a call, and that the messages below the
 * offsets do not explain, comes from one of the messages that the call returns.
 */
export function createMessagesSince<I extends StreamItem, T>(
  kafka: Pick<Kafka, 'offsets' | 'readRanges'>,
  stream: Stream<unknown, I>,
  offsets: ReadonlyMap<number, number>,
  about: (item: I) => T,
  signal: AbortSignal,
): () => Promise<ReadonlySet<T>> {
  const next = new Map(offsets);
  const found = new Set<T>();
  return async () => {
    const ranges = (await kafka.offsets(stream)).flatMap(({ partition, high }) => {
      const from = next.get(partition);
      return from === undefined || from >= high ? [] : [{ partition, from, to: high }];
    });
    for await (const { messages } of kafka.readRanges(stream, ranges, signal)) {
      for (const message of messages) {
        const item = readItem(stream, message);
        if (!('reason' in item)) found.add(about(item)); // no projection reads past a poison message
      }
    }
    for (const { partition, to } of ranges) next.set(partition, to);
    return found;
  };
}
