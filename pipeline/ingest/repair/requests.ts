import { z } from 'zod';

import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { ContractFacts } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockPoint } from '../../node/types.ts';
import { REREAD_MS } from '../contracts/standards.ts';
import type { Standards } from '../contracts/standards.ts';

const ENQUEUE_AT_ONCE = 10_000;

/**
 * Asks for repairs of heights, each given once; one that is waiting already is only asked for more firmly.
 *
 * @param reread the blocks are taken from the node again, instead of from the log
 */
export async function requestRepairs(
  pool: Pool,
  heights: readonly number[],
  reason: string,
  { reread = false }: { reread?: boolean } = {},
): Promise<number> {
  let asked = 0;
  for (let from = 0; from < heights.length; from += ENQUEUE_AT_ONCE) {
    const rows = await sqlRows(
      pool,
      z.object({ id: z.int() }),
      `INSERT INTO tds.repairs (height, reason, reread) SELECT unnest($1::bigint[]), $2, $3
       ON CONFLICT (height) WHERE done_at IS NULL
       DO UPDATE SET round = tds.repairs.round + 1, reread = tds.repairs.reread OR excluded.reread,
         attempts = 0, next_try_at = now() RETURNING id`,
      [heights.slice(from, from + ENQUEUE_AT_ONCE), reason, reread],
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

/** How long writers are given to drop what they fetched ahead; one that is away will drop it when it starts. */
const REFRESH_MS = 15_000;
const REFRESH_POLL_MS = 250;

/**
 * Has every writer forget what it fetched ahead with the old answer: a repair at its cursor does that.
 */
async function refreshWriters(pool: Pool, sleep: ReclassifyDeps['sleep'], reason: string): Promise<void> {
  const open = await sqlRows(
    pool,
    z.object({ cursor: z.int() }),
    "SELECT cursor FROM tds.chunks WHERE status = 'open' AND cursor <= COALESCE(range_end, cursor)",
  );
  const cursors = open.map(({ cursor }) => cursor);
  await requestRepairs(pool, cursors, reason);
  for (let waited = 0; waited < REFRESH_MS; waited += REFRESH_POLL_MS) {
    const [left] = await sqlRows(
      pool,
      z.object({ pending: z.int() }),
      'SELECT count(*) AS pending FROM tds.repairs WHERE done_at IS NULL AND height = ANY($1)',
      [cursors],
    );
    if (left?.pending === 0) return;
    await sleep(REFRESH_POLL_MS);
  }
}

/**
 * Asks the chain again what a contract is, and for a repair of every block with an event of it. Every process uses the
 * new answer before the blocks are looked for, so a block that is published meanwhile needs no repair or is found - as far
 * as the projections have read the log: where they are far behind, it is to be done again when they are not.
 */
export async function reclassifyContract(
  { pool, standards, heightsOf, head, sleep }: ReclassifyDeps,
  contract: Felt,
): Promise<{ before: ContractFacts | null; after: ContractFacts; heights: number }> {
  const { before, after } = await standards.reclassify(contract, head);
  await sleep(REREAD_MS);
  await refreshWriters(pool, sleep, `reclassify ${contract}`);
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
