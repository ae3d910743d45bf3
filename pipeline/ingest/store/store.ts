import { z } from 'zod';

import type { Pool } from '../../../infra/postgres/client.ts';
import { felt } from '../../../schemas/messages/common.ts';
import type { IngestStore } from '../ports.ts';
import { createRecordedStore } from './recorded.ts';
import { createRepairStore } from './repairs.ts';
import { chunkColumns, chunkRow, createStatements, leaseLost, sqlState } from './sql.ts';
import type { Statements } from './sql.ts';

/** The ingester's state in Postgres (migrations/0010_ingest.sql). */
export function createIngestStore(pool: Pool): IngestStore {
  const statements = createStatements(pool);
  return {
    ...createChunkStore(statements),
    ...createRecordedStore(statements),
    ...createRepairStore(statements),
  };
}

type ChunkStore = Pick<
  IngestStore,
  | 'storeChainId'
  | 'announcedCapabilities'
  | 'setAnnouncedCapabilities'
  | 'chunks'
  | 'createChunks'
  | 'markOpened'
  | 'acquire'
  | 'renew'
  | 'release'
  | 'reserveSeq'
  | 'chunk'
  | 'plan'
  | 'moveCursor'
  | 'finish'
>;

const nothing = z.unknown();
const grantRow = z.object({ epoch: z.int(), seq_ceiling: z.int() });

/** The chain's identity, chunks, leases and cursors. */
export function createChunkStore({ rows, fenced }: Statements): ChunkStore {
  return {
    async storeChainId(chainId) {
      await rows(nothing, 'INSERT INTO tds.chain (chain_id) VALUES ($1) ON CONFLICT DO NOTHING', [chainId]);
      const [kept] = await rows(z.object({ chain_id: felt }), 'SELECT chain_id FROM tds.chain');
      return kept?.chain_id ?? chainId;
    },
    async announcedCapabilities() {
      const [row] = await rows(z.object({ announced: z.unknown() }), 'SELECT announced FROM tds.chain');
      return row?.announced ?? null;
    },
    async setAnnouncedCapabilities(what) {
      await rows(nothing, 'UPDATE tds.chain SET announced = $1', [JSON.stringify(what)]);
    },

    chunks: () => rows(chunkRow, `SELECT ${chunkColumns} FROM tds.chunks ORDER BY range_start`),
    async createChunks(chunks) {
      const columns = [
        chunks.map(({ name }) => name),
        chunks.map(({ start }) => start),
        chunks.map(({ end }) => end),
        chunks.map(({ finalHash }) => finalHash),
      ];
      try {
        await rows(
          nothing,
          `INSERT INTO tds.chunks (name, range_start, range_end, final_hash, cursor, final_height)
           SELECT name, range_start, range_end, final_hash, range_start, range_start - 1
           FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
             AS given (name, range_start, range_end, final_hash)`,
          columns,
        );
        return true;
      } catch (error) {
        // unique_violation, exclusion_violation
        if (['23505', '23P01'].includes(sqlState(error) ?? '')) return false;
        throw error;
      }
    },
    async markOpened(name) {
      await rows(nothing, 'UPDATE tds.chunks SET opened = true WHERE name = $1', [name]);
    },

    async acquire({ name, holder, ttlMs, nowMs, reserve }) {
      const [granted] = await rows(
        grantRow,
        `UPDATE tds.chunks
         SET holder = $2, epoch = epoch + 1, lease_until = clock_timestamp() + $3 * interval '1 millisecond',
             seq_ceiling = GREATEST(seq_ceiling + 1, $4) + $5
         WHERE name = $1 AND (holder IS NULL OR lease_until < clock_timestamp())
         RETURNING epoch, seq_ceiling`,
        [name, holder, ttlMs, nowMs, reserve],
      );
      if (granted === undefined) return null;
      const fence = { name, epoch: granted.epoch };
      return {
        chunk: await this.chunk(fence),
        epoch: granted.epoch,
        seq: granted.seq_ceiling - reserve,
        seqCeiling: granted.seq_ceiling,
      };
    },
    renew: (fence, ttlMs) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks SET lease_until = clock_timestamp() + $3 * interval '1 millisecond'
           WHERE name = $1 AND epoch = $2 RETURNING 1)
         SELECT count(*) AS held FROM held`,
        [ttlMs],
      ),
    async release(fence) {
      await rows(
        nothing,
        'UPDATE tds.chunks SET holder = NULL, lease_until = NULL WHERE name = $1 AND epoch = $2',
        [fence.name, fence.epoch],
      );
    },
    reserveSeq: (fence, ceiling) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks SET seq_ceiling = GREATEST(seq_ceiling, $3)
           WHERE name = $1 AND epoch = $2 RETURNING 1)
         SELECT count(*) AS held FROM held`,
        [ceiling],
      ),

    async chunk(fence) {
      const [found] = await rows(
        chunkRow,
        `SELECT ${chunkColumns} FROM tds.chunks WHERE name = $1 AND epoch = $2`,
        [fence.name, fence.epoch],
      );
      if (found === undefined) throw leaseLost(fence);
      return found;
    },
    plan: (fence, { to, facts }) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks SET plan_to = $3, plan_facts = $4 WHERE name = $1 AND epoch = $2 RETURNING 1)
         SELECT count(*) AS held FROM held`,
        [to, JSON.stringify(facts)],
      ),
    moveCursor: (fence, { from, to, final, firstParent }) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks
           SET cursor = $4, updated_at = now(),
               final_height = COALESCE($5::bigint, final_height), final_hash = COALESCE($6, final_hash),
               first_parent = CASE WHEN cursor = range_start THEN $7 ELSE first_parent END
           WHERE name = $1 AND epoch = $2 AND cursor = $3 RETURNING 1)
         SELECT count(*) AS held FROM held`,
        [from, to, final?.height ?? null, final?.hash ?? null, firstParent],
      ),
    finish: (fence) =>
      fenced(
        fence,
        `WITH held AS (
           UPDATE tds.chunks SET status = 'finished', updated_at = now()
           WHERE name = $1 AND epoch = $2 AND cursor = range_end + 1 RETURNING 1)
         SELECT count(*) AS held FROM held`,
      ),
  };
}
