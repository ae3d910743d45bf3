import { Counter, Gauge } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type ObserverMetrics = ReturnType<typeof createObserverMetrics>;

/** The figures of all observers of a process; make it once a registry. */
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
      help: 'Attempts that failed and will be made again',
      labelNames,
      registers,
    }),
    waiting: new Gauge({
      name: 'tds_observer_waiting',
      help: 'Tasks to be done, those being tried again included',
      labelNames,
      registers,
    }),
    failing: new Gauge({
      name: 'tds_observer_failing',
      help: 'Tasks to be done that have failed before',
      labelNames,
      registers,
    }),
  };
}
