import { Releasers } from '../../lifecycle.ts';
import type { Role, RoleContext } from '../role.ts';

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

function namesOf(metrics: RoleContext['metrics']): string[] {
  return metrics.getMetricsAsArray().map(({ name }) => name);
}
