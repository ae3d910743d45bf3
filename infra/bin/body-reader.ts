import type { BodyOf } from '../../pipeline/ingest/ports.ts';
import { servedBuilds } from '../../projections/builds.ts';
import { placeOfBlock } from '../../projections/indexed-blocks/queries.ts';
import { AppError } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import type { ClickHouse } from '../clickhouse/client.ts';
import type { Kafka } from '../kafka/client.ts';
import type { Sql } from '../postgres/client.ts';

/** Reads the newest accepted message about a height from the log, where the index says that it lies. */
export function bodyReader({
  pool,
  clickhouse,
  kafka,
}: {
  pool: Sql;
  clickhouse: ClickHouse;
  kafka: Pick<Kafka, 'readRange'>;
}): BodyOf {
  return async (height) => {
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
