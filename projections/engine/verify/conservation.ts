import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { repeat } from '../../../infra/repeating.ts';
import { AppError } from '../../../schemas/errors.ts';
import { ACCOUNT_SLICES, tokenSums } from '../../account-ledger/queries.ts';
import { newestBlock } from '../../indexed-blocks/queries.ts';
import { servedBuilds } from '../../served.ts';
import { NAMED } from './difference.ts';

interface Deps {
  readonly pool: Pool;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  readonly signal: AbortSignal;
}

const POLL_MS = 5000;
/** Shortest pause, and the pause as a multiple of the time that the last look took: 2 % of one core. */
const PAUSE_SECONDS = 60;
const PAUSE_FACTOR = 50;

const dueRow = z.object({ is_due: z.boolean() });

/** Sums the balance changes of all tokens again and again, in one process at a time. */
export function startConservation({
  pool,
  clickhouse,
  log,
}: Omit<Deps, 'signal'> & { readonly log: Logger }): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const deps = { pool, clickhouse, signal: stopping.signal };
  const work = async (): Promise<void> => {
    try {
      const [row] = await sqlRows(
        pool,
        dueRow,
        `SELECT NOT EXISTS (SELECT FROM tds.conservation
           WHERE checked_at > now() - make_interval(secs => greatest($1, seconds * $2))) AS is_due`,
        [PAUSE_SECONDS, PAUSE_FACTOR],
      );
      if (row?.is_due !== true) return;
      const busy = (): string => 'Another process sums the balance changes';
      await withAdvisoryLocks(pool, ['tds.conservation'], busy, async () => await checkConservation(deps));
    } catch (error) {
      // Another process does it, a store is unavailable (which raises an alarm elsewhere), or no read model is built yet.
      log.debug({ err: error }, 'could not sum the balance changes');
    }
  };
  const looping = repeat(work, POLL_MS);
  return {
    async stop() {
      stopping.abort(new AppError('CONFLICT', 'Stopped'));
      await looping.close();
    },
  };
}

/** Sums the balance changes of each ERC-20 token up to the newest block, and keeps which sums are not zero. */
export async function checkConservation(deps: Deps): Promise<void> {
  const startedAt = performance.now();
  const newest = await newestBlock(deps.clickhouse, await servedBuilds(deps.pool));
  if (newest === null) return;
  const sums = await sumTokens(deps, newest.height);
  let nonzero = [...sums].filter(([, sum]) => sum !== 0n);
  if (nonzero.length > 0) {
    // A reorg between two slices also makes a sum differ from zero, but not twice.
    const again = await sumTokens(deps, newest.height);
    nonzero = nonzero.flatMap(([token]) => {
      const sum = again.get(token) ?? 0n;
      return sum === 0n ? [] : [[token, sum] as const];
    });
  }
  const named = nonzero.slice(0, NAMED).map(([token, sum]) => ({ token_address: token, sum: String(sum) }));
  await deps.pool.query(
    `INSERT INTO tds.conservation (seconds, to_height, tokens, nonzero) VALUES ($1, $2, $3, $4)
     ON CONFLICT (singleton) DO UPDATE SET checked_at = now(), seconds = excluded.seconds,
       to_height = excluded.to_height, tokens = excluded.tokens, nonzero = excluded.nonzero`,
    [(performance.now() - startedAt) / 1000, newest.height, sums.size, JSON.stringify(named)],
  );
}

/** The sums by token, in slices of accounts, so that no statement reads the whole ledger. */
async function sumTokens({ pool, clickhouse, signal }: Deps, to: number): Promise<Map<string, bigint>> {
  const served = await servedBuilds(pool);
  const sums = new Map<string, bigint>();
  for (let slice = 0; slice < ACCOUNT_SLICES; slice += 1) {
    signal.throwIfAborted();
    for (const { token, sum } of await tokenSums(clickhouse, served, { slice, to }))
      sums.set(token, BigInt.asIntN(256, (sums.get(token) ?? 0n) + sum));
  }
  return sums;
}
