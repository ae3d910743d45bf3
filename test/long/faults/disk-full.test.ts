import { expect, test } from 'vitest';

import { startClickHouse } from '../../../infra/embedded/clickhouse/clickhouse.ts';
import { startKafka } from '../../../infra/embedded/kafka/kafka.ts';
import { freePort } from '../../../infra/embedded/ports.ts';
import { createLogger } from '../../../infra/log.ts';
import { mountSmallDisk } from '../../support/faults/small-disk.ts';
import { faultWorld } from '../../support/faults/world.ts';
import { eventually } from '../../support/service.ts';

/** A full disk: the roles wait and report the store, nothing is lost, and work resumes when there is space again. */

const log = createLogger('disk-full', 'silent');

test('roles wait and recover when the disk of ClickHouse is full', async (ctx) => {
  const disk = mountSmallDisk(200);
  if ('refused' in disk) return ctx.skip(disk.refused);
  const clickhouse = await startClickHouse({ dataDir: disk.path, port: await freePort(), log });
  const world = await faultWorld(
    { seed: 'disk of ClickHouse', initialHead: 60 },
    { CLICKHOUSE_URL: clickhouse.url },
  );
  try {
    world.node.control({ command: 'setL1', height: 20 });
    const [project] = await Promise.all([world.start('project'), world.start('ingest')]);
    await world.settled();
    const before = await world.count('transfers');
    disk.fill();
    world.node.control({ command: 'reorg', depth: 5, length: 12 });
    await eventually(async () => {
      expect(await project.metrics()).toMatch(/waiting\{store="clickhouse".*\} 1/);
    });
    expect(project.output()).toContain('store unavailable, retrying');
    // Existing rows stay readable.
    expect(await world.count('transfers')).toBeGreaterThan(before / 2);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    expect(project.isRunning()).toBe(true);
    disk.free();
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
    await clickhouse.stop();
    disk.unmount();
  }
});

test('roles wait and recover when the disk of Kafka is full', async (ctx) => {
  const disk = mountSmallDisk(120);
  if ('refused' in disk) return ctx.skip(disk.refused);
  const ports = { port: await freePort(), controllerPort: await freePort() };
  let kafka = await startKafka({ dataDir: disk.path, ...ports, log });
  const world = await faultWorld(
    // So many malformed events that the quarantine is about to need its first index entry, which a full disk refuses: the
    // broker then keeps the records of appends that it has reported as failed, and repeats their offsets.
    { seed: 'disk of Kafka', initialHead: 60, malformed: 0.04 },
    { KAFKA_BROKERS: kafka.url },
  );
  let isDown = false;
  void kafka.exited.then(() => (isDown = true));
  try {
    world.node.control({ command: 'setL1', height: 20 });
    const [project, ingest] = await Promise.all([world.start('project'), world.start('ingest')]);
    await world.settled();
    disk.fill();
    world.node.control({ command: 'reorg', depth: 5, length: 40 });
    // The broker exits when it cannot write; it is restarted when there is space.
    await eventually(async () => {
      expect(isDown).toBe(true);
      expect(ingest.output()).toContain('Kafka did not acknowledge');
    });
    world.node.control({ command: 'advance', blocks: 5 });
    expect([ingest.isRunning(), project.isRunning()]).toEqual([true, true]);
    disk.free();
    kafka = await startKafka({ dataDir: disk.path, ...ports, log });
    await world.settled();
    expect(await world.differences()).toEqual([]);
  } finally {
    await world.close();
    await kafka.stop();
    disk.unmount();
  }
});
