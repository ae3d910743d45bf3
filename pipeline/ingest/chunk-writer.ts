import { backoffMs } from '../../infra/retry.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { runBackfill } from './backfill.ts';
import { codeOf, isHalting } from './health.ts';
import type { Health } from './health.ts';
import { acquireLease } from './lease.ts';
import { runLive } from './live.ts';
import type { ChunkTask, IngestDeps, Lease } from './ports.ts';
import { reconcileWithLog } from './reconcile/reconcile.ts';
import { createRepairer } from './repair/repairer.ts';

const RETRYABLE_BACKOFF = { baseMs: 100, maxMs: 5000 };
const OTHER_BACKOFF = { baseMs: 100, maxMs: 30_000 };

/** idle: another process has the lease, or there was nothing to do; halted: an operator must act. */
type ChunkOutcome = 'idle' | 'halted' | 'done';

/** Writes a chunk under a lease of its own until the chunk is finished, the lease ends or the signal aborts. */
export async function writeChunk(
  deps: IngestDeps,
  health: Health,
  name: string,
  signal: AbortSignal,
): Promise<ChunkOutcome> {
  const lease = await acquireLease(deps, name);
  if (lease === null) return 'idle';
  const abort = (): void => lease.abort();
  signal.addEventListener('abort', abort, { once: true });
  try {
    if (signal.aborted) return 'idle';
    if (lease.chunk.finished) return (await createRepairer(deps, lease).run()) > 0 ? 'done' : 'idle';
    deps.log.info({ chunk: name, epoch: lease.epoch, cursor: lease.chunk.cursor }, 'writing chunk');
    health.watch(name, lease);
    return await runChunk(deps, health, lease);
  } finally {
    signal.removeEventListener('abort', abort);
    health.unwatch(name);
    await lease.release();
  }
}

/**
 * Runs the chunk's loop until the chunk is finished or the lease ends. After a failure the loop starts again from the
 * stored state, because memory may be wrong about what was done. A contradiction of final blocks halts the chunk, and so do
 * missing records and another chain.
 *
 * Before anything is published, the stored state is compared with the log; and once more when a lease has passed, because
 * a PostgreSQL that has lost the previous lease grants this one while that holder may still have a request in flight.
 */
async function runChunk(deps: IngestDeps, health: Health, lease: Lease): Promise<'done' | 'halted'> {
  const { clock, log, metrics, settings } = deps;
  const chunk = lease.name;
  const comparisons = [-Infinity, clock.now() + settings.leaseMs];
  const isReconcileDue = (): boolean => clock.now() >= (comparisons[0] ?? Infinity);
  const repairer = createRepairer(deps, lease);
  let failures = 0;
  const task: ChunkTask = {
    lease,
    runRepairs: async () => (await repairer.run()) > 0,
    isReconcileDue,
    replaced: { top: -1 },
    publishedHead: { head: null, at: 0 },
    async progress() {
      const hasFailed = failures > 0;
      failures = 0;
      await health.progress(chunk, hasFailed);
    },
    waiting: (waitsFor) => health.waiting(chunk, waitsFor),
    l1Requested: (failure) => health.l1Requested(chunk, failure),
    forgetHead: () => health.forgetHead(chunk),
    headSeen: (head, indexed) =>
      health.headSeen(chunk, head, indexed, async (height) => {
        const { timestamp } = await deps.node.getBlockHeader(height, { signal: lease.signal });
        return timestamp;
      }),
  };
  for (;;) {
    try {
      if (isReconcileDue()) {
        await reconcileWithLog(deps, lease);
        comparisons.shift();
      }
      if (lease.chunk.end !== null) {
        await runBackfill(deps, task);
        return 'done';
      }
      await runLive(deps, task);
      if (lease.signal.aborted) return 'done';
    } catch (error) {
      const code = codeOf(error);
      if (lease.signal.aborted || code === 'LEASE_LOST') return 'done';
      failures += 1;
      metrics.failures.inc({ chunk, code });
      await health.failed(chunk, error, failures);
      if (isHalting(error)) {
        log.error({ chunk, err: error }, 'chunk halted');
        return 'halted';
      }
      const retryable = isRetryable(error);
      log[retryable ? 'warn' : 'error']({ chunk, err: error, failures }, 'chunk step failed; retrying');
      const backoff = retryable ? RETRYABLE_BACKOFF : OTHER_BACKOFF;
      await clock.sleep(backoffMs(failures, backoff, clock.random()), lease.signal);
    }
  }
}
