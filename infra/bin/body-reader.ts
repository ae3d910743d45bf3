import type { BodyOf } from '../../pipeline/ingest/ports.ts';
import { servedBuilds } from '../../projections/served.ts';
import { servedCheckpoint } from '../../projections/engine/checkpoints.ts';
import { placeOfBlock } from '../../projections/indexed-blocks/queries.ts';
import { AppError } from '../../schemas/errors.ts';
import { partitionOfHeight, topics } from '../../schemas/topics.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import type { Kafka } from '../kafka/client.ts';
import type { Sql } from '../postgres/client.ts';

/**
 * Reads the newest accepted message about a height from the log, where the index says that it lies. Throws (retryable) while
 * the index has not read the height's partition to its end: it may still name a message that another has replaced since.
 */
export function bodyReader({
  pool,
  clickhouse,
  kafka,
}: {
  pool: Sql;
  clickhouse: ClickHouse;
  kafka: Pick<Kafka, 'offsets' | 'readRange'>;
}): BodyOf {
  const assertRead = async (height: number): Promise<void> => {
    const partition = partitionOfHeight(height);
    const high = (await kafka.offsets(topics.chainBlocks)).find((one) => one.partition === partition)?.high;
    const next = await servedCheckpoint(pool, 'indexed-blocks', topics.chainBlocks, partition);
    if (high !== undefined && next !== null && next >= high) return;
    throw new AppError('STORE_UNAVAILABLE', `the index has not read partition ${partition} to its end yet`, {
      retryable: true,
    });
  };
  return async (height) => {
    await assertRead(height);
    const place = await placeOfBlock(clickhouse, await servedBuilds(pool), height);
    if (place === null) return null;
    for await (const { value } of kafka.readRange(
      topics.chainBlocks,
      place.partition,
      place.offset,
      place.offset + 1,
    )) {
      const message = topics.chainBlocks.schema.parse(JSON.parse(value.toString()));
      if (message.type !== 'block.accepted' || message.block.height !== height) break;
      return { block: message.block, contracts: message.contracts };
    }
    throw new AppError(
      'MESSAGE_INVALID',
      `${topics.chainBlocks.name}:${place.partition}:${place.offset} does not hold the block at ${height}`,
    );
  };
}
