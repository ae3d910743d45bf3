import { createHash, createHmac, randomBytes } from 'node:crypto';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { createClickHouse } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { systemClock } from '../../../infra/clock.ts';
import { createLogger } from '../../../infra/log.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { accounts } from '../../../projections/accounts/projector.ts';
import { catalogue } from '../../../projections/catalogue/projector.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import type { RebuildReport } from '../../../projections/engine/rebuild/rebuild.ts';
import { takeSnapshot } from '../../../projections/engine/snapshot/take.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { sync } from '../../../projections/sync/projector.ts';
import { webhooks } from '../../../projections/webhooks/projector.ts';
import type { SnapshotMessage } from '../../../schemas/messages/snapshots.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Topic } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { ApiWorld } from '../../support/api-world.ts';
import { aDapp, importRecords } from '../../support/catalogue.ts';
import { atEnd, until } from '../../support/projection-world.ts';
import { tds } from '../../support/tds.ts';

/** What was deleted is gone from the log after a snapshot, and everything else is as it was, also after a rebuild. */

/** All that is made from commands. */
const decided = [accounts, sync, webhooks];

let world: ApiWorld;
let clickhouse: ClickHouse;
let alice: { token: string; id: number };
const metrics = createProjectionMetrics(createMetrics('rebuild'));

beforeAll(async () => {
  world = await apiWorld();
  clickhouse = createClickHouse(world.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  alice = await world.makeUser('alice');
});
afterAll(async () => {
  await clickhouse.close();
  await world.close();
});

const makeKey = async (name: string): Promise<{ id: number; key: string }> => {
  const json = { name };
  return (await world.call('POST', '/api/users/auth/create-api-key/', { token: alice.token, json })).json;
};
const deleteKey = async (id: number): Promise<unknown> =>
  await world.call('POST', '/api/users/auth/api-keys/delete/', { token: alice.token, json: { key_id: id } });
const hashOf = (key: string): string => createHash('sha256').update(key).digest('hex');
const statusWith = async (key: string): Promise<number> =>
  (await world.call('GET', '/api/tokens/', { headers: { 'api-key': key } })).status;

const wallet = { hash: randomBytes(32).toString('hex'), key: randomBytes(32).toString('hex') };
async function put(blob: string, version: number): Promise<number> {
  const timestamp = String(Math.floor(Date.now() / 1000));
  const text = ['PUT', wallet.hash, timestamp, createHash('sha256').update(blob).digest('hex')].join(':');
  const signature = createHmac('sha256', Buffer.from(wallet.key, 'hex')).update(text).digest('hex');
  const headers = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': signature };
  const json = { blob, version, auth_key: wallet.key };
  return (await world.call('PUT', `/api/vendor/sync/${wallet.hash}/`, { headers, json })).status;
}

/** Its tables hold texts of every kind, decimals of many digits among them. */
const makeWebhook = async (host: string): Promise<number> => {
  const { json } = await world.call('POST', '/api/webhooks/', {
    token: alice.token,
    json: {
      name: `"${host}" \\ ü`,
      url: `https://93.184.215.14/${host}`,
      events: ['price.threshold', 'token.launched'],
      subscriptions: [
        { token: '0x1', price_above: '0.10', price_below: `123456789012345.${'9'.repeat(41)}` },
        {},
      ],
    },
  });
  return json.id;
};
const deleteWebhook = async (id: number): Promise<unknown> =>
  await world.call('DELETE', `/api/webhooks/${id}/`, { token: alice.token });

async function textOf(topic: Topic<unknown>): Promise<{ text: string; low: number; messages: number }> {
  let text = '';
  let messages = 0;
  const [place = { low: 0, high: 0 }] = await world.kafka.offsets(topic);
  for await (const { value } of world.kafka.readRange(topic, 0, place.low, place.high)) {
    text += value.toString();
    messages += 1;
  }
  return { text, low: place.low, messages };
}

async function messagesOf<M>(topic: Topic<M>): Promise<M[]> {
  const messages: M[] = [];
  const [place = { low: 0, high: 0 }] = await world.kafka.offsets(topic);
  for await (const { value } of world.kafka.readRange(topic, 0, place.low, place.high))
    messages.push(topic.schema.parse(JSON.parse(value.toString())));
  return messages;
}

/** Every row of every table that is made from commands. */
async function state(): Promise<Record<string, string[]>> {
  const served = await servedBuilds(world.pool);
  const found: Record<string, string[]> = {};
  for (const { name: projection } of decided) {
    const schema = served.schema(projection);
    const { rows: tables } = await world.pool.query(
      'SELECT table_name AS name FROM information_schema.tables WHERE table_schema = $1',
      [schema],
    );
    for (const { name } of tables) {
      const { rows } = await world.pool.query(`SELECT t::text AS row FROM ${schema}."${String(name)}" AS t`);
      found[`${projection}.${String(name)}`] = rows.map(({ row }) => String(row)).toSorted();
    }
  }
  return found;
}

const snapshot = async () =>
  await takeSnapshot({ kafka: world.kafka, pool: world.pool, now: Date.now }, decided);
/** Of all commands: a snapshot deletes what every projection has read. */
const snapshotOfAll = async () => {
  const names = decided.map(({ name }) => name);
  await until(async () => await atEnd(world.kafka, world.pool, topics.commands, names));
  return await snapshot();
};
const rebuildAll = async ({ swap = true, projections = decided } = {}) => {
  const { signal } = new AbortController();
  const log = createLogger('test', 'silent');
  const { kafka, pool } = world;
  return await rebuild({ kafka, pool, clickhouse, clock: systemClock, log, metrics, signal }, projections, {
    swap,
    onProgress: () => {},
  });
};

test('a snapshot removes deleted data from the topics and keeps the rest, also after a rebuild', async () => {
  const [kept, gone] = [await makeKey('kept'), await makeKey('gone')];
  expect([await put('first', 1), await put('second', 2)]).toEqual([200, 200]);
  await deleteKey(gone.id);
  await makeWebhook('kept-hook');
  await deleteWebhook(await makeWebhook('gone-hook'));
  await world.makeUser('mallory');
  expect((await tds(world.env, 'users', 'disable', 'mallory')).code).toBe(0);
  const { text } = await textOf(topics.commands);
  expect([text.includes(hashOf(gone.key)), text.includes('gone-hook')]).toEqual([true, true]);
  const before = await state();
  expect(before['webhooks.disabled_owners']).toHaveLength(1);

  const { code, stdout } = await tds(world.env, 'snapshot');
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^accounts: api_keys 1, .*users 2$/m)]);
  expect(stdout).toMatch(/^sync: command_outcomes 2, sync_blobs 1$/m);

  const [commands, snapshots] = [await textOf(topics.commands), await textOf(topics.snapshots)];
  expect([commands.messages, commands.low > 0]).toEqual([0, true]);
  expect(commands.text + snapshots.text).not.toContain(hashOf(gone.key));
  expect(commands.text + snapshots.text).not.toContain('"first"');
  expect(snapshots.text).toContain(hashOf(kept.key));
  expect(snapshots.text).not.toContain(wallet.key);
  expect(snapshots.text).toContain('93.184.215.14/kept-hook');
  expect(commands.text + snapshots.text).not.toContain('gone-hook');
  expect(await state()).toEqual(before);

  // Commands go on behind the snapshot, and a rebuild brings both together.
  const later = await makeKey('later');
  expect(await put('third', 3)).toBe(200);
  const now = await state();
  const report = await rebuildAll();
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect(await state()).toEqual(now);
  expect([await statusWith(kept.key), await statusWith(later.key), await statusWith(gone.key)]).toEqual([
    200, 200, 401,
  ]);
  expect((await makeKey('after the rebuild')).id).toBeGreaterThan(later.id);
});

test('a second snapshot removes what the previous one still contained', async () => {
  const doomed = await makeKey('doomed');
  await snapshotOfAll();
  expect((await textOf(topics.snapshots)).text).toContain(hashOf(doomed.key));
  await deleteKey(doomed.id);
  await snapshotOfAll();
  expect((await textOf(topics.snapshots)).text).not.toContain(hashOf(doomed.key));
  expect((await textOf(topics.commands)).text).not.toContain(hashOf(doomed.key));
});

test('commands that arrive during a snapshot are neither lost nor applied twice', async () => {
  const before = (await state())['accounts.api_keys']?.length ?? 0;
  let isDone = false;
  const made: { id: number; key: string }[] = [];
  const making = Promise.all(
    Array.from({ length: 4 }, async (_, writer) => {
      for (let i = 0; !isDone; i += 1) made.push(await makeKey(`meanwhile ${writer} ${i}`));
    }),
  );
  for (let i = 0; i < 5; i += 1) await snapshot();
  isDone = true;
  await making;
  const found = await state();
  expect(found['accounts.api_keys']).toHaveLength(before + made.length);
  const report = await rebuildAll();
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect(await state()).toEqual(found);
  for (const { key } of made.slice(-20)) expect(await statusWith(key)).toBe(200);
});

test('an interrupted snapshot is ignored, and deletes nothing', async () => {
  const { low } = await textOf(topics.commands);
  const last = await makeKey('last');
  const cut = {
    ...world.kafka,
    publisher: () => {
      const publisher = world.kafka.publisher();
      let left = 2;
      return {
        ...publisher,
        publish: async (...args: Parameters<typeof publisher.publish>) => {
          left -= 1;
          if (left < 0) throw new Error('killed');
          return await publisher.publish(...args);
        },
      };
    },
  };
  await expect(
    takeSnapshot({ kafka: cut as never, pool: world.pool, now: Date.now }, decided),
  ).rejects.toThrow('killed');
  expect((await textOf(topics.commands)).low).toBe(low);
  const now = await state();
  const report = await rebuildAll();
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect(await state()).toEqual(now);
  expect(await statusWith(last.key)).toBe(200);
});

test('a snapshot that lost its lock is not closed, because another may have begun', async () => {
  const { low } = await textOf(topics.commands);
  await makeKey('meanwhile, without a lock');
  let isCut = false;
  const cut = {
    ...world.kafka,
    publisher: () => {
      const publisher = world.kafka.publisher();
      return {
        ...publisher,
        publish: async (...args: Parameters<typeof publisher.publish>) => {
          const places = await publisher.publish(...args);
          if (isCut) return places;
          isCut = true;
          const { rowCount } = await world.pool.query(
            `SELECT pg_terminate_backend(pid) FROM pg_locks
             WHERE locktype = 'advisory' AND objsubid = 1
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND
               (classid::bigint << 32 | objid::bigint) = hashtextextended('tds.rebuild accounts', 0)`,
          );
          expect(rowCount).toBe(1);
          return places;
        },
      };
    },
  };
  await expect(
    takeSnapshot({ kafka: cut as never, pool: world.pool, now: Date.now }, decided),
  ).rejects.toMatchObject({ code: 'CONFLICT' });
  expect((await textOf(topics.commands)).low).toBe(low);
  const before = await state();
  const report = await rebuildAll();
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect(await state()).toEqual(before);
});

test('a rebuild begun before a snapshot restarts once the remaining commands are deleted', async () => {
  await rebuildAll({ swap: false });
  const shadowed = await makeKey('behind the shadow');
  await snapshotOfAll();
  const before = await state();
  const report = await rebuildAll();
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect(report.builds.map(({ isResumed }) => isResumed)).toEqual([false, false, false]);
  expect(await state()).toEqual(before);
  expect(await statusWith(shadowed.key)).toBe(200);

  // One that has read all that was deleted goes on.
  await rebuildAll({ swap: false });
  await snapshotOfAll();
  expect((await rebuildAll()).builds.map(({ isResumed }) => isResumed)).toEqual([true, true, true]);
});

test('lost tables are filled from the snapshot and the commands after it', async () => {
  await snapshotOfAll();
  await makeKey('behind it');
  const before = await state();
  await world.stopProjector();
  await world.pool.query(`DELETE FROM tds.checkpoints WHERE consumer IN ('accounts', 'sync', 'webhooks')`);
  const served = await servedBuilds(world.pool);
  for (const [name, tables] of [
    ['accounts', ['sessions', 'api_keys', 'users', 'command_outcomes']],
    ['sync', ['sync_blobs', 'command_outcomes']],
    [
      'webhooks',
      ['webhook_subscriptions', 'webhooks', 'disabled_owners', 'webhook_requests', 'command_outcomes'],
    ],
  ] as const) {
    for (const table of tables) await world.pool.query(`DELETE FROM ${served.schema(name)}.${table}`);
  }
  await world.startProjector();
  await until(
    async () => (await state())['accounts.api_keys']?.length === before['accounts.api_keys']?.length,
  );
  expect(await state()).toEqual(before);
});

test('a rebuild repairs read models that were restored from before a snapshot', async () => {
  await snapshotOfAll();
  await makeKey('behind it, too');
  await until(async () => await atEnd(world.kafka, world.pool, topics.commands, ['accounts']));
  const before = await state();
  await world.stopProjector();
  const schema = (await servedBuilds(world.pool)).schema('accounts');
  await world.pool.query(`DELETE FROM ${schema}.api_keys`);
  await world.pool.query(`UPDATE tds.checkpoints SET next_offset = 0 WHERE consumer = 'accounts'`);
  await expect(world.startProjector()).rejects.toMatchObject({
    code: 'CHECKPOINT_OUTSIDE_LOG',
    message: expect.stringContaining('`tds rebuild accounts`'),
  });
  await world.stopProjector();
  await rebuildAll();
  await world.startProjector();
  expect(await state()).toEqual(before);
  await makeKey('after the repair');
});

test('a rebuild names differing rows by their primary keys, and prints nothing else of them', async () => {
  const schema = (await servedBuilds(world.pool)).schema('accounts');
  await world.pool.query(`UPDATE ${schema}.users SET created_at = created_at + 1 WHERE id = $1`, [alice.id]);
  const { code, stdout } = await tds(world.env, 'rebuild', 'accounts', '--json');
  expect(code).toBe(0);
  const [report] = JSON.parse(stdout) as RebuildReport[];
  expect(report?.tables.flatMap(({ samples }) => samples)).toEqual([
    { kind: 'different', key: `id=${alice.id}`, height: null },
  ]);
  expect(stdout).not.toContain('$argon2id');
});

test('a rebuild reads a snapshot whose messages are in the log twice', async () => {
  await snapshotOfAll();
  const publisher = world.kafka.publisher();
  for (const message of await messagesOf(topics.snapshots))
    await publisher.publish(topics.snapshots, [{ value: message }]);
  await publisher.close();
  const before = await state();
  const report = await rebuildAll();
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect(await state()).toEqual(before);
});

/** Takes a snapshot of the webhooks and the catalogue whose messages are as an earlier release wrote them. */
async function snapshotOfRelease(asWritten: (message: SnapshotMessage) => SnapshotMessage): Promise<void> {
  const kafka = {
    ...world.kafka,
    publisher: () => {
      const publisher = world.kafka.publisher();
      const publish = async (
        topic: Topic<SnapshotMessage>,
        messages: readonly { value: SnapshotMessage }[],
      ) =>
        await publisher.publish(
          topic,
          messages.map(({ value }) => ({ value: asWritten(value) })),
        );
      return { ...publisher, publish };
    },
  };
  const all = [...decided, catalogue];
  const names = all.map(({ name }) => name);
  await until(async () => await atEnd(world.kafka, world.pool, topics.commands, names));
  await takeSnapshot({ kafka: kafka as never, pool: world.pool, now: Date.now }, all);
}

function inVersions(message: SnapshotMessage, versions: Readonly<Record<string, number>>): SnapshotMessage {
  if (message.type !== 'snapshot.closed') return message;
  const projections = message.projections.map(({ version, ...part }) => ({
    ...part,
    version: versions[part.name] ?? version,
  }));
  return { ...message, projections };
}

test('a rebuild converts the snapshot of an earlier version, and refuses one of an unknown version', async () => {
  await importRecords(world, { dapps: [aDapp('rhino', { description: 'a bridge', tags: ['swap'] })] });
  const wordsOf = async (): Promise<unknown> =>
    (
      await world.pool.query(
        `SELECT words::text FROM ${(await servedBuilds(world.pool)).schema('catalogue')}.dapps`,
      )
    ).rows;
  const [owners, words] = [(await state())['webhooks.disabled_owners'], await wordsOf()];
  expect(owners).toHaveLength(1);
  await snapshotOfRelease((message) => {
    if (message.type === 'snapshot.closed') {
      const { projections, ...rest } = inVersions(message, { webhooks: 2, catalogue: 1 }) as typeof message;
      return {
        ...rest,
        projections: projections.map(({ counts: { disabled_owners: count, ...counts }, ...part }) => ({
          ...part,
          counts: count === undefined ? counts : { ...counts, shut_out_users: count },
        })),
      };
    }
    if (message.table === 'disabled_owners') return { ...message, table: 'shut_out_users' };
    if (message.table !== 'dapps') return message;
    return { ...message, rows: message.rows.map((row) => ({ ...row, words: "'old':1" })) };
  });
  const report = await rebuildAll({ projections: [webhooks, catalogue] });
  expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  expect([(await state())['webhooks.disabled_owners'], await wordsOf()]).toEqual([owners, words]);

  await snapshotOfRelease((message) => inVersions(message, { webhooks: 9 }));
  await expect(rebuildAll({ projections: [webhooks] })).rejects.toMatchObject({
    code: 'VERSION_MISMATCH',
    message: expect.stringMatching(/webhooks in version 9; .* version 3 /),
  });
});
