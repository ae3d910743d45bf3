import { AppError, isRetryable } from '../../schemas/errors.ts';
import { runBackfill } from './backfill.ts';
import type { Health } from './health.ts';
import type { Lease } from './lease.ts';
import { runLive } from './live.ts';
import type { IngestDeps } from './ports.ts';
import { createRepairer } from './repair/repairer.ts';
import type { ChunkTask } from './lease.ts';

const BASE_DELAY_MS = 50;
const MAX_DELAY_MS = 5000;
const MAX_DELAY_OF_OTHERS_MS = 30_000;
/** Failures in a row that an operator should hear of; one that is not retryable is heard of at once. */
const ALARMING_FAILURES = 5;

/**
 * Writes a chunk until it is finished or the lease is gone. After any failure the state is read again from the store:
 * what is in memory may be wrong about what was done. A contradiction of what is final stops the chunk by name.
 */
export async function runChunk(deps: IngestDeps, health: Health, lease: Lease): Promise<'done' | 'halted'> {
  const { clock, log, metrics } = deps;
  const chunk = lease.name;
  let failures = 0;
  const repairer = createRepairer(deps, lease);
  const task: ChunkTask = {
    lease,
    runRepairs: async () => (await repairer.run()) > 0,
    async progress() {
      failures = 0;
      await health.progress(chunk);
    },
  };
  for (;;) {
    try {
      if (lease.taken.end === null) await runLive(deps, task);
      else await runBackfill(deps, task);
      return 'done';
    } catch (error) {
      if (lease.signal.aborted) return 'done';
      const code = error instanceof AppError ? error.code : 'bug';
      if (code === 'LEASE_LOST') return 'done';
      failures += 1;
      metrics.failed(chunk, code);
      const detail = `${code}: ${error instanceof Error ? error.message : String(error)}`;
      if (code === 'REORG_BELOW_L1') {
        log.error({ chunk, err: error }, 'chunk stopped');
        await health.alarm(chunk, detail);
        return 'halted';
      }
      const retryable = isRetryable(error);
      log[retryable ? 'warn' : 'error']({ chunk, err: error, failures }, 'step failed');
      if (!retryable || failures === ALARMING_FAILURES) await health.alarm(chunk, detail);
      const limit = retryable ? MAX_DELAY_MS : MAX_DELAY_OF_OTHERS_MS;
      await clock.sleep(clock.random() * Math.min(limit, BASE_DELAY_MS * 2 ** failures), lease.signal);
    }
  }
}
