import { z } from 'zod';

import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import type { ChainStatusRow } from '../../../projections/chain-status/queries.ts';
import { quarantineCounts } from '../../../projections/quarantine/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { serviceHealth } from '../../health/service-health.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Kafka } from '../../kafka/client.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';

/** What the operations of admins read and reach; the users of PostgreSQL and ClickHouse only read. */
export interface OperatorStores {
  readonly pool: Sql;
  readonly clickhouse: ClickHouse;
  readonly kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>;
  readonly stallSeconds: number;
}

const chunkRow = z.object({
  name: z.string(),
  range_start: z.number(),
  /** null: open-ended, the chunk at the head. */
  range_end: z.number().nullable(),
  /** The next height. */
  cursor: z.number(),
  /** Highest height accepted on L1; below the start: none. */
  final_height: z.number(),
  status: z.enum(['open', 'finished']),
  /** The process that holds the lease. */
  writer: z.string().nullable(),
  updated_at: z.date(),
});
export type ChunkProgress = z.infer<typeof chunkRow>;

/** The chunks that the ingester writes, lowest first. */
export async function chunkMap(db: Sql): Promise<ChunkProgress[]> {
  return await sqlRows(
    db,
    chunkRow,
    `SELECT ${Object.keys(chunkRow.shape).join(', ')} FROM tds.chunk_map ORDER BY range_start`,
  );
}

/** The highest height in the log; null before the first block. */
export function logHeight(chunks: readonly ChunkProgress[]): number | null {
  const written = chunks.filter(({ cursor, range_start: start }) => cursor > start);
  return written.length === 0 ? null : Math.max(...written.map(({ cursor }) => cursor - 1));
}

/**
 * The newest height of the node. The ingester announces it through the log; while the projections are stopped, the log
 * is ahead of the announcements that they have read.
 */
export function headHeight(
  { head_height: announced }: Pick<ChainStatusRow, 'head_height'>,
  chunks: readonly ChunkProgress[],
): number | null {
  const known = [announced, logHeight(chunks)].filter((height) => height !== null);
  return known.length === 0 ? null : Math.max(...known);
}

/**
 * Whole seconds since the newest block of the node was first seen; null before the first, and while the log is ahead of what
 * is known of it. A restart of the ingester counts as seeing it for the first time.
 */
export function headAgeSeconds(
  { chain, head }: { readonly chain: ChainStatusRow; readonly head: number | null },
  now: number,
): number | null {
  if (chain.head_seen_at === null || chain.head_height !== head) return null;
  return Math.max(0, Math.floor((now - chain.head_seen_at) / 1000));
}

export type PipelineStatus = Awaited<ReturnType<typeof readPipelineStatus>>;

/** What `tds status` and the API's admins are shown of the pipeline; the read-only role of the API may read it. */
export async function readPipelineStatus(
  db: Sql,
  kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>,
  stallSeconds: number,
) {
  const served = await servedBuilds(db);
  const [chain, chunks, health, quarantine] = await Promise.all([
    chainStatusRow(db, served.schema('chain-status')),
    chunkMap(db),
    serviceHealth(db, kafka, stallSeconds),
    quarantineCounts(db, served.schema('quarantine')),
  ]);
  return { ...health, chain, chunks, quarantine, head: headHeight(chain, chunks) };
}
