import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import type { Kafka, Publisher } from '../../../infra/kafka/client.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { SnapshotManifest, SnapshotMessage } from '../../../schemas/messages/snapshots.ts';
import { topics } from '../../../schemas/topics.ts';
import type { PostgresProjection } from '../../define.ts';
import { withRebuildLock, servedBuild } from '../builds.ts';
import type { StoredBuild } from '../builds.ts';
import { identifyLog, storedCheckpoints } from '../../../infra/kafka/checkpoints.ts';
import { loadCheckpoints, ownerOf } from '../checkpoints.ts';

export interface SnapshotReport {
  readonly projections: SnapshotManifest['projections'];
  /** The first offset of `commands` that is kept, and the number of deleted messages. */
  readonly from: number;
  readonly deleted: number;
}

/** Characters of the rows in one message, unless a single row is larger. */
const MESSAGE_CHARACTERS = 500_000;
const ROWS_AT_ONCE = 200;
const PARTITION = 0;

const rowText = z.object({ row: z.string() });
const rowShape = z.record(z.string(), z.unknown());
const tableName = z.object({ name: z.string() });

/**
 * Writes the tables of these projections to the log, each as of its checkpoint, then deletes the messages below the
 * lowest of these offsets: what users deleted is no longer in the log. A rebuild begins from the snapshot. Messages that
 * arrive meanwhile have higher offsets, and stay. A process killed at any point has deleted nothing that the log does not
 * hold otherwise.
 *
 * @throws VERSION_MISMATCH when one of them is served in another version, CONFLICT while one is rebuilt
 *
 * @param projections all projections of `commands`
 * @param now unix milliseconds
 */
export async function takeSnapshot(
  { kafka, pool, now }: { kafka: Kafka; pool: Pool; now: () => number },
  projections: readonly PostgresProjection<unknown>[],
): Promise<SnapshotReport> {
  const names = projections.map(({ name }) => name);
  return await withRebuildLock(pool, names, async (assertHeld) => {
    const identity = await identifyLog(kafka, topics.commands);
    const builds: StoredBuild[] = [];
    for (const projection of projections) {
      const build = await servedBuild(pool, projection);
      if (build === null || build.version !== projection.version) {
        throw new AppError(
          'VERSION_MISMATCH',
          `${projection.name} is not served in version ${projection.version}, which this program writes: run \`tds rebuild ${projection.name}\` first`,
        );
      }
      await loadCheckpoints(pool, kafka, identity, build);
      builds.push(build);
    }
    const publisher = kafka.publisher();
    try {
      const { manifest, firstOffset } = await writeSnapshot(pool, publisher, builds, now, assertHeld);
      const from = Math.min(...manifest.projections.map(({ next_offset: next }) => next));
      const [before] = await kafka.offsets(topics.commands);
      await assertHeld();
      await kafka.deleteBefore(topics.commands, PARTITION, from);
      // Earlier snapshots contain rows that were deleted since.
      await kafka.deleteBefore(topics.snapshots, PARTITION, firstOffset);
      return { projections: manifest.projections, from, deleted: Math.max(0, from - (before?.low ?? 0)) };
    } finally {
      await publisher.close();
    }
  });
}

/** One transaction reads all tables and checkpoints as of one moment. The closing message makes the snapshot complete. */
async function writeSnapshot(
  pool: Pool,
  publisher: Publisher,
  builds: readonly StoredBuild[],
  now: () => number,
  assertHeld: () => Promise<void>,
): Promise<{ manifest: SnapshotManifest; firstOffset: number }> {
  const id = randomUUID();
  let firstOffset: number | null = null;
  const publish = async (value: SnapshotMessage): Promise<void> => {
    const [place] = await publisher.publish(topics.snapshots, [{ value }]);
    firstOffset ??= place?.offset ?? 0;
  };
  const client = await pool.connect();
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
    const projections: SnapshotManifest['projections'] = [];
    for (const build of builds) {
      const [checkpoint] = await storedCheckpoints(client, ownerOf(build), topics.commands);
      const schema = build.names['schema'] ?? '';
      const counts: Record<string, number> = {};
      const tables = await sqlRows(
        client,
        tableName,
        'SELECT table_name AS name FROM information_schema.tables WHERE table_schema = $1 ORDER BY 1',
        [schema],
      );
      for (const { name: table } of tables) {
        counts[table] = 0;
        for await (const rows of rowsOf(client, `${schema}."${table}"`)) {
          counts[table] += rows.length;
          await publish({
            type: 'snapshot.rows_written',
            v: 1,
            id,
            projection: build.projection,
            table,
            rows,
          });
        }
      }
      const { projection: name, version } = build;
      projections.push({ name, version, next_offset: checkpoint?.nextOffset ?? 0, counts });
    }
    await client.query('COMMIT');
    const manifest: SnapshotManifest = { type: 'snapshot.closed', v: 1, id, closed_at: now(), projections };
    await assertHeld();
    await publish(manifest);
    return { manifest, firstOffset: firstOffset ?? 0 };
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    throw error;
  } finally {
    client.release();
  }
}

/** The rows of a table, in portions of one message. */
async function* rowsOf(client: PoolClient, table: string): AsyncIterable<Record<string, unknown>[]> {
  await client.query(
    `DECLARE snapshot_rows NO SCROLL CURSOR FOR SELECT to_jsonb(t)::text AS row FROM ${table} AS t`,
  );
  let batch: Record<string, unknown>[] = [];
  let characters = 0;
  for (;;) {
    const fetched = await sqlRows(client, rowText, `FETCH ${ROWS_AT_ONCE} FROM snapshot_rows`);
    if (fetched.length === 0) break;
    for (const { row } of fetched) {
      if (batch.length > 0 && characters + row.length > MESSAGE_CHARACTERS) {
        yield batch;
        [batch, characters] = [[], 0];
      }
      batch.push(rowShape.parse(JSON.parse(row)));
      characters += row.length;
    }
  }
  if (batch.length > 0) yield batch;
  await client.query('CLOSE snapshot_rows');
}
