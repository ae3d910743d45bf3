import type { Clock } from '../../../infra/clock.ts';
import { AppError } from '../../../schemas/errors.ts';
import { derivePass } from './derive.ts';
import type { DeriveDeps, DeriveTarget } from './derive.ts';

export interface DeriveBuildDeps extends DeriveDeps {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

const WAIT_MS = 500;
/** Longest wait for a source that is behind the build. */
const MAX_WAIT_MS = 60_000;

/**
 * Runs passes until nothing of a build is due that can be derived.
 *
 * @throws CONFLICT when a source does not read the messages that the build has read
 */
export async function deriveBuild(deps: DeriveBuildDeps, target: DeriveTarget): Promise<void> {
  const { clock, signal } = deps;
  for (let waitedMs = 0; ;) {
    signal.throwIfAborted();
    const { derived, waiting } = await derivePass(deps, target);
    if (derived > 0) {
      waitedMs = 0;
      continue;
    }
    if (waiting === 0) return;
    if (waitedMs >= MAX_WAIT_MS) {
      const { name, deferred } = target.projection;
      throw new AppError(
        'CONFLICT',
        `${waiting} blocks of ${name} cannot be derived: not read yet by ${deferred.sources.join(', ')}; see \`tds status\``,
      );
    }
    await clock.sleep(WAIT_MS, signal);
    waitedMs += WAIT_MS;
  }
}
