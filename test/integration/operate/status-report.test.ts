import { afterAll, beforeAll, expect, test } from 'vitest';

import { readStatus, renderStatus } from '../../../infra/bin/operator/status-report.ts';
import { serviceMetrics } from '../../../infra/bin/operator/service-metrics.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { servedBuilds, servedSchema } from '../../../projections/served.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';

/** What `tds status` and the metrics of the API show while a part of the service is behind or unavailable. */

let world: AdminWorld;
beforeAll(async () => {
  world = await adminWorld();
  await world.startProjections();
  await world.publishBlocks(0, 2);
  await world.projected();
});
afterAll(async () => await world.close());

const noKafka = {
  offsets: () => Promise.reject(new Error('no broker answers')),
  offsetsAt: () => Promise.reject(new Error('no broker answers')),
};
const printed = async (kafka: Parameters<typeof readStatus>[1] = world.api.kafka): Promise<string[]> =>
  renderStatus({ ...(await readStatus(world.api.pool, kafka, 60)), redis: null }).split('\n');

test('the node head is not behind the log while the projections are', async () => {
  expect(await printed()).toContain('node head    2');
  await world.api.pool.query("UPDATE tds.chunks SET cursor = 13 WHERE name = 'live'");
  const lines = await printed();
  expect(lines).toContain('node head    12');
  expect(lines.find((line) => line.startsWith('live '))).toMatch(/ 13 +0 left /);
});

test('the head has an age while it is that of the node', async () => {
  const age = async (): Promise<string | undefined> =>
    (await printed()).find((line) => line.startsWith('head age'));
  // The log is ahead of what the projections have read of the node.
  expect(await age()).toBe(undefined);
  await world.api.pool.query("UPDATE tds.chunks SET cursor = 3 WHERE name = 'live'");
  const schema = await servedSchema(world.api.pool, 'chain-status');
  await world.api.pool.query(`UPDATE ${schema}.status SET head_seen_at = $1`, [Date.now() - 90_000]);
  expect(Number(/no newer block for (\d+) s$/.exec((await age()) ?? '')?.[1])).toBeGreaterThanOrEqual(90);
});

test('lags are unknown while Kafka is unavailable, which is an alarm', async () => {
  const alarm = 'ALARM        Kafka unavailable: lags unknown';
  expect(await printed()).not.toContain(alarm);
  const lines = await printed(noKafka);
  expect(lines).toContain(alarm);
  expect(lines.some((line) => /^transfers +\?/.test(line))).toBe(true);
});

type MetricsDeps = Parameters<typeof serviceMetrics>[0];
const scraped = async (changed: Partial<MetricsDeps>): Promise<string> => {
  const { pool, kafka } = world.api;
  const stores = { pool, clickhouse: world.owner, kafka, servedBuilds: () => servedBuilds(pool) };
  const collect = serviceMetrics({
    registry: createMetrics('api'),
    stallSeconds: 60,
    ...stores,
    ...changed,
  });
  return (await collect()).text.replaceAll(/\{role="[a-z]+"\}/g, '');
};

test('the metrics of the process are served while a store hangs', { timeout: 10_000 }, async () => {
  const rows = (): Promise<never> => new Promise(() => {});
  const hanging = await scraped({ clickhouse: { ...world.owner, rows }, timeoutMs: 50 });
  expect(hanging).toMatch(/^tds_service_metrics_up 0$/m);
  expect(hanging).toMatch(/^tds_process_resident_memory_bytes /m);
});

test('the metrics show whether Kafka answers, and those that need no Kafka', async () => {
  const lag = /^tds_projection_behind\{.* 0$/m;
  const available = await scraped({});
  expect(available).toMatch(/^tds_log_available 1$/m);
  expect(available).toMatch(lag);
  const unavailable = await scraped({ kafka: noKafka });
  expect(unavailable).toMatch(/^tds_log_available 0$/m);
  expect(unavailable).toMatch(/^tds_service_metrics_up 1$/m);
  expect(unavailable).not.toMatch(lag);
});
