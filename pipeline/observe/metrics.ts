import { metricsIn } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type ObserverMetrics = ReturnType<typeof createObserverMetrics>;

/** Creates the metrics that all observers of a process share; call it once per registry. */
export function createObserverMetrics(registry: Registry) {
  const { counter, gauge } = metricsIn(registry);
  return {
    observed: counter('tds_observer_observed_total', 'Observations published', ['observer']),
    failures: counter('tds_observer_failures_total', 'Failed attempts that are retried', ['observer']),
    waiting: gauge('tds_observer_waiting', 'Open tasks, failing ones included', ['observer']),
    failing: gauge('tds_observer_failing', 'Open tasks with at least one failed attempt', ['observer']),
  };
}
