import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';

import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { z } from 'zod';

import type { Publisher } from '../../../infra/kafka/client.ts';
import { chainProjections } from '../../../projections/index.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { quarantine } from '../../../projections/quarantine/projector.ts';
import { quarantineEntry } from '../../../projections/quarantine/queries.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import { toFelt } from '../../../schemas/felt.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import { selectors } from '../../../schemas/decode/layouts.ts';
import { COIN, accepted, busyBlock } from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { tds } from '../../support/tds.ts';

/** What an operator does about what was not understood, on real stores, with the projections running. */

let world: ProjectionWorld;
let publisher: Publisher;
/** The projector of `transfers` refuses this height for as long as it is set. */
let refused = -1;
const stops: (() => Promise<void>)[] = [];

const stubborn = {
  ...transfers,
  project: (item: Parameters<typeof transfers.project>[0]) => {
    if (item.message.block.height === refused) throw new Error('cannot do this yet');
    return transfers.project(item);
  },
};

beforeAll(async () => {
  world = await projectionWorld();
  publisher = world.kafka.publisher();
  await world.run({
    projections: [stubborn, ...chainProjections.filter(({ name }) => name !== 'transfers')],
  });
  const run = await runPostgresProjection({
    kafka: world.kafka,
    pool: world.pool,
    projection: quarantine,
    groupId: 'quarantine',
    log: world.log,
    metrics: world.metrics,
  });
  stops.push(() => run.stop());
});
afterAll(async () => {
  for (const stop of stops) await stop();
  await publisher?.close();
  await world?.close();
});

const itemRow = z.looseObject({ id: z.string(), state: z.string(), halts: z.array(z.string()) });
/** `tds quarantine …`, as a process. */
const command = async (...args: readonly string[]) => await tds(world.env, 'quarantine', ...args);
const list = async (...filter: readonly string[]) =>
  z.array(itemRow).parse(JSON.parse((await command('list', '--json', ...filter)).stdout));
const show = async (id: string): Promise<unknown> => JSON.parse((await command('show', id)).stdout);
/** As the read model has it. */
const entryOf = async (id: string) =>
  await quarantineEntry(world.pool, `quarantine_v${quarantine.version}_b1`, id);
const halts = async (): Promise<number> =>
  (await world.pool.query('SELECT 1 FROM tds.projection_halts')).rows.length;
const isIndexed = async (height: number): Promise<boolean> =>
  (
    await world.select(
      `SELECT 1 AS x FROM {{indexed_blocks}} FINAL WHERE block_desc = 0xffffffff - ${height}`,
    )
  ).length === 1;
/** Unix milliseconds. */
const SINCE = 1_700_000_000_000;
const publishEvent = async (id: string, block: number, quarantinedAt = SINCE): Promise<void> => {
  const value: QuarantineMessage = {
    type: 'event.quarantined',
    v: 1,
    id,
    reason: 'no layout of Transfer has 3 keys and 4 data felts',
    block,
    block_hash: toFelt(0xb10cn),
    position: 7,
    transaction_hash: toFelt(0x7n),
    event: {
      from_address: COIN,
      keys: [selectors.Transfer, toFelt(1n), toFelt(2n)],
      data: [toFelt(5n), toFelt(0n)],
    },
    quarantined_at: quarantinedAt,
  };
  await publisher.publish(topics.quarantine, [{ key: id, value }]);
  await until(async () => (await entryOf(id)) !== null);
};

describe('a message', () => {
  test('that could not be projected is retried on request, without a restart', async () => {
    refused = 3;
    await world.publish([2, 3, 4].map((height) => accepted(busyBlock(height, 3), height)));
    await until(async () => (await halts()) === chainProjections.length);
    await until(async () => (await entryOf('chain.blocks:0:1')) !== null);
    const [item] = await list();
    expect(item).toMatchObject({
      id: 'chain.blocks:0:1',
      kind: 'message',
      state: 'open',
      halts: chainProjections.map(({ name }) => name).toSorted(),
      reason: 'projecting failed: cannot do this yet',
    });

    // It halts again for as long as it cannot be projected.
    const tried = (await entryOf('chain.blocks:0:1'))?.last_tried_at ?? 0;
    await command('retry', 'chain.blocks:0:1');
    await until(async () => ((await entryOf('chain.blocks:0:1'))?.last_tried_at ?? 0) > tried);
    expect(await halts()).toBe(chainProjections.length);
    const [failing] = await list();
    expect(failing?.['since']).toBe(item?.['since']);
    expect((await command('list')).stdout).toContain(
      `open since ${String(item?.['since'])}; still failing at ${String(failing?.['last_tried'])}; halts `,
    );
    expect(await isIndexed(4)).toBe(false);
    refused = -1;
    const retried = await command('retry', 'chain.blocks:0:1');
    expect(retried).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('will read chain.blocks:0:1 again'),
    });
    await until(async () => await isIndexed(4));
    await world.settled();
    expect(await halts()).toBe(0);
  });

  test('that is unreadable is shown, and skipped by id', async () => {
    const text = '{"type":"block.accepted","v":1,"seq":"no number","block":{"height":1030}}';
    const [place] = await publisher.publish(topics.chainBlocks, [
      { value: JSON.parse(text) as never, partition: 1 },
    ]);
    await world.publish([accepted(busyBlock(1031, 3), 1031)]);
    const id = `chain.blocks:1:${place?.offset}`;
    await until(async () => (await halts()) === chainProjections.length);
    expect(await show(id)).toMatchObject({
      id,
      state: 'open',
      topic: 'chain.blocks',
      bytes: text.length,
      readable_now: false,
      message: { type: 'block.accepted', block: { height: 1030 } },
    });
    const skipped = await command('skip', id);
    expect(skipped).toMatchObject({ code: 0, stderr: '' });
    await until(async () => await isIndexed(1031));
    await until(async () => (await entryOf(id))?.resolution === 'skipped');
    expect((await list()).map((item) => item.id)).not.toContain(id);
    const all = await list('--all', '--kind', 'message');
    expect(all.find((item) => item.id === id)).toMatchObject({ state: 'skipped', halts: [] });

    const again = await command('skip', id);
    expect(again).toEqual({ code: 1, stdout: '', stderr: `No projection is halted at ${id}\n` });
  });

  test('that halts a rebuild is distinguished from one that halts a served build', async () => {
    const halt = async (build: number, offset: number): Promise<unknown> =>
      await world.pool.query(
        `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
         VALUES ('transfers', $1, 'chain.blocks', 2, $2, 'no reason')`,
        [build, offset],
      );
    await world.pool.query(
      `INSERT INTO tds.builds (projection, build, version, shape_hash, state) VALUES ('transfers', 7, 1, '', 'building')`,
    );
    await halt(7, 40);
    const id = 'chain.blocks:2:40';
    expect((await list()).find((item) => item.id === id)).toMatchObject({
      state: 'open',
      halts: [],
      rebuilds: ['transfers'],
    });
    expect((await command('list')).stdout).toContain('; halts the rebuild of transfers\n');
    expect((await command('retry', id)).stdout).toBe(
      `The next \`tds rebuild transfers\` will read ${id} again, and halt again if it cannot be parsed.\n`,
    );
    expect(await halts()).toBe(0);

    await halt(7, 40);
    await halt(1, 40);
    expect((await command('list')).stdout).toContain('; halts transfers and the rebuild of transfers\n');
    expect((await command('skip', id)).stdout).toBe(`transfers will skip ${id}, also in a rebuild.\n`);
    await world.pool.query("DELETE FROM tds.projection_halts WHERE topic = 'chain.blocks' AND partition = 2");
    await world.pool.query('DELETE FROM tds.builds WHERE build = 7');
  });

  test('is shown from the quarantine while Kafka is unavailable', async () => {
    const away = await tds(
      { ...world.env, KAFKA_BROKERS: '127.0.0.1:1' },
      'quarantine',
      'show',
      'chain.blocks:0:1',
    );
    expect(away).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(away.stdout)).toMatchObject({
      id: 'chain.blocks:0:1',
      readable_now: null,
      bytes: null,
      about: { type: 'block.accepted', height: 3 },
    });
  });

  test('that halts the quarantine projection itself can still be listed and skipped', async () => {
    const [place] = await publisher.publish(topics.quarantine, [{ value: { v: 1 } as never, key: 'x' }]);
    const id = `quarantine:0:${place?.offset}`;
    await until(async () => (await halts()) === 1);
    expect((await list()).find((item) => item.id === id)).toMatchObject({ halts: ['quarantine'] });
    expect(await command('skip', id)).toMatchObject({ code: 0 });
    await until(async () => (await halts()) === 0);
    expect((await list()).map((item) => item.id)).not.toContain(id);
  });
});

describe('an event', () => {
  test('is shown as each standard would decode it', async () => {
    await publishEvent('0xb10c:7', 77);
    expect(await show('0xb10c:7')).toMatchObject({
      kind: 'event',
      where: `block 77, event 7 of ${COIN}`,
      contract: { address: COIN, standard: 'not looked up' },
      selectors: ['Transfer'],
      readings: {
        erc20: [{ from: toFelt(1n), to: toFelt(2n), amount: '5', token_id: null }],
        erc721: [{ amount: '1', token_id: '5' }],
      },
    });
  });

  test('has its block repaired on request, or is resolved by an operator', async () => {
    await publishEvent('0xb10c:8', 78);
    const retried = await command('retry', '0xb10c:8');
    expect(retried).toMatchObject({ code: 0, stdout: expect.stringContaining('block 78') });
    const { rows } = await world.pool.query('SELECT height, done_at FROM tds.repairs');
    expect(rows).toEqual([{ height: 78, done_at: null }]);
    const since = '2023-11-14T22:13:20.000Z';
    expect(await show('0xb10c:8')).toMatchObject({
      since,
      last_tried: null,
      pending_repair: { attempts: 0 },
    });

    // The repaired block still has the event.
    await publishEvent('0xb10c:8', 78, SINCE + 60_000);
    await until(async () => (await entryOf('0xb10c:8'))?.last_tried_at === SINCE + 60_000);
    expect(await show('0xb10c:8')).toMatchObject({
      state: 'open',
      since,
      last_tried: '2023-11-14T22:14:20.000Z',
    });

    const skipped = await command('skip', '0xb10c:8');
    expect(skipped).toMatchObject({ code: 0, stdout: '0xb10c:8 is skipped.\n' });
    const listed = await command('list', '--all', '--block', '78', '--json');
    expect(JSON.parse(listed.stdout)).toEqual([
      {
        id: '0xb10c:8',
        kind: 'event',
        where: `block 78, event 7 of ${COIN}`,
        reason: 'no layout of Transfer has 3 keys and 4 data felts',
        since,
        last_tried: '2023-11-14T22:14:20.000Z',
        state: 'skipped',
        halts: [],
        rebuilds: [],
      },
    ]);
    const again = await command('retry', '0xb10c:8');
    expect(again).toEqual({ code: 1, stdout: '', stderr: '0xb10c:8 is already resolved: skipped\n' });
  });

  test('beyond the limit of a list is announced, and so is that no entry matches', async () => {
    await publishEvent('0xb10c:9', 79);
    await publishEvent('0xb10c:10', 79);
    const first = await command('list', '--block', '79', '--limit', '1');
    expect(first.stdout).toMatch(/^0xb10c:10\n[^]*\nMore entries exist; raise --limit to see them\.\n$/);
    expect((await command('list', '--block', '79', '--limit', '2')).stdout).not.toContain('More entries');
    expect((await command('list', '--all', '--block', '80')).stdout).toBe('No entries match.\n');
    const none = await command('list', '--limit', '0');
    expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining('must be a positive integer') });
  });

  test('that is unknown is rejected by id', async () => {
    const result = await command('show', 'nobody');
    expect(result).toEqual({
      code: 1,
      stdout: '',
      stderr: 'No quarantine entry has the id nobody; `tds quarantine list` shows them\n',
    });
  });
});

test('a command whose stdout is closed exits without an error', async () => {
  const child = spawn(process.execPath, ['infra/bin/tds.ts', 'quarantine', 'list', '--all'], {
    env: { ...process.env, ...world.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  child.stdout.destroy();
  const [stderr, [code]] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  expect({ stderr, code }).toEqual({ stderr: '', code: 0 });
});
