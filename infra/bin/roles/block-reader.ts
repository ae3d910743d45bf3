import type { ReadPublishedBlock } from '../../../pipeline/ingest/ports.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { servedCheckpoint } from '../../../projections/progress.ts';
import { placeOfBlock } from '../../../projections/indexed-blocks/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Kafka } from '../../kafka/client.ts';
import { pause } from '../../lifecycle.ts';
import type { Sql } from '../../postgres/client.ts';

/** The index is a moment behind the log where something is written; longer, the repair waits for another round. */
const WITHIN_MS = 3000;
const LOOK_MS = 50;

/**
 * Reads the newest accepted message about a height from the log, where the index says that it lies. An index that is
 * behind may still name a message that another has replaced since, so each reader first waits until the index has read
 * everything that the height's partition held when it was first asked of it; throws (retryable) when that takes too long.
 */
export function bodyReader({
  pool,
  clickhouse,
  kafka,
}: {
  pool: Sql;
  clickhouse: ClickHouse;
  kafka: Pick<Kafka, 'offsets' | 'readRange'>;
}): () => ReadPublishedBlock {
  const topic = topics.chainBlocks;
  const readToTheEnd = async (partition: number): Promise<void> => {
    const high = (await kafka.offsets(topic)).find((one) => one.partition === partition)?.high ?? 0;
    for (const until = Date.now() + WITHIN_MS; ; await pause(LOOK_MS)) {
      const next = await servedCheckpoint(pool, 'indexed-blocks', topic, partition);
      if (next !== null && next >= high) return;
      if (Date.now() > until) {
        throw new AppError(
          'STORE_UNAVAILABLE',
          `the index has read partition ${partition} up to ${next ?? 0}, not to ${high} yet`,
          { retryable: true },
        );
      }
    }
  };

  return () => {
    const waits = new Map<number, Promise<void>>();
    return async (height) => {
      const asked = partitionOfHeight(height);
      const wait = waits.get(asked) ?? readToTheEnd(asked);
      waits.set(asked, wait);
      await wait;
      const place = await placeOfBlock(clickhouse, await servedBuilds(pool), height);
      if (place === null) return null;
      const { partition, offset } = place;
      for await (const { value } of kafka.readRange(topic, partition, offset, offset + 1)) {
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
