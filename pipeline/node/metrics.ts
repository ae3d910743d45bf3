import { metricsIn } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export type NodeMetrics = ReturnType<typeof createNodeMetrics>;

export function createNodeMetrics(registry: Registry) {
  const { counter, histogram } = metricsIn(registry);
  return {
    /** `outcome`: ok, a JSON-RPC error code, or one of our error codes. */
    seconds: histogram(
      'tds_node_call_seconds',
      'Duration of calls to the Starknet node, per attempt',
      [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
      ['method', 'outcome'],
    ),
    retries: counter('tds_node_retries_total', 'Retried calls to the Starknet node', ['method']),
  };
}
