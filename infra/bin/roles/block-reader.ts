import type { ReadPublishedBlock } from '../../../pipeline/ingest/ports.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { servedCheckpoint } from '../../../projections/progress.ts';
import { placeOfBlock } from '../../../projections/indexed-blocks/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Kafka } from '../../kafka/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { pollUntil } from '../../retry.ts';

/** Time for the index to reach the end of the log; it is a moment behind. Then the repair is retried in another round. */
const INDEX_TIMEOUT_MS = 3000;

/**
 * Reads the newest accepted message about a height from the log, at the offset that the index has of it. An index that is
 * behind may name a message that has been replaced since, so each reader first waits until the index has read everything
 * that the height's partition held at its first request; throws a retryable error when that takes too long.
 */
export function blockReaders({
  pool,
  clickhouse,
  kafka,
}: {
  pool: Sql;
  clickhouse: ClickHouse;
  kafka: Pick<Kafka, 'offsets' | 'readRange'>;
}): (signal: AbortSignal) => ReadPublishedBlock {
  const topic = topics.chainBlocks;
  const indexReachedEnd = async (partition: number, signal: AbortSignal): Promise<void> => {
    const high = (await kafka.offsets(topic)).find((one) => one.partition === partition)?.high ?? 0;
    let next: number | null = null;
    const hasReached = async (): Promise<boolean> => {
      next = await servedCheckpoint(pool, 'indexed-blocks', topic, partition);
      return next !== null && next >= high;
    };
    const poll = { everyMs: 50, withinMs: INDEX_TIMEOUT_MS, signal };
    if (await pollUntil(hasReached, (reached) => reached, poll)) return;
    throw new AppError(
      'STORE_UNAVAILABLE',
      `the index has read partition ${partition} up to offset ${next ?? 0}, not yet to ${high}`,
      { retryable: true },
    );
  };

  return (signal) => {
    const waits = new Map<number, Promise<void>>();
    return async (height) => {
      const own = partitionOfHeight(height);
      const wait = waits.get(own) ?? indexReachedEnd(own, signal);
      waits.set(own, wait);
      await wait;
      const place = await placeOfBlock(clickhouse, await servedBuilds(pool), height);
      if (place === null) return null;
      const { partition, offset } = place;
      for await (const { value } of kafka.readRange(topic, partition, offset, offset + 1, signal)) {
        const message = topic.schema.parse(JSON.parse(value.toString()));
        if (message.type !== 'block.accepted' || message.block.height !== height) break;
        return { block: message.block, contracts: message.contracts };
      }
      throw new AppError(
        'MESSAGE_INVALID',
        `${topic.name}:${partition}:${offset} does not hold the block at ${height}`,
      );
    };
  };
}
