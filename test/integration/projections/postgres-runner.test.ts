import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import type { PostgresProjection } from '../../../projections/define.ts';
import { withNames } from '../../../projections/define.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import { atEnd, projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** A projection that is not idempotent on purpose: folding twice, or in another order, shows. */
const journal: PostgresProjection<QuarantineMessage> = {
  kind: 'postgres',
  name: 'journal',
  version: 1,
  topic: topics.quarantine,
  ddl: 'CREATE TABLE {{schema}}.entries (n serial PRIMARY KEY, id text NOT NULL, log_offset bigint NOT NULL);',
  notify: { channel: 'journal', payload: ({ id }) => id },
  isRelevant: ({ id }) => !id.startsWith('of another'),
  async fold(tx, { id }, { offset, schema }) {
    if (id === 'cannot be folded') throw new Error('the fold refuses \0 and \ud800');
    await tx.query(withNames('INSERT INTO {{schema}}.entries (id, log_offset) VALUES ($1, $2)', { schema }), [
      id,
      offset,
    ]);
  },
};

let world: ProjectionWorld;
let run: ProjectionRun | null = null;
let published = 0;

beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world.close());
afterEach(async () => {
  await run?.stop();
  run = null;
});

const start = async (): Promise<ProjectionRun> =>
  await runPostgresProjection({
    kafka: world.kafka,
    pool: world.pool,
    projection: journal,
    groupId: 'journal',
    log: world.log,
    metrics: world.metrics,
  });
const publish = async (...ids: string[]): Promise<void> => {
  const publisher = world.kafka.publisher();
  const messages = ids.map((id): { value: QuarantineMessage } => ({
    value: { type: 'quarantine.resolved', v: 1, id, resolution: 'skipped', resolved_at: 1 },
  }));
  // Past the border parser on purpose.
  for (const { value } of messages) if (value.id === 'unreadable') Object.assign(value, { v: 2 });
  await publisher.publish(topics.quarantine, messages);
  published += ids.length;
  await publisher.close();
};
const entries = async (): Promise<string[]> => {
  const { rows } = await world.pool.query<{ id: string }>('SELECT id FROM journal_v1_b1.entries ORDER BY n');
  return rows.map(({ id }) => id);
};
const checkpoint = async (): Promise<number | undefined> => {
  const { rows } = await world.pool.query<{ next_offset: number }>(
    "SELECT next_offset FROM tds.checkpoints WHERE consumer = 'journal'",
  );
  return rows[0]?.next_offset;
};
const settled = async (): Promise<void> =>
  await until(async () => await atEnd(world.kafka, world.pool, topics.quarantine, ['journal']));
const pass = async (offset: number): Promise<void> => {
  await world.pool.query("INSERT INTO tds.skips VALUES ('journal', 'quarantine', 0, $1)", [offset]);
};

const many = Array.from({ length: 1200 }, (_, index) => `first-${index}`);

test('folds every message once and in order, over transactions, restarts and a second process', async () => {
  await publish(...many);
  run = await start();
  await settled();
  expect(await entries()).toEqual(many);
  await run.stop();

  run = await start();
  const other = await start();
  await publish('a', 'b');
  await settled();
  await other.stop();
  await publish('c');
  await settled();
  expect((await entries()).slice(many.length)).toEqual(['a', 'b', 'c']);
});

test('notifies listeners when the fold is committed', async () => {
  run = await start();
  const listener = new pg.Client({ connectionString: world.env['DATABASE_URL'] });
  await listener.connect();
  const received: { payload: string | undefined; seen: Promise<string[]> }[] = [];
  listener.on('notification', ({ payload }) => received.push({ payload, seen: entries() }));
  await listener.query('LISTEN journal');
  await publish('notified', 'notified', 'notified too');
  await until(async () => received.length === 2);
  expect(received.map(({ payload }) => payload)).toEqual(['notified', 'notified too']);
  for (const { seen } of received) expect(await seen).toContain('notified');
  await listener.end();
});

test.each(['unreadable', 'cannot be folded'])(
  'a message that is %s halts the partition after the messages before it, until it is skipped',
  async (bad) => {
    run = await start();
    await settled();
    const at = published + 2;
    const before = await entries();
    const after = `after ${bad}`;
    await publish('before 1', 'of another', bad, after);
    await until(async () => (await world.pool.query('SELECT 1 FROM tds.projection_halts')).rowCount === 1);
    expect((await entries()).slice(before.length)).toEqual(['before 1']);
    expect(await checkpoint()).toBe(at);
    published += 1; // the quarantine takes the message itself, in this very topic

    // A restart comes to the same place.
    await run.stop();
    run = await start();
    await pass(at);
    await until(async () => (await entries()).includes(after));
    expect((await entries()).slice(before.length, before.length + 2)).toEqual(['before 1', after]);
    expect((await world.pool.query('SELECT 1 FROM tds.projection_halts')).rowCount).toBe(0);
    await settled();
    published = (await world.kafka.offsets(topics.quarantine))[0]?.high ?? 0;
  },
);

test('moves the checkpoint past messages that do not concern it, alone and among others', async () => {
  run = await start();
  const before = await entries();
  await publish('of another');
  await settled();
  expect(await checkpoint()).toBe(published);
  await publish('of another one', 'mine', 'of another two', 'mine too');
  await settled();
  expect((await entries()).slice(before.length)).toEqual(['mine', 'mine too']);
  // Moved meanwhile by a second process: what concerns nobody does not move it again.
  await world.pool.query(
    "UPDATE tds.checkpoints SET next_offset = next_offset + 1 WHERE consumer = 'journal'",
  );
  await publish('of another', 'mine at last');
  await settled();
  expect(await checkpoint()).toBe(published);
  expect((await entries()).slice(before.length)).toEqual(['mine', 'mine too', 'mine at last']);
});

test('resumes from the stored checkpoint after a conflict', async () => {
  run = await start();
  // Read, so that it stands where it will be overtaken.
  await publish('before');
  await settled();
  const high = published;
  const before = await entries();
  // As if a second process had folded the next two messages.
  await world.pool.query(
    "UPDATE tds.checkpoints SET next_offset = next_offset + 2 WHERE consumer = 'journal'",
  );
  await publish('theirs', 'theirs too', 'ours');
  await settled();
  expect(await checkpoint()).toBe(high + 3);
  expect((await entries()).slice(before.length)).toEqual(['ours']);
});
