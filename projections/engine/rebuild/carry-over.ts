import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { createCheckpoints, identifyLog, storedCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { AppError } from '../../../schemas/errors.ts';
import { withNames } from '../../define.ts';
import type { Projection } from '../../define.ts';
import type { Build } from '../builds.ts';
import { ownerOf } from '../checkpoints.ts';
import { lostTable } from '../stored-tables.ts';

interface Stores {
  readonly kafka: Pick<Kafka, 'offsets' | 'topicId'>;
  readonly clickhouse: Pick<ClickHouse, 'command' | 'rows'>;
  readonly pool: Pool;
  readonly log: Logger;
}

/** Copies that are tried: retention may delete messages during one, at most every few minutes. */
const ATTEMPTS = 5;

/**
 * Prepares a shadow build on a topic with finite retention: copies rows whose messages retention has deleted from the
 * previous build, and sets the checkpoints to the log's first offsets. Does nothing once the shadow build has checkpoints.
 * A previous build whose tables are lost is not copied: its rows of deleted messages are lost with it.
 */
export async function carryOver(
  stores: Stores,
  projection: Projection,
  previous: Build | null,
  shadow: Build,
): Promise<void> {
  const { kafka, pool } = stores;
  const owner = ownerOf(shadow);
  if ((await storedCheckpoints(pool, owner, projection.topic)).length > 0) return;
  const log = await identifyLog(kafka, projection.topic);
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const offsets = await kafka.offsets(projection.topic);
    const firstOffset = Math.max(0, ...offsets.map(({ low }) => low));
    if (firstOffset > 0 && previous !== null) {
      await copyRows(stores, projection, previous, shadow, firstOffset);
    }
    // Another partition may have lost messages meanwhile; those below `firstOffset` are copied.
    const now = await kafka.offsets(projection.topic);
    if (now.some(({ low }) => low > firstOffset)) continue;
    await createCheckpoints(pool, owner, log, new Map(now.map(({ partition, low }) => [partition, low])));
    return;
  }
  throw new AppError(
    'CONFLICT',
    `Retention deleted messages of ${projection.topic.name} during each of ${ATTEMPTS} copies; run the rebuild again`,
  );
}

async function copyRows(
  stores: Stores,
  projection: Projection,
  previous: Build,
  shadow: Build,
  firstOffset: number,
): Promise<void> {
  const { clickhouse, pool, log } = stores;
  const lost = await lostTable(stores, projection, previous);
  if (lost !== null) {
    const fields = { projection: projection.name, lost, first_offset: firstOffset };
    log.warn(fields, 'previous build is lost, rows of deleted messages not copied');
    return;
  }
  const names = {
    ...Object.fromEntries(Object.entries(previous.names).map(([name, table]) => [`previous_${name}`, table])),
    ...shadow.names,
  };
  if (projection.kind === 'postgres') {
    const sql = withNames(projection.carryOver ?? '', names);
    await inTransaction(pool, async (tx) => void (await tx.query(sql)));
    return;
  }
  for (const { sql, params } of projection.carryOver?.(firstOffset) ?? []) {
    await clickhouse.command(withNames(sql, names), { params });
  }
}
