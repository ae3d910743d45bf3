import { z } from 'zod';

import { sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ContractFacts } from '../../schemas/messages/chain-blocks.ts';
import type { BlockPoint } from '../node/types.ts';
import { REREAD_MS } from './standards.ts';
import type { Standards } from './standards.ts';

const ENQUEUE_AT_ONCE = 10_000;

/** Asks for repairs of heights, each given once; one that is waiting already is only asked for more firmly. */
export async function requestRepairs(
  pool: Pool,
  heights: readonly number[],
  reason: string,
): Promise<number> {
  let asked = 0;
  for (let from = 0; from < heights.length; from += ENQUEUE_AT_ONCE) {
    const rows = await sqlRows(
      pool,
      z.object({ id: z.int() }),
      `INSERT INTO tds.repairs (height, reason) SELECT unnest($1::bigint[]), $2
       ON CONFLICT (height) WHERE done_at IS NULL DO UPDATE SET round = tds.repairs.round + 1 RETURNING id`,
      [heights.slice(from, from + ENQUEUE_AT_ONCE), reason],
    );
    asked += rows.length;
  }
  return asked;
}

export interface ReclassifyDeps {
  readonly pool: Pool;
  readonly standards: Pick<Standards, 'reclassify'>;
  /** Every height where the contract has a transfer or a quarantined event, as the projections know it. */
  readonly heightsOf: (contract: Felt) => Promise<number[]>;
  readonly head: BlockPoint;
  readonly sleep: (ms: number) => Promise<void>;
}

/**
 * Asks the chain again what a contract is, and for a repair of every block with an event of it. Every process uses the
 * new answer before the blocks are looked for, so a block that is published meanwhile needs no repair or is found.
 */
export async function reclassifyContract(
  { pool, standards, heightsOf, head, sleep }: ReclassifyDeps,
  contract: Felt,
): Promise<{ before: ContractFacts | null; after: ContractFacts; heights: number }> {
  const { before, after } = await standards.reclassify(contract, head);
  await sleep(REREAD_MS);
  const recorded = await sqlRows(
    pool,
    z.object({ height: z.int() }),
    `SELECT DISTINCT height FROM tds.recorded_blocks, jsonb_array_elements(maps) AS map WHERE map ? $1`,
    [contract],
  );
  const known = await heightsOf(contract);
  const heights = [...new Set([...known, ...recorded.map(({ height }) => height)])].toSorted((a, b) => a - b);
  return { before, after, heights: await requestRepairs(pool, heights, `reclassify ${contract}`) };
}
