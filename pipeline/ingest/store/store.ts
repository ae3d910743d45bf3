import { z } from 'zod';

import { errorCode } from '../../../infra/error-code.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { contractsMap } from '../../../schemas/messages/chain-blocks.ts';
import { felt, height } from '../../../schemas/messages/common.ts';
import { leaseLost } from '../ports.ts';
import type { Chunk, IngestStore } from '../ports.ts';
import { createAlarmStore } from './alarms.ts';
import { createRecordedStore } from './recorded.ts';
import { createRepairStore } from './repairs.ts';
import { FENCE, anyRow, createStatements } from './sql.ts';
import type { Statements } from './sql.ts';

/** The ingester's state in PostgreSQL (infra/postgres/migrations/0010_ingest.sql). */
export function createIngestStore(pool: Pool): IngestStore {
  const statements = createStatements(pool);
  return {
    ...createChainStore(statements),
    ...createChunkStore(statements),
    ...createLeaseStore(statements),
    ...createRecordedStore(statements),
    ...createRepairStore(statements),
    ...createAlarmStore(statements),
  };
}

function createChainStore({ rows }: Statements) {
  return {
    async storeChainId(chainId) {
      await rows(anyRow, 'INSERT INTO tds.chain (chain_id) VALUES ($1) ON CONFLICT DO NOTHING', [chainId]);
      const [stored] = await rows(z.object({ chain_id: felt }), 'SELECT chain_id FROM tds.chain');
      return stored?.chain_id ?? chainId;
    },
    async announcedCapabilities() {
      const [row] = await rows(z.object({ announced: z.unknown() }), 'SELECT announced FROM tds.chain');
      return row?.announced ?? null;
    },
    async setAnnouncedCapabilities(capabilities) {
      await rows(anyRow, 'UPDATE tds.chain SET announced = $1', [JSON.stringify(capabilities)]);
    },
  } satisfies Partial<IngestStore>;
}

const chunkColumns = `name, range_start, range_end, cursor, final_height, final_hash, first_parent, status, opened, plan_to, plan_facts, updated_at,
   lease_until, CASE WHEN lease_until >= clock_timestamp() THEN holder END AS holder`;

const chunkRow = z
  .object({
    name: z.string(),
    range_start: height,
    range_end: height.nullable(),
    cursor: height,
    final_height: z.int().min(-1),
    final_hash: felt.nullable(),
    first_parent: felt.nullable(),
    status: z.enum(['open', 'finished']),
    opened: z.boolean(),
    plan_to: z.int(),
    plan_facts: contractsMap,
    updated_at: z.date(),
    lease_until: z.date().nullable(),
    holder: z.string().nullable(),
  })
  .transform((row): Chunk => ({
    name: row.name,
    start: row.range_start,
    end: row.range_end,
    cursor: row.cursor,
    finalHeight: row.final_height,
    finalHash: row.final_hash,
    firstParent: row.first_parent,
    finished: row.status === 'finished',
    opened: row.opened,
    plan: { to: row.plan_to, facts: row.plan_facts },
    updatedAt: row.updated_at.getTime(),
    lease:
      row.holder === null || row.lease_until === null
        ? null
        : { holder: row.holder, until: row.lease_until.getTime() },
  }));

/** unique_violation, exclusion_violation */
const OVERLAP_CODES: readonly (string | null)[] = ['23505', '23P01'];

function createChunkStore({ rows, fenced }: Statements) {
  return {
    chunks: () => rows(chunkRow, `SELECT ${chunkColumns} FROM tds.chunks ORDER BY range_start`),
    async createChunks(chunks) {
      try {
        await rows(
          anyRow,
          `INSERT INTO tds.chunks (name, range_start, range_end, final_hash, cursor, final_height)
           SELECT name, range_start, range_end, final_hash, range_start, range_start - 1
           FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[])
             AS given (name, range_start, range_end, final_hash)`,
          [
            chunks.map(({ name }) => name),
            chunks.map(({ start }) => start),
            chunks.map(({ end }) => end),
            chunks.map(({ finalHash }) => finalHash),
          ],
        );
        return true;
      } catch (error) {
        if (OVERLAP_CODES.includes(errorCode(error))) return false;
        throw error;
      }
    },
    async markOpened(name) {
      await rows(anyRow, 'UPDATE tds.chunks SET opened = true WHERE name = $1', [name]);
    },
    plan: (fence, { to, facts }) =>
      fenced(fence, `UPDATE tds.chunks SET plan_to = $4, plan_facts = $5, ${FENCE} RETURNING revision`, [
        to,
        JSON.stringify(facts),
      ]),
    moveCursor: (fence, { from, to, final, firstParent }) =>
      fenced(
        fence,
        `UPDATE tds.chunks
         SET cursor = $5, updated_at = now(),
             final_height = COALESCE($6::bigint, final_height), final_hash = COALESCE($7, final_hash),
             first_parent = CASE WHEN cursor = range_start THEN $8 ELSE first_parent END,
             ${FENCE} AND cursor = $4 RETURNING revision`,
        [from, to, final?.height ?? null, final?.hash ?? null, firstParent],
      ),
    finish: (fence) =>
      fenced(
        fence,
        `UPDATE tds.chunks SET status = 'finished', updated_at = now(), ${FENCE} AND cursor = range_end + 1
         RETURNING revision`,
      ),
  } satisfies Partial<IngestStore>;
}

const grantRow = z.object({ epoch: z.int(), seq_ceiling: z.int() });

function createLeaseStore({ rows, fenced, knownRevision }: Statements) {
  const chunk: IngestStore['chunk'] = async (fence) => {
    const [found] = await rows(
      chunkRow,
      `SELECT ${chunkColumns} FROM tds.chunks WHERE name = $1 AND epoch = $2 AND revision >= $3`,
      [fence.name, fence.epoch, knownRevision(fence)],
    );
    if (found === undefined) throw leaseLost(fence);
    return found;
  };
  return {
    chunk,
    async acquire({ name, holder, ttlMs, nowMs, reserve, takeOver = false }) {
      const [granted] = await rows(
        grantRow,
        `UPDATE tds.chunks
         SET holder = $2, epoch = GREATEST(epoch + 1, $4), lease_until = clock_timestamp() + $3 * interval '1 millisecond',
             seq_ceiling = GREATEST(seq_ceiling + 1, $4) + $5
         WHERE name = $1 AND ($6 OR holder IS NULL OR lease_until < clock_timestamp())
         RETURNING epoch, seq_ceiling`,
        [name, holder, ttlMs, nowMs, reserve, takeOver],
      );
      if (granted === undefined) return null;
      const { epoch, seq_ceiling: seqCeiling } = granted;
      return { chunk: await chunk({ name, epoch }), epoch, seq: seqCeiling - reserve, seqCeiling };
    },
    renew: (fence, ttlMs) =>
      fenced(
        fence,
        `UPDATE tds.chunks SET lease_until = clock_timestamp() + $4 * interval '1 millisecond', ${FENCE} RETURNING revision`,
        [ttlMs],
      ),
    async release({ name, epoch }) {
      await rows(
        anyRow,
        'UPDATE tds.chunks SET holder = NULL, lease_until = NULL WHERE name = $1 AND epoch = $2',
        [name, epoch],
      );
    },
    reserveSeq: (fence, ceiling) =>
      fenced(
        fence,
        `UPDATE tds.chunks SET seq_ceiling = GREATEST(seq_ceiling, $4), ${FENCE} RETURNING revision`,
        [ceiling],
      ),
  } satisfies Partial<IngestStore>;
}
