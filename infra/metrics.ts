import { createServer } from 'node:http';

import { Counter, Gauge, Histogram, Registry, collectDefaultMetrics } from 'prom-client';

import { listenTcp } from './listen-tcp.ts';

export { Counter, Gauge, Histogram } from 'prom-client';
export type { Registry } from 'prom-client';

/**
 * Interval between two samples of the event loop: a process wakes for each, also while it has nothing to do. The times
 * that are shown include it, and a shorter delay may not show.
 */
const EVENT_LOOP_SAMPLE_MS = 100;

/** The registry of a process, with Node's default metrics (memory, event loop, handles) and the role as a label. */
export function createMetrics(role: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ role });
  collectDefaultMetrics({
    register: registry,
    prefix: 'tds_',
    eventLoopMonitoringPrecision: EVENT_LOOP_SAMPLE_MS,
  });
  return registry;
}

/** Creates metrics in a registry. */
export function metricsIn(registry: Registry) {
  const registers = [registry];
  return {
    counter: <L extends string>(name: string, help: string, labelNames: L[] = []) =>
      new Counter({ name, help, labelNames, registers }),
    gauge: <L extends string>(name: string, help: string, labelNames: L[] = []) =>
      new Gauge({ name, help, labelNames, registers }),
    histogram: <L extends string>(name: string, help: string, buckets: number[], labelNames: L[] = []) =>
      new Histogram({ name, help, buckets, labelNames, registers }),
  };
}

/** Serves `GET /metrics` and `GET /healthz` of a role. Port 0 takes any free port. */
export async function serveMetrics(
  registry: Registry,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<{ url: string; close(): Promise<void> }> {
  const server = createServer((request, response) => {
    if (request.url === '/healthz') {
      response.end('ok\n');
      return;
    }
    if (request.url !== '/metrics') {
      response.writeHead(404).end();
      return;
    }
    registry.metrics().then(
      (text) => response.setHeader('content-type', registry.contentType).end(text),
      () => response.writeHead(500).end(),
    );
  });
  const settings = 'METRICS_PORT or METRICS_HOST';
  const { url } = await listenTcp(server, { host, port, name: 'The metrics server', settings });
  return {
    url,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
