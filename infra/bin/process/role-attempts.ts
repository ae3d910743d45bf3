import { Releasers } from '../../lifecycle.ts';
import type { Role, RoleContext, StartRole } from '../role.ts';

/** Returns a function that starts the role; a failed attempt closes what it opened and removes its metrics. */
export function roleAttempts(
  { name }: Role,
  startRole: StartRole,
  context: RoleContext,
  only: readonly string[],
): () => ReturnType<StartRole> {
  const { metrics, releasers, log } = context;
  const fresh = (): Releasers =>
    new Releasers((what, error) => log.error({ err: error, name: what }, 'could not close resource'));
  let own = fresh();
  releasers.push(name, () => own.releaseAll());
  return async () => {
    own = fresh();
    const common = new Set(namesOf(metrics));
    own.push('metrics', () => {
      // A registry rejects a second metric with the same name.
      for (const name of namesOf(metrics)) if (!common.has(name)) metrics.removeSingleMetric(name);
    });
    try {
      return await startRole({ ...context, releasers: own }, only);
    } catch (error) {
      await own.releaseAll();
      throw error;
    }
  };
}

function namesOf(metrics: RoleContext['metrics']): string[] {
  return metrics.getMetricsAsArray().map(({ name }) => name);
}
