import { z } from 'zod';

import type { Pool } from '../../../infra/postgres/client.ts';
import type { CommitmentStore } from '../commitments.ts';
import { anyRow, createStatements } from './sql.ts';

/** A version with fewer verified blocks is forgotten when these are reverted: a node may have made them up. */
const FEW_BLOCKS = 16;

const lowestRow = z.object({ height: z.number().nullable() });
const forgottenRow = z.object({ commitment: z.string(), version: z.string() });
const versionRow = z.object({ starknet_version: z.string() });

export function createCommitmentStore(pool: Pool): CommitmentStore {
  const { rows } = createStatements(pool);
  return {
    async verifiedVersions(commitment) {
      const sql = `SELECT starknet_version FROM tds.commitment_checks
        WHERE commitment = $1 AND outcome = 'verified' ORDER BY 1`;
      return (await rows(versionRow, sql, [commitment])).map((row) => row.starknet_version);
    },
    async versions() {
      const sql = 'SELECT DISTINCT starknet_version FROM tds.commitment_checks ORDER BY 1';
      return (await rows(versionRow, sql)).map((row) => row.starknet_version);
    },
    async lowest() {
      const sql = "SELECT min(from_height) AS height FROM tds.commitment_checks WHERE outcome = 'verified'";
      const [row] = await rows(lowestRow, sql);
      return row?.height ?? null;
    },
    async add(counts) {
      const sql = `INSERT INTO tds.commitment_checks AS stored
          (commitment, starknet_version, outcome, blocks, from_height, to_height)
        SELECT * FROM jsonb_to_recordset($1) AS
          counted (commitment text, version text, outcome text, blocks bigint, "from" bigint, "to" bigint)
        -- In one order, so that processes do not deadlock.
        ORDER BY 1, 2, 3
        ON CONFLICT (commitment, starknet_version, outcome) DO UPDATE SET
          blocks = stored.blocks + EXCLUDED.blocks, last_at = now(),
          from_height = least(stored.from_height, EXCLUDED.from_height),
          to_height = greatest(stored.to_height, EXCLUDED.to_height)`;
      await rows(anyRow, sql, [JSON.stringify(counts)]);
    },
    async forget(from) {
      const sql = `DELETE FROM tds.commitment_checks
        WHERE outcome = 'verified' AND blocks BETWEEN 1 AND ${FEW_BLOCKS - 1} AND from_height >= $1
        RETURNING commitment, starknet_version AS version`;
      return await rows(forgottenRow, sql, [from]);
    },
  };
}
