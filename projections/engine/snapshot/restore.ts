import type { Kafka } from '../../../infra/kafka/client.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';
import { snapshotsMessage } from '../../../schemas/messages/snapshots.ts';
import type { SnapshotManifest, SnapshotMessage } from '../../../schemas/messages/snapshots.ts';
import { topics } from '../../../schemas/topics.ts';
import { withNames } from '../../define.ts';
import type { PostgresProjection, SnapshotConversion } from '../../define.ts';
import type { Build } from '../builds.ts';
import { createCheckpoints, identifyLog, storedCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import { ownerOf } from '../checkpoints.ts';

type Log = Pick<Kafka, 'offsets' | 'readRange' | 'topicId'>;

/** The newest complete snapshot; null when there is none. */
export async function newestSnapshot(kafka: Log): Promise<SnapshotManifest | null> {
  let newest: SnapshotManifest | null = null;
  for await (const message of snapshotMessages(kafka)) {
    if (message.type === 'snapshot.closed') newest = message;
  }
  return newest;
}

/**
 * Fills a build that has no checkpoint yet from the newest snapshot, and stores the snapshot's checkpoint. Does nothing
 * without a snapshot, or when the build has a checkpoint. A projection that the snapshot does not have is newer than the
 * snapshot: no command for it was ever sent, so it begins empty.
 *
 * @throws VERSION_MISMATCH when the snapshot holds another version of the projection that cannot be converted
 */
export async function restoreFromSnapshot(
  { kafka, pool }: { kafka: Log; pool: Pool },
  projection: PostgresProjection<unknown>,
  build: Build,
): Promise<void> {
  if (
    projection.isSnapshotted !== true ||
    (await storedCheckpoints(pool, ownerOf(build), projection.topic)).length > 0
  )
    return;
  const manifest = await newestSnapshot(kafka);
  if (manifest === null) return;
  const part = manifest.projections.find(({ name }) => name === projection.name);
  const conversion = part === undefined ? {} : conversionFrom(projection, part.version);
  const from = part?.next_offset ?? Math.min(...manifest.projections.map(({ next_offset: next }) => next));
  const log = await identifyLog(kafka, projection.topic);

  await inTransaction(pool, async (tx) => {
    const created = await createCheckpoints(tx, ownerOf(build), log, new Map([[0, from]]));
    // 0: another process was faster.
    if (created === 0 || part === undefined) return;
    const counts = await fill(tx, { kafka, manifest, build, conversion });
    for (const [table, expected] of Object.entries(part.counts)) {
      if (counts.get(table) !== expected && expected > 0) {
        throw new AppError(
          'MESSAGE_INVALID',
          `The snapshot holds ${counts.get(table) ?? 0} rows of ${projection.name}.${table}, not ${expected}`,
        );
      }
    }
  });
}

function conversionFrom(
  { name, version, fromSnapshot }: PostgresProjection<unknown>,
  snapshotted: number,
): SnapshotConversion {
  const conversion = snapshotted === version ? {} : fromSnapshot?.[snapshotted];
  if (conversion === undefined) {
    throw new AppError(
      'VERSION_MISMATCH',
      `The newest snapshot holds ${name} in version ${snapshotted}; this program writes version ${version} and cannot read it: run the release that took the snapshot, or a later one that can read it`,
    );
  }
  return conversion;
}

async function fill(
  tx: PoolClient,
  {
    kafka,
    manifest,
    build,
    conversion: { renamed, afterwards },
  }: { kafka: Log; manifest: SnapshotManifest; build: Build; conversion: SnapshotConversion },
): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>();
  // Rows refer to rows of other tables, which are inserted in the order of the tables' names.
  await tx.query('SET CONSTRAINTS ALL DEFERRED');
  for await (const message of snapshotMessages(kafka)) {
    const isOurs = message.id === manifest.id && message.type === 'snapshot.rows_written';
    if (!isOurs || message.projection !== build.projection) continue;
    const table = `${build.names['schema'] ?? ''}."${renamed?.[message.table] ?? message.table}"`;
    try {
      // A publish that was tried again may have left a message in the log twice.
      const { rowCount } = await tx.query(
        `INSERT INTO ${table} SELECT * FROM jsonb_populate_recordset(NULL::${table}, $1::jsonb) ON CONFLICT DO NOTHING`,
        [JSON.stringify(message.rows)],
      );
      counts.set(message.table, (counts.get(message.table) ?? 0) + (rowCount ?? 0));
    } catch (cause) {
      if (isStoreUnavailable(cause)) throw cause;
      const misfit = `Rows of the snapshot do not fit ${build.projection}.${message.table}`;
      throw new AppError('VERSION_MISMATCH', misfit, { cause });
    }
  }
  if (afterwards !== undefined) await tx.query(withNames(afterwards, build.names));
  return counts;
}

async function* snapshotMessages(kafka: Log): AsyncIterable<SnapshotMessage> {
  for (const { partition, low, high } of await kafka.offsets(topics.snapshots)) {
    for await (const { value } of kafka.readRange(topics.snapshots, partition, low, high)) {
      yield snapshotsMessage.parse(JSON.parse(value.toString('utf8')));
    }
  }
}
