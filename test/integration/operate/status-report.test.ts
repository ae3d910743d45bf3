import { afterAll, beforeAll, expect, test } from 'vitest';

import { readStatus, renderStatus } from '../../../infra/bin/cli/status-report.ts';
import { adminWorld } from '../../support/admin-world.ts';
import type { AdminWorld } from '../../support/admin-world.ts';

/** What `tds status` prints while a part of the service is behind or unavailable. */

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

test('lags are unknown while Kafka is unavailable, which is an alarm', async () => {
  const alarm = 'ALARM        Kafka unavailable: lags unknown';
  expect(await printed()).not.toContain(alarm);
  const lines = await printed(noKafka);
  expect(lines).toContain(alarm);
  expect(lines.some((line) => /^transfers +\?/.test(line))).toBe(true);
});
