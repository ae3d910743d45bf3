import { Releasers } from '../../lifecycle.ts';
import type { Role, RoleContext } from '../role.ts';

/** Returns a function that starts the role; a failed attempt closes what it opened and removes its metrics. */
export function roleAttempts(
  role: Pick<Role, 'name' | 'start'>,
  context: RoleContext,
  only: readonly string[],
): () => ReturnType<Role['start']> {
  const { metrics, releasers, log } = context;
  const fresh = (): Releasers =>
    new Releasers((what, error) => log.error({ err: error, name: what }, 'could not close resource'));
  let own = fresh();
  releasers.push(role.name, () => own.releaseAll());
  return async () => {
    own = fresh();
    const common = new Set(namesOf(metrics));
    own.push('metrics', () => {
      // A registry rejects a second metric with the same name.
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
