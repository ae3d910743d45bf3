import type { ProjectionRun } from '../../projections/engine/run/follow-served.ts';
import { Releasers } from '../lifecycle.ts';
import type { Role, RoleContext } from './roles.ts';

/** Tries of starting one role: what one that failed has opened and registered is gone before the next. */
export function roleAttempts(
  role: Pick<Role, 'name' | 'start'>,
  context: RoleContext,
  only: readonly string[],
): () => ReturnType<Role['start']> {
  const { metrics, releasers, log } = context;
  const fresh = (): Releasers =>
    new Releasers((what, error) => log.error({ err: error, name: what }, 'a resource did not close'));
  let own = fresh();
  releasers.push(role.name, () => own.releaseAll());
  return async () => {
    own = fresh();
    const common = new Set(namesOf(metrics));
    own.push('metrics', () => {
      // A registry refuses a second metric of one name.
      for (const name of namesOf(metrics)) if (!common.has(name)) metrics.removeSingleMetric(name);
    });
    try {
      return await role.start({ ...context, releasers: own }, only);
    } catch (error) {
      await own.releaseAll();
      throw error;
    }
  };
}

/**
 * Waits until each of them runs or has failed to, so that none starts when nobody looks any more. Those that run are
 * stopped by `releasers`; one that did not start fails all.
 */
export async function allRunning(
  starting: readonly Promise<ProjectionRun>[],
  { releasers, fail }: Pick<RoleContext, 'releasers' | 'fail'>,
): Promise<void> {
  const outcomes = await Promise.allSettled(starting);
  for (const outcome of outcomes) {
    if (outcome.status === 'fulfilled') releasers.push('projection', () => outcome.value.stop());
  }
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  for (const outcome of outcomes) if (outcome.status === 'fulfilled') outcome.value.done.catch(fail);
}

function namesOf(metrics: RoleContext['metrics']): string[] {
  return metrics.getMetricsAsArray().map(({ name }) => name);
}
