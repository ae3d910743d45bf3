import { Counter, Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type ObserverMetrics = ReturnType<typeof createObserverMetrics>;

/** Creates the metrics that all observers of a process share; call it once per registry. */
export function createObserverMetrics(registry: Registry) {
  const labelNames = ['observer'] as const;
  const registers = [registry];
  return {
    observed: new Counter({
      name: 'tds_observer_observed_total',
      help: 'Observations published',
      labelNames,
      registers,
    }),
    failures: new Counter({
      name: 'tds_observer_failures_total',
      help: 'Failed attempts that are retried',
      labelNames,
      registers,
    }),
    waiting: new Gauge({
      name: 'tds_observer_waiting',
      help: 'Open tasks, failing ones included',
      labelNames,
      registers,
    }),
    failing: new Gauge({
      name: 'tds_observer_failing',
      help: 'Open tasks with at least one failed attempt',
      labelNames,
      registers,
    }),
  };
}
