import { z } from 'zod';

import { countOf, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { pollUntil } from '../../../infra/retry.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { ContractFacts } from '../../../schemas/messages/chain-blocks.ts';
import type { BlockPoint } from '../../node/types.ts';
import { STANDARDS_TTL_MS } from '../contracts/standards.ts';
import type { Standards } from '../ports.ts';

const HEIGHTS_PER_STATEMENT = 10_000;

/** Begins the reason of the repairs that classify a contract again, followed by its address. */
export const RECLASSIFY = 'reclassify ';

/**
 * Requests repairs of distinct heights; a repeated request for a pending repair makes it due at once, and adds its reason.
 *
 * @param options.reread fetch the blocks from the node again, instead of reading them from the log
 * @param options.replacesOrphan publish the blocks as those of a reorg, of which webhooks are notified
 */
export async function requestRepairs(
  pool: Pool,
  heights: readonly number[],
  reason: string,
  { reread = false, replacesOrphan = false }: { reread?: boolean; replacesOrphan?: boolean } = {},
): Promise<number> {
  let requested = 0;
  for (let from = 0; from < heights.length; from += HEIGHTS_PER_STATEMENT) {
    const rows = await sqlRows(
      pool,
      z.object({ id: z.int() }),
      `INSERT INTO tds.repairs (height, reason, reread, replaces_orphan) SELECT unnest($1::bigint[]), $2, $3, $4
       ON CONFLICT (height) WHERE done_at IS NULL
       DO UPDATE SET round = tds.repairs.round + 1, reread = tds.repairs.reread OR excluded.reread,
         replaces_orphan = tds.repairs.replaces_orphan OR excluded.replaces_orphan,
         reason = CASE WHEN strpos(tds.repairs.reason, excluded.reason) > 0 THEN tds.repairs.reason
           ELSE tds.repairs.reason || ', ' || excluded.reason END,
         attempts = 0, next_try_at = now() RETURNING id`,
      [heights.slice(from, from + HEIGHTS_PER_STATEMENT), reason, reread, replacesOrphan],
    );
    requested += rows.length;
  }
  return requested;
}

export interface ReclassifyDeps {
  readonly pool: Pool;
  readonly standards: Pick<Standards, 'reclassify'>;
  /** Heights where the projections have a transfer or a quarantined event of the contract. */
  readonly heightsOf: (contract: Felt) => Promise<number[]>;
  readonly head: BlockPoint;
}

/**
 * Classifies a contract again, and requests a repair of every block with an event of it. Every process uses the new answer
 * before the heights are looked up, so a block published meanwhile either has it or is found. Blocks that lagging
 * projections have not read yet are missed: then run it again once they have caught up.
 */
export async function reclassifyContract(
  { pool, standards, heightsOf, head }: ReclassifyDeps,
  contract: Felt,
): Promise<{ before: ContractFacts | null; after: ContractFacts; heights: number }> {
  const reason = `${RECLASSIFY}${contract}`;
  const { before, after } = await standards.reclassify(contract, head);
  await sleep(STANDARDS_TTL_MS);
  await refreshWriters(pool, contract);
  const recorded = await sqlRows(
    pool,
    z.object({ height: z.int() }),
    'SELECT DISTINCT height FROM tds.recorded_blocks, jsonb_array_elements(maps) AS map WHERE map ? $1',
    [contract],
  );
  const projected = await heightsOf(contract);
  const heights = [...new Set([...projected, ...recorded.map(({ height }) => height)])];
  return {
    before,
    after,
    heights: await requestRepairs(
      pool,
      heights.toSorted((a, b) => a - b),
      reason,
    ),
  };
}

/** Time for writers to drop prefetched blocks; a stopped writer has none. */
const REFRESH_MS = 15_000;
const POLL_MS = 250;

/**
 * Makes every writer drop blocks prefetched with the previous answer: a repair at its cursor has that effect. A chunk that no
 * process writes yet has none, so its repair, which may wait for long, is not one of those that complete the ledger.
 */
async function refreshWriters(pool: Pool, contract: Felt): Promise<void> {
  const open = await sqlRows(
    pool,
    z.object({ cursor: z.int() }),
    "SELECT cursor FROM tds.chunks WHERE status = 'open' AND cursor <= COALESCE(range_end, cursor)",
  );
  const cursors = open.map(({ cursor }) => cursor);
  await requestRepairs(pool, cursors, `new standard of ${contract}`);
  await waitForRepairs(pool, cursors, { withinMs: REFRESH_MS });
}

/** Waits until the ingester has repaired these blocks, or for this time. Returns how many are left. */
export async function waitForRepairs(
  db: Sql,
  heights: readonly number[],
  options: { readonly withinMs: number; readonly signal?: AbortSignal },
): Promise<number> {
  return await pollUntil(
    () => countUnrepaired(db, heights),
    (left) => left === 0,
    { everyMs: POLL_MS, ...options },
  );
}

async function countUnrepaired(db: Sql, heights: readonly number[]): Promise<number> {
  const waiting = 'SELECT count(*) AS n FROM tds.repairs WHERE done_at IS NULL AND height = ANY($1)';
  return await countOf(db, waiting, [heights]);
}
