import { z } from 'zod';

import { contractsMap } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockBody } from '../../../schemas/messages/chain-blocks.ts';
import { height } from '../../../schemas/messages/common.ts';
import type { IngestStore } from '../ports.ts';
import { compressBody } from './recorded.ts';
import { LEASE } from './sql.ts';
import type { Statements } from './sql.ts';

/** Delay before a repair is attempted again: the base, doubled by each attempt. */
export const REPAIR_BACKOFF = { baseMs: 2000, maxMs: 120_000 };

const repairRow = z.object({
  id: z.int(),
  height,
  round: z.int(),
  reread: z.boolean(),
  replacesOrphan: z.boolean(),
});

const compressIfAny = async (body: BlockBody | undefined): Promise<Buffer | null> =>
  body === undefined ? null : await compressBody(body);

/**
 * Statements for repairs; a fenced one changes nothing once the lease of the chunk is lost. A repair's `round` counts its
 * requests, `reread` asks to read the block from the node again, and `maps` are the contract classifications that it has
 * planned to publish the block with.
 */
export function createRepairStore({ rows, fenced }: Statements) {
  return {
    pendingRepairs: ({ start, end }, limit) =>
      rows(
        repairRow,
        `SELECT id, height, round, reread, replaces_orphan AS "replacesOrphan" FROM tds.repairs
         WHERE done_at IS NULL AND next_try_at <= now() AND height >= $1 AND ($2::bigint IS NULL OR height <= $2)
         ORDER BY next_try_at, id LIMIT $3`,
        [start, end, limit],
      ),
    async finishedChunksToRepair() {
      const found = await rows(
        z.object({ name: z.string() }),
        `SELECT name FROM tds.chunks WHERE status = 'finished' AND EXISTS (
           SELECT 1 FROM tds.repairs
           WHERE done_at IS NULL AND next_try_at <= now() AND height BETWEEN range_start AND range_end)`,
      );
      return found.map(({ name }) => name);
    },
    postponeRepair: (fence, { id, round }) =>
      fenced(
        fence,
        `WITH ${LEASE}, postponed AS (
           UPDATE tds.repairs SET attempts = attempts + 1,
             next_try_at = now() + least($6::float8, $7::float8 * 2 ^ least(attempts, 16)) * interval '1 millisecond'
           WHERE id = $4 AND round = $5 AND EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
        [id, round, REPAIR_BACKOFF.maxMs, REPAIR_BACKOFF.baseMs],
      ),
    async repairMaps(atHeight) {
      const found = await rows(
        z.object({ map: contractsMap }),
        `SELECT map FROM tds.repairs, jsonb_array_elements(maps) WITH ORDINALITY AS item (map, ordinal)
         WHERE height = $1 ORDER BY id, ordinal`,
        [atHeight],
      );
      return found.map(({ map }) => map);
    },
    planRepair: async (fence, repair, map, body) =>
      await fenced(
        fence,
        `WITH ${LEASE}, planned AS (
           UPDATE tds.repairs SET maps = maps || jsonb_build_array($5::jsonb)
           WHERE id = $4 AND EXISTS (SELECT 1 FROM lease)),
         recorded AS (
           UPDATE tds.recorded_blocks SET maps = maps || jsonb_build_array($5::jsonb),
             rereads = CASE WHEN $7::bytea IS NULL OR $7 = ANY(body || rereads) THEN rereads ELSE rereads || $7 END
           WHERE chunk = $1 AND height = $6 AND EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
        [repair.id, JSON.stringify(map), repair.height, await compressIfAny(body)],
      ),
    finishRepair: async (fence, { id, height: at, round }, map, body) =>
      await fenced(
        fence,
        `WITH ${LEASE}, done AS (
           UPDATE tds.repairs SET done_at = now() WHERE id = $4 AND round = $7 AND EXISTS (SELECT 1 FROM lease)),
         recorded AS (
           UPDATE tds.recorded_blocks SET maps = jsonb_build_array($5::jsonb), body = coalesce($8, body), rereads = '{}'
           WHERE chunk = $1 AND height = $6 AND $5::jsonb IS NOT NULL AND EXISTS (SELECT 1 FROM lease))
         SELECT revision FROM lease`,
        [id, map === null ? null : JSON.stringify(map), at, round, await compressIfAny(body)],
      ),
  } satisfies Partial<IngestStore>;
}
