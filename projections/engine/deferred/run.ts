import { withFreeAdvisoryLock } from '../../../infra/postgres/advisory-lock.ts';
import { isClickHouseUnavailable } from '../../../infra/clickhouse/client.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { startLoop } from '../../../infra/loop.ts';
import type { Loop } from '../../../infra/loop.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { DeferredProjection } from '../../define.ts';
import { servedBuild } from '../builds.ts';
import { derivePass } from './derive.ts';
import type { DeriveDeps, DeriveTarget } from './derive.ts';
import type { PassResult } from './pass.ts';

/** Between passes that leave nothing to derive. A pass costs some ten inserts, however few blocks it derives. */
const POLL_MS = 5000;
/**
 * During a backfill, a pass is followed by this many times its duration without one: it takes a tenth of one core at most.
 * Blocks wait for longer then, and one pass derives more of them.
 */
const BUSY_REST_FACTOR = 9;
const REST_FACTOR = 1;
const MAX_REST_MS = 30_000;
/** Interval of trying to become the process that derives. */
const LOCK_MS = 5000;

const lockOf = ({ name }: DeferredProjection): string => `tds.derive ${name}`;

/** Runs a pass of the served build, unless another process derives it. */
export async function derivePassAlone(
  deps: DeriveDeps & { readonly pool: Pool },
  target: DeriveTarget,
): Promise<void> {
  await withFreeAdvisoryLock(deps.pool, lockOf(target.projection), () => derivePass(deps, target));
}

/** How long after a pass the next one begins. */
export const restMs = (tookMs: number, { left, isBusy }: PassResult): number =>
  left === 0 && !isBusy ? POLL_MS : Math.min(MAX_REST_MS, tookMs * (isBusy ? BUSY_REST_FACTOR : REST_FACTOR));

/**
 * Derives the due blocks of the served build of a projection until it is stopped: one process at a time, which holds an
 * advisory lock; a process that hangs loses it. The lock saves work: of passes side by side only the last to begin counts
 * (pass.ts). Errors are logged and tried again.
 */
export function runDeferred(
  deps: DeriveDeps & { readonly pool: Pool },
  projection: DeferredProjection,
): Loop {
  const { pool, log } = deps;
  const { name } = projection;

  const turns = async (signal: AbortSignal, assertHeld: () => Promise<void>): Promise<void> => {
    while (!signal.aborted) {
      await assertHeld();
      const began = performance.now();
      const build = await servedBuild(pool, projection);
      const isOurs = build !== null && build.version === projection.version;
      const done = isOurs ? await derivePass(deps, { projection, build }) : null;
      const took = performance.now() - began;
      await sleep(done === null ? POLL_MS : restMs(took, done), signal);
    }
  };
  return startLoop({
    async round(signal) {
      try {
        await withFreeAdvisoryLock(pool, lockOf(projection), (assertHeld) => turns(signal, assertHeld));
      } catch (error) {
        const isExpected =
          error instanceof AppError || isStoreUnavailable(error) || isClickHouseUnavailable(error);
        if (!signal.aborted)
          log[isExpected ? 'warn' : 'error'](
            { projection: name, err: error },
            'could not derive due blocks, retrying',
          );
      }
      return LOCK_MS;
    },
  });
}
