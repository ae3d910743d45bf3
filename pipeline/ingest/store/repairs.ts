import { z } from 'zod';

import { contractsMap } from '../../../schemas/messages/chain-blocks.ts';
import { height } from '../../../schemas/messages/common.ts';
import type { IngestStore } from '../ports.ts';
import { compressBody } from './recorded.ts';
import type { Statements } from './sql.ts';

type RepairStore = Pick<
  IngestStore,
  | 'pendingRepairs'
  | 'postponeRepair'
  | 'repairMaps'
  | 'planRepair'
  | 'finishRepair'
  | 'raiseAlarm'
  | 'clearAlarm'
>;

/** Pauses between tries of a repair that cannot be done: this, then twice as long each time. */
export const BASE_PAUSE_MS = 2000;
export const MAX_PAUSE_MS = 120_000;

const held = 'held AS (SELECT 1 FROM tds.chunks WHERE name = $1 AND epoch = $2 FOR NO KEY UPDATE)';

/** Repairs that were asked for, and alarms. */
export function createRepairStore({ rows, fenced }: Statements): RepairStore {
  return {
    pendingRepairs: ({ start, end }, limit) =>
      rows(
        z.object({ id: z.int(), height, round: z.int(), reread: z.boolean() }),
        `SELECT id, height, round, reread FROM tds.repairs
         WHERE done_at IS NULL AND next_try_at <= now() AND height >= $1 AND ($2::bigint IS NULL OR height <= $2)
         ORDER BY next_try_at, id LIMIT $3`,
        [start, end, limit],
      ),
    postponeRepair: (fence, repair) =>
      fenced(
        fence,
        `WITH ${held}, later AS (
           UPDATE tds.repairs SET attempts = attempts + 1,
             next_try_at = now() + least($5::float8, $6::float8 * 2 ^ least(attempts, 16)) * interval '1 millisecond'
           WHERE id = $3 AND round = $4 AND EXISTS (SELECT 1 FROM held))
         SELECT count(*) AS held FROM held`,
        [repair.id, repair.round, MAX_PAUSE_MS, BASE_PAUSE_MS],
      ),
    async repairMaps(atHeight) {
      const found = await rows(
        z.object({ map: contractsMap }),
        `SELECT map FROM tds.repairs, jsonb_array_elements(maps) WITH ORDINALITY AS item (map, place)
         WHERE height = $1 ORDER BY id, place`,
        [atHeight],
      );
      return found.map(({ map }) => map);
    },
    planRepair: async (fence, repair, map, body) =>
      await fenced(
        fence,
        `WITH ${held}, planned AS (
           UPDATE tds.repairs SET maps = maps || jsonb_build_array($4::jsonb)
           WHERE id = $3 AND EXISTS (SELECT 1 FROM held)),
         known AS (
           UPDATE tds.recorded_blocks SET maps = maps || jsonb_build_array($4::jsonb),
             rereads = CASE WHEN $6::bytea IS NULL OR $6 = ANY(body || rereads) THEN rereads ELSE rereads || $6 END
           WHERE chunk = $1 AND height = $5 AND EXISTS (SELECT 1 FROM held))
         SELECT count(*) AS held FROM held`,
        [repair.id, JSON.stringify(map), repair.height, body === undefined ? null : await compressBody(body)],
      ),
    finishRepair: async (fence, repair, map, body) =>
      await fenced(
        fence,
        `WITH ${held}, done AS (
           UPDATE tds.repairs SET done_at = now() WHERE id = $3 AND round = $6 AND EXISTS (SELECT 1 FROM held)),
         known AS (
           UPDATE tds.recorded_blocks SET maps = jsonb_build_array($4::jsonb), body = coalesce($7, body), rereads = '{}'
           WHERE chunk = $1 AND height = $5 AND $4::jsonb IS NOT NULL AND EXISTS (SELECT 1 FROM held))
         SELECT count(*) AS held FROM held`,
        [
          repair.id,
          map === null ? null : JSON.stringify(map),
          repair.height,
          repair.round,
          body === undefined ? null : await compressBody(body),
        ],
      ),
    async raiseAlarm(name, detail, fence) {
      const insert = 'INSERT INTO tds.alarms (name, detail)';
      const renew =
        'ON CONFLICT (name) DO UPDATE SET detail = EXCLUDED.detail WHERE tds.alarms.detail <> EXCLUDED.detail';
      if (fence === undefined) await rows(z.unknown(), `${insert} VALUES ($1, $2) ${renew}`, [name, detail]);
      else {
        const values = [fence.name, fence.epoch, name, detail];
        await rows(z.unknown(), `WITH ${held} ${insert} SELECT $3, $4 FROM held ${renew}`, values);
      }
    },
    async clearAlarm(name, fence) {
      if (fence === undefined) await rows(z.unknown(), 'DELETE FROM tds.alarms WHERE name = $1', [name]);
      else {
        const remove = 'DELETE FROM tds.alarms WHERE name = $3 AND EXISTS (SELECT 1 FROM held)';
        await rows(z.unknown(), `WITH ${held} ${remove}`, [fence.name, fence.epoch, name]);
      }
    },
  };
}
