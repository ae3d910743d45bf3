import { Counter, Histogram } from '../../infra/metrics.ts';
import type { Registry } from '../../infra/metrics.ts';

export interface NodeMetrics {
  /** `outcome`: ok, a JSON-RPC error code, or one of our error codes. */
  observe(method: string, outcome: string, ms: number): void;
  retried(method: string): void;
}

export function createNodeMetrics(registry: Registry): NodeMetrics {
  const seconds = new Histogram({
    name: 'tds_node_call_seconds',
    help: 'Duration of calls to the Starknet node, per attempt',
    labelNames: ['method', 'outcome'],
    buckets: [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10],
    registers: [registry],
  });
  const retries = new Counter({
    name: 'tds_node_retries_total',
    help: 'Retried calls to the Starknet node',
    labelNames: ['method'],
    registers: [registry],
  });
  return {
    observe: (method, outcome, ms) => seconds.observe({ method, outcome }, ms / 1000),
    retried: (method) => retries.inc({ method }),
  };
}
