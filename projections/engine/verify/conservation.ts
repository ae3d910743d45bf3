import { z } from 'zod';

import type { RowReader } from '../../../infra/clickhouse/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, Sql } from '../../../infra/postgres/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { startLoop, withRest } from '../../../infra/loop.ts';
import { AppError } from '../../../schemas/errors.ts';
import { accountSlices, tokenSums } from '../../account-ledger/queries.ts';
import { newestBlock } from '../../indexed-blocks/queries.ts';
import { servedBuilds } from '../../served.ts';
import { NAMED } from './difference.ts';

interface Deps {
  readonly pool: Pool;
  readonly clickhouse: RowReader;
  readonly signal: AbortSignal;
}

const POLL_MS = 5000;
/** Shortest pause, and the pause as a multiple of the time that the last check took: 2 % of one core. */
const PAUSE_SECONDS = 60;
const PAUSE_FACTOR = 50;

/** Between two sums of a token: what is being written during the first is written before the second. */
const BETWEEN_SUMS_MS = 5000;

const dueRow = z.object({ is_due: z.boolean() });

async function isDue(db: Sql): Promise<boolean> {
  const [row] = await sqlRows(
    db,
    dueRow,
    `SELECT NOT EXISTS (SELECT FROM tds.conservation
       WHERE checked_at > now() - make_interval(secs => greatest($1, seconds * $2))) AS is_due`,
    [PAUSE_SECONDS, PAUSE_FACTOR],
  );
  return row?.is_due === true;
}

/** Sums the balance changes of all tokens again and again, in one process at a time. */
export function startConservation({
  pool,
  clickhouse,
  log,
}: Omit<Deps, 'signal'> & { readonly log: Logger }): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const deps = { pool, clickhouse, signal: stopping.signal };
  /** After a failure, as long as after a check that took as much time. */
  let restsUntil = 0;
  const work = async (): Promise<void> => {
    if (performance.now() < restsUntil || !(await isDue(pool))) return;
    const busy = (): string => 'Another process sums the balance changes';
    await withAdvisoryLocks(pool, ['tds.conservation'], busy, async () => {
      // Another process may have done it since.
      if (await isDue(pool)) await checkConservation(deps);
    });
  };
  const attempt = async (): Promise<void> => {
    const startedAt = performance.now();
    try {
      await work();
    } catch (error) {
      const now = performance.now();
      restsUntil = now + Math.max(1000 * PAUSE_SECONDS, PAUSE_FACTOR * (now - startedAt));
      if (stopping.signal.aborted || (error instanceof AppError && error.code === 'CONFLICT')) return;
      log.warn({ err: error }, 'could not sum the balance changes');
    }
  };
  const looping = startLoop({ round: withRest(attempt, POLL_MS) });
  return {
    async stop() {
      stopping.abort(new AppError('CONFLICT', 'Stopped'));
      await looping.stop();
    },
  };
}

/**
 * Sums the balance changes of each ERC-20 token up to the newest block, and stores which sums are not zero. Each of those is
 * computed twice and stored only if both agree: a backfill, a repair or a reorg may be writing changes meanwhile.
 */
export async function checkConservation(deps: Deps, betweenSumsMs = BETWEEN_SUMS_MS): Promise<void> {
  const startedAt = performance.now();
  const newest = await newestBlock(deps.clickhouse, await servedBuilds(deps.pool));
  if (newest === null) return;
  const sums = await sumTokens(deps, newest.height);
  let nonzero = [...sums].filter(([, sum]) => sum !== 0n);
  let waitedMs = 0;
  if (nonzero.length > 0) {
    const waitsFrom = performance.now();
    await sleep(betweenSumsMs, deps.signal);
    waitedMs = performance.now() - waitsFrom;
    const again = await sumTokens(deps, newest.height);
    nonzero = nonzero.filter(([token, sum]) => again.get(token) === sum);
  }
  const named = nonzero.slice(0, NAMED).map(([token, sum]) => ({ token_address: token, sum: String(sum) }));
  await deps.pool.query(
    `INSERT INTO tds.conservation (seconds, to_height, tokens, nonzero) VALUES ($1, $2, $3, $4)
     ON CONFLICT (singleton) DO UPDATE SET checked_at = now(), seconds = excluded.seconds,
       to_height = excluded.to_height, tokens = excluded.tokens, nonzero = excluded.nonzero`,
    [(performance.now() - startedAt - waitedMs) / 1000, newest.height, sums.size, JSON.stringify(named)],
  );
}

/** The sums by token, in slices of accounts, so that no statement reads the whole ledger. */
async function sumTokens({ pool, clickhouse, signal }: Deps, to: number): Promise<Map<string, bigint>> {
  const served = await servedBuilds(pool);
  const slices = await accountSlices(clickhouse, served);
  const sums = new Map<string, bigint>();
  for (let slice = 0; slice < slices; slice += 1) {
    signal.throwIfAborted();
    for (const { token, sum } of await tokenSums(clickhouse, served, { slice, slices, to, signal }))
      sums.set(token, BigInt.asIntN(256, (sums.get(token) ?? 0n) + sum));
  }
  return sums;
}
