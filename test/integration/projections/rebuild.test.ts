import { once } from 'node:events';

import kafkajs from 'kafkajs';
import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import type { Clock } from '../../../infra/clock.ts';
import { endingWith } from '../../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import { inTransaction } from '../../../infra/postgres/client.ts';
import { dropBuild, listBuilds, withRebuildLock } from '../../../projections/engine/builds.ts';
import { lockServed, withWritersStopped } from '../../../projections/engine/served-lock.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { Projection } from '../../../projections/define.ts';
import { chainProjections, postgresProjections } from '../../../projections/index.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import type { RebuildProgress, RebuildReport } from '../../../projections/engine/rebuild/rebuild.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import { accepted, busyBlock, reverted } from '../../support/chain-messages.ts';
import { atEnd, projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { tds } from '../../support/tds.ts';

/** Read models made anew from the log, beside a runner that goes on writing what is served. */

let world: ProjectionWorld;
let seq = 0;
beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world.close());
afterEach(async () => await world.stopRuns());
beforeEach(() => {
  seq += 1_000_000;
});

const chain = chainProjections as readonly Projection[];
const blocks = (first: number, count: number, fork = 0) =>
  Array.from({ length: count }, (_, index) => accepted(busyBlock(first + index, 4, fork), (seq += 1)));

interface Attempt {
  readonly kafka?: Kafka;
  readonly clock?: Clock;
  readonly projections?: readonly Projection[];
  readonly swap?: boolean;
  readonly clickhouse?: ClickHouse;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: RebuildProgress) => void;
}
const rebuildNow = async (attempt: Attempt = {}): Promise<RebuildReport> =>
  await rebuild(
    {
      kafka: attempt.kafka ?? world.kafka,
      clickhouse: attempt.clickhouse ?? world.clickhouse,
      pool: world.pool,
      clock: attempt.clock ?? systemClock,
      log: world.log,
      metrics: createProjectionMetrics(new Registry()),
      signal: attempt.signal ?? new AbortController().signal,
    },
    attempt.projections ?? chain,
    { swap: attempt.swap ?? true, onProgress: attempt.onProgress ?? (() => {}) },
  );

/** Rows of what is served, by table: their number, and a hash of all their values. */
const served = async (): Promise<Record<string, unknown>> => {
  const names = await servedBuilds(world.pool);
  const sums: Record<string, unknown> = {};
  for (const projection of chainProjections) {
    const derived = new Set(['account_ledger_ranges', 'transfer_counts', 'indexed_block_ranges']);
    for (const [, table = ''] of projection.ddl.matchAll(/EXISTS \{\{([a-z_]+)\}\}/g)) {
      const columns = derived.has(table) ? '* EXCEPT (seq)' : '*';
      const [row] = await world.select(
        `SELECT count() AS rows, groupBitXor(sipHash64(${columns})) AS hash FROM ${names.table(table)} FINAL`,
      );
      sums[table] = row;
    }
  }
  return sums;
};
const buildsOf = async (name: string): Promise<string[]> =>
  (await listBuilds(world.pool, name)).map(({ build, state }) => `${build} ${state}`);
const heightsServed = async (first: number, count: number): Promise<number> => {
  const table = (await servedBuilds(world.pool)).table('indexed_blocks');
  const rows = await world.select(
    `SELECT block_desc FROM ${table} FINAL WHERE block_desc BETWEEN ${0xffff_ffff - first - count + 1} AND ${0xffff_ffff - first}`,
  );
  return rows.length;
};
const settled = (): Promise<void> => world.settled();

describe('a rebuild from the log', () => {
  test('builds equal tables beside the served ones, and the runner continues with them after the swap', async () => {
    await world.publish(blocks(0, 30));
    const fork = blocks(20, 10, 1);
    const orphans = blocks(20, 10)
      .map(({ block }) => reverted(block, (seq += 1)))
      .toReversed();
    await world.publish([...orphans, ...fork, ...blocks(5000, 20)]);
    const run = await world.run();
    await settled();
    const before = await served();

    const report = await rebuildNow();
    expect(report.tables.filter(({ differing }) => differing.length > 0)).toEqual([]);
    expect(report.tables.find(({ table }) => table === 'transfers')?.rows).toBe(
      Number((before['transfers'] as { rows: unknown }).rows),
    );
    expect(report.isSwapped).toBe(true);
    expect(await buildsOf('transfers')).toEqual(['1 retired', '2 serving']);
    expect(await served()).toEqual(before);

    // The runner that wrote build 1 goes on with build 2, and with that alone.
    await world.publish(blocks(30, 5));
    await settled();
    expect(await heightsServed(30, 5)).toBe(5);
    expect(await world.select('SELECT 1 AS x FROM {{transfers}} WHERE block_desc = 0xffffffff - 34')).toEqual(
      [],
    );
    await run.stop();
    await run.done;
  });

  test('reports differences, and serves what the log says afterwards', async () => {
    await world.publish(blocks(0, 12));
    await world.catchUp();
    const before = await served();
    const names = await servedBuilds(world.pool);
    const [ledger, counts] = [names.table('account_ledger'), names.table('transfer_counts')];
    const alter = async (table: string, change: string, where: string): Promise<void> =>
      await world.clickhouse.command(
        `INSERT INTO ${table} SELECT * REPLACE (${change}) FROM (SELECT * FROM ${table} FINAL WHERE ${where} LIMIT 1)`,
      );
    await alter(names.table('transfers'), 'amount + 1 AS amount', 'block_desc = 0xffffffff - 3');
    await alter(ledger, 'toUInt8(1) AS is_deleted', 'block_desc = 0xffffffff - 5');
    await alter(ledger, 'toUInt32(0xffffffff - 7000000) AS block_desc', 'block_desc = 0xffffffff - 6');
    await alter(counts, 'transfers + 5 AS transfers', 'range = 0');
    expect(await served()).not.toEqual(before);

    const report = await rebuildNow({
      projections: chain.filter(({ name }) =>
        ['transfers', 'account-ledger', 'transfer-counts'].includes(name),
      ),
    });
    const found = report.tables.flatMap(({ table, differing, samples }) =>
      differing.length === 0
        ? []
        : [{ table, ranges: differing.map(({ bucket }) => bucket), kinds: samples.map(({ kind }) => kind) }],
    );
    expect(found.toSorted((a, b) => a.table.localeCompare(b.table))).toEqual([
      { table: 'account_ledger', ranges: [0, 6835], kinds: expect.arrayContaining(['missing', 'extra']) },
      { table: 'transfer_counts', ranges: [0], kinds: ['different'] },
      { table: 'transfers', ranges: [0], kinds: ['different'] },
    ]);
    const sample = report.tables.find(({ table }) => table === 'transfers')?.samples[0]?.key;
    expect(sample).toMatch(/^token=0x[0-9a-f]{64} block=3 position=\d+ item=0$/);
    expect(await served()).toEqual(before);
  });

  test('resumes its shadow build after an interruption, and changes nothing served without a swap', async () => {
    await world.publish(blocks(9000, 60));
    await world.catchUp();
    const before = await served();
    const serving = (await buildsOf('transfers')).at(-1);

    const stop = new AbortController();
    const slow: ClickHouse = {
      ...world.clickhouse,
      async insertEncoded(table, columns, bytes) {
        await world.clickhouse.insertEncoded(table, columns, bytes);
        stop.abort(new Error('killed'));
      },
    };
    await expect(rebuildNow({ clickhouse: slow, signal: stop.signal })).rejects.toThrow('killed');
    expect((await buildsOf('transfers')).slice(-2)).toEqual([serving, expect.stringMatching(/building$/)]);

    const report = await rebuildNow({ swap: false });
    expect(report.builds.every(({ isResumed }) => isResumed)).toBe(true);
    expect(report.tables.filter(({ differing }) => differing.length > 0)).toEqual([]);
    expect(await buildsOf('transfers')).toContain(serving);
    const again = await rebuildNow();
    expect(again.messages).toBe(0);
    expect(await served()).toEqual(before);
  });

  test('serves a reorg that was published while it compared', async () => {
    await world.publish(blocks(12_000, 20));
    const run = await world.run();
    await settled();
    const published: Promise<void>[] = [];
    const report = await rebuildNow({
      onProgress({ phase }) {
        if (phase !== 'comparing' || published.length > 0) return;
        const orphans = blocks(12_010, 10)
          .map(({ block }) => reverted(block, (seq += 1)))
          .toReversed();
        published.push(world.publish([...orphans, ...blocks(12_010, 13, 1)]));
      },
    });
    await Promise.all(published);
    await settled();
    expect(report.tables.filter(({ differing }) => differing.length > 0)).toEqual([]);
    expect(await heightsServed(12_000, 40)).toBe(23);
    const after = await served();
    expect((await rebuildNow()).tables.filter(({ differing }) => differing.length > 0)).toEqual([]);
    expect(await served()).toEqual(after);
    await run.stop();
  });

  test('ends while blocks come, on a broker that delays each new consumer group for 3 s', async () => {
    await world.publish(blocks(14_000, 20));
    await world.run();
    await settled();
    let height = 14_020;
    let skippedMs = 0;
    let phase = '';
    const kafka: Kafka = {
      ...world.kafka,
      async *readRanges(...args) {
        skippedMs += 3100;
        // The next round has a message to read. Nothing is written during a swap.
        if (phase !== 'swapping') {
          await world.publish(blocks((height += 1), 1));
          await settled();
        }
        yield* world.kafka.readRanges(...args);
      },
    };
    const clock = { ...systemClock, now: () => systemClock.now() + skippedMs };
    const onProgress = (progress: RebuildProgress): void => void ({ phase } = progress);
    const report = await rebuildNow({ kafka, clock, projections: [transfers], onProgress });
    expect(report.isSwapped).toBe(true);
  });

  test('waits for a batch that is being written, and holds back the next one', async () => {
    await world.publish(blocks(15_000, 5));
    const gate = Promise.withResolvers<void>();
    const entered = Promise.withResolvers<void>();
    const held: ClickHouse = {
      ...world.clickhouse,
      async insertEncoded(table, columns, bytes) {
        if (table.startsWith('tx_index')) {
          entered.resolve();
          await gate.promise;
        }
        await world.clickhouse.insertEncoded(table, columns, bytes);
      },
    };
    await world.catchUp();
    const run = await world.run({ clickhouse: held });
    await world.publish(blocks(15_005, 5));
    await entered.promise;
    const phases: string[] = [];
    let isDone = false;
    const rebuilding = rebuildNow({
      projections: chain.filter(({ name }) => name === 'transfers'),
      onProgress: ({ phase }) => phases.push(phase),
    }).finally(() => {
      isDone = true;
    });
    await until(async () => phases.at(-1) === 'waiting for writers');
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(isDone).toBe(false);
    gate.resolve();
    const report = await rebuilding;
    expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
    await settled();
    expect(await heightsServed(15_000, 10)).toBe(10);
    await run.stop();
  });
});

test.each([
  ['of tables in ClickHouse', 'transfers'],
  ['of tables in PostgreSQL', 'tokens'],
])('a rebuild %s that is stopped while it compares swaps nothing', async (_, name) => {
  await world.publish(blocks(17_000, 5));
  await world.catchUp();
  const [projection] = [...chain, ...postgresProjections].filter((one) => one.name === name);
  if (projection?.kind === 'postgres') {
    const run = await runPostgresProjection({ ...world, projection, groupId: `stop-${name}` });
    await run.stop();
  }
  const before = await buildsOf(name);
  const stop = new AbortController();
  await expect(
    rebuildNow({
      projections: projection === undefined ? [] : [projection],
      signal: stop.signal,
      onProgress: ({ phase }) => void (phase === 'comparing' && stop.abort(new Error('stopped'))),
    }),
  ).rejects.toThrow('stopped');
  expect((await buildsOf(name)).filter((one) => one.endsWith('serving'))).toEqual(
    before.filter((one) => one.endsWith('serving')),
  );
});

test('an unfinished rebuild whose shadow build lacks a table begins anew', async () => {
  const { builds } = await rebuildNow({ projections: [transfers], swap: false });
  // As after a drop of the shadow build that was killed.
  const table = `transfers_v${transfers.version}_b${builds[0]?.after}`;
  await world.clickhouse.ddl(`DROP TABLE ${table} SYNC`);
  const { builds: anew, tables } = await rebuildNow({ projections: [transfers], swap: false });
  expect(anew).toMatchObject([{ isResumed: false }]);
  expect(tables).toMatchObject([{ table: 'transfers', differing: [] }]);
  expect(tables[0]?.rows).toBeGreaterThan(0);
});

test('a swap keeps only the writers of its own projections waiting', async () => {
  await world.catchUp();
  await withWritersStopped(world.pool, ['transfers'], { task: 'The test', remedy: 'try again' }, async () => {
    const [own, other] = [['transfers'], ['tokens']].map((names) =>
      lockServed(
        world.pool,
        names.map((projection) => ({ projection, version: 0, build: 0, names: {} })),
      ).catch((error: unknown) => error),
    );
    // Both of them name a build that is not served, which each is told when it is its turn.
    expect(await other).toMatchObject({ code: 'BUILD_RETIRED' });
    const first = await Promise.race([own, new Promise((resolve) => setTimeout(resolve, 300, 'waits'))]);
    expect(first).toBe('waits');
  });
});

test('writers go on when what they wait for takes too long', async () => {
  await world.catchUp();
  const served = (await listBuilds(world.pool, 'transfers')).filter(({ state }) => state === 'serving');
  expect(served).toHaveLength(1);
  const late: unknown[] = [];
  const work = withWritersStopped(
    world.pool,
    ['transfers'],
    { task: 'The test', remedy: 'nothing was written' },
    async (tx, signal) => {
      await once(signal, 'abort');
      // As while a store does not answer.
      const lock = await lockServed(world.pool, served);
      late.push(await tx.query('SELECT 1').catch((error: unknown) => error));
      late.push(
        await endingWith(world.clickhouse, signal)
          .command('SELECT 1')
          .catch((error: unknown) => error),
      );
      await lock.release();
    },
    50,
  );
  const tooLong = { code: 'CONFLICT', message: 'The test took over 0.05 s: nothing was written' };
  await expect(work).rejects.toMatchObject(tooLong);
  expect(late).toMatchObject([tooLong, { name: expect.any(String) }]);
});

describe('a rebuild refuses', () => {
  test('while another one runs, whose shadow build cannot be dropped', async () => {
    await world.catchUp();
    const dropShadow = async (): Promise<void> => {
      const shadow = (await listBuilds(world.pool, 'transfers')).find(({ state }) => state === 'building');
      await dropBuild(world.pool, world.clickhouse, 'transfers', shadow?.build ?? 0);
    };
    let refused: Promise<unknown>[] = [];
    await rebuildNow({
      projections: [transfers],
      onProgress() {
        if (refused.length > 0) return;
        refused = [rebuildNow({ projections: [transfers] }), dropShadow()].map((attempt) =>
          attempt.catch((error: unknown) => error),
        );
      },
    });
    for (const error of await Promise.all(refused)) {
      expect(error).toMatchObject({
        code: 'CONFLICT',
        message: expect.stringContaining('of transfers is running in another process'),
      });
    }
    expect(refused).toHaveLength(2);
  });

  test('a message that cannot be read, until it is skipped', async () => {
    await world.catchUp();
    const publisher = world.kafka.publisher();
    const partition = partitionOfHeight(3 * 1024);
    const [place] = await publisher.publish(topics.chainBlocks, [{ value: { v: 9 } as never, partition }]);
    await publisher.close();
    const id = `chain.blocks:${partition}:${place?.offset}`;
    const skipFor = async (names: readonly string[]): Promise<void> =>
      void (await world.pool.query(
        `INSERT INTO tds.skips (projection, topic, partition, message_offset)
         SELECT *, 'chain.blocks', $2::int, $3::bigint FROM unnest($1::text[]) ON CONFLICT DO NOTHING`,
        [names, partition, place?.offset],
      ));
    // Served, it was skipped for one projection only, by hand.
    await skipFor(chain.map(({ name }) => name));
    await world.publish(blocks(3 * 1024, 2));
    await world.catchUp();
    await world.pool.query("DELETE FROM tds.skips WHERE projection = 'transfers'");
    await expect(rebuildNow({ projections: [transfers] })).rejects.toMatchObject({
      code: 'MESSAGE_INVALID',
      message: expect.stringContaining(`tds quarantine skip ${id}`),
    });
    // Recorded for the shadow, it can be listed and skipped by name; what is served is not halted.
    const { rows: halts } = await world.pool.query(
      'SELECT projection, state, message_offset FROM tds.projection_halts JOIN tds.builds USING (projection, build)',
    );
    expect(halts).toEqual([{ projection: 'transfers', state: 'building', message_offset: place?.offset }]);
    await skipFor(['transfers']);
    const report = await rebuildNow({ projections: [transfers] });
    expect(report.tables.flatMap(({ differing }) => differing)).toEqual([]);
  });

  test('to drop a served build, and drops a retired one with its tables and checkpoints', async () => {
    const [first] = await listBuilds(world.pool, 'tx-index');
    const serving = (await listBuilds(world.pool, 'tx-index')).find(({ state }) => state === 'serving');
    await expect(
      dropBuild(world.pool, world.clickhouse, 'tx-index', serving?.build ?? 0),
    ).rejects.toMatchObject({ code: 'CONFLICT' });
    expect(first?.state).toBe('retired');
    await dropBuild(world.pool, world.clickhouse, 'tx-index', first?.build ?? 0);
    expect((await listBuilds(world.pool, 'tx-index')).map(({ build }) => build)).not.toContain(first?.build);
    await expect(world.select(`SELECT 1 AS x FROM ${first?.names['tx_index']}`)).rejects.toThrow();
    const { rows } = await world.pool.query(
      "SELECT 1 FROM tds.checkpoints WHERE consumer = 'tx-index' AND build = $1",
      [first?.build],
    );
    expect(rows).toEqual([]);
  });

  test('to resume a shadow build whose drop was interrupted, which the next drop finishes', async () => {
    const { builds } = await rebuildNow({ projections: [transfers], swap: false });
    const shadow = builds[0]?.after ?? 0;
    const isLockFree: boolean[] = [];
    const clickhouse = {
      async ddl() {
        const { rows } = await world.pool.query<{ free: boolean }>(
          "SELECT pg_try_advisory_xact_lock(hashtext('tds.builds')) AS free",
        );
        isLockFree.push(rows[0]?.free === true);
        throw new Error('an export reads it');
      },
    };
    const dropped = dropBuild(world.pool, clickhouse, 'transfers', shadow);
    await expect(dropped).rejects.toThrow('an export reads it');
    expect(isLockFree).toEqual([true]);
    expect(await buildsOf('transfers')).toContain(`${shadow} retired`);
    const { builds: anew } = await rebuildNow({ projections: [transfers], swap: false });
    expect(anew).toMatchObject([{ after: shadow + 1, isResumed: false }]);
    await dropBuild(world.pool, world.clickhouse, 'transfers', shadow);
    expect((await listBuilds(world.pool, 'transfers')).map(({ build }) => build)).not.toContain(shadow);
    await expect(
      world.select(`SELECT 1 AS x FROM transfers_v${transfers.version}_b${shadow}`),
    ).rejects.toThrow();
  });

  test('one of all, after the reports of those before it are printed as JSON', async () => {
    await world.catchUp();
    const { code, stdout, stderr } = await withRebuildLock(
      world.pool,
      ['transfers'],
      async () => await tds(world.env, 'rebuild', '--all', '--json'),
    );
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/ of transfers is running in another process\n$/),
    ]);
    const [first, ...more] = JSON.parse(stdout) as RebuildReport[];
    expect([first?.builds.map(({ projection }) => projection), more]).toEqual([['transfer-counts'], []]);
  });

  test('when the beginning of the topic is gone', async () => {
    const { name } = topics.chainBlocks;
    const { brokers, prefix } = world.kafkaAddress;
    const admin = new kafkajs.Kafka({ brokers: [...brokers], logLevel: kafkajs.logLevel.NOTHING }).admin();
    await admin.connect();
    const builds = await listBuilds(world.pool, 'transfers');
    await admin.fetchTopicMetadata({ topics: [prefix + name] });
    await admin.deleteTopicRecords({ topic: prefix + name, partitions: [{ partition: 0, offset: '3' }] });
    await admin.disconnect();
    await expect(rebuildNow({ projections: [transfers] })).rejects.toMatchObject({
      code: 'LOG_BEGINNING_GONE',
      message: expect.stringContaining('partition 0 begins at offset 3'),
    });
    expect(await listBuilds(world.pool, 'transfers')).toEqual(builds);
  });
});

test('another version is built beside the served one, whose writer then fails with VERSION_MISMATCH', async () => {
  const own = await projectionWorld();
  try {
    await own.publish(blocks(0, 6));
    const run = await own.run({ projections: [transfers] });
    await until(async () => await atEnd(own.kafka, own.pool, topics.chainBlocks, ['transfers']));
    const next = {
      ...transfers,
      version: transfers.version + 1,
      ddl: transfers.ddl.replace('is_deleted UInt8', "is_deleted UInt8,\n  note String DEFAULT ''"),
    };
    const { tables, builds } = await rebuild(
      {
        ...own,
        clock: systemClock,
        metrics: createProjectionMetrics(new Registry()),
        signal: new AbortController().signal,
      },
      [next],
      { swap: true, onProgress: () => {} },
    );
    expect(builds).toEqual([
      { projection: 'transfers', version: next.version, before: 1, after: 2, isResumed: false },
    ]);
    expect(tables).toEqual([
      { projection: 'transfers', table: 'transfers', rows: 48, differing: [], unsettled: [], samples: [] },
    ]);
    expect((await servedBuilds(own.pool)).table('transfers')).toBe(`transfers_v${next.version}_b2`);
    // The old program meets the swap at its next message, and says why it ends.
    await own.publish(blocks(6, 1));
    await expect(run.done).rejects.toMatchObject({ code: 'VERSION_MISMATCH' });
    await run.stop();
    const renewed = await runClickHouseProjections({
      ...own,
      projections: [next],
      groupId: 'renewed',
      metrics: createProjectionMetrics(new Registry()),
    });
    await until(async () => {
      const [row] = await own.select(`SELECT count() AS rows FROM transfers_v${next.version}_b2 FINAL`);
      return Number(row?.['rows']) === 56;
    });
    await renewed.stop();
  } finally {
    await own.close();
  }
});

test('tables that ClickHouse has lost are rebuilt from the log', async () => {
  const own = await projectionWorld();
  try {
    await own.publish(blocks(0, 6));
    await own.catchUp();
    for (const { names } of await listBuilds(own.pool)) {
      for (const table of Object.values(names))
        await own.clickhouse.command(`DROP TABLE IF EXISTS ${table} SYNC`);
    }
    const { tables } = await rebuild(
      {
        ...own,
        clock: systemClock,
        metrics: createProjectionMetrics(new Registry()),
        signal: new AbortController().signal,
      },
      chain,
      { swap: true, onProgress: () => {} },
    );
    expect(tables.length).toBeGreaterThan(5);
    expect(tables.every(({ isLost }) => isLost === true)).toBe(true);
    expect(tables.find(({ table }) => table === 'transfers')?.rows).toBe(48);
    await own.publish(blocks(6, 1));
    await own.catchUp();
    const served = (await servedBuilds(own.pool)).table('transfers');
    const [row] = await own.select(`SELECT count() AS n FROM ${served} FINAL`);
    expect(Number(row?.['n'])).toBe(56);
  } finally {
    await own.close();
  }
});

test('a rebuild of what has read messages that Kafka has lost ends at the end of the log', async () => {
  const own = await projectionWorld();
  try {
    await own.publish(blocks(0, 6));
    await own.catchUp();
    const rebuilt = async () =>
      await rebuild(
        {
          ...own,
          clock: systemClock,
          metrics: createProjectionMetrics(new Registry()),
          signal: new AbortController().signal,
        },
        [transfers],
        { swap: true, onProgress: () => {} },
      );
    await own.pool.query(
      "UPDATE tds.checkpoints SET next_offset = 9 WHERE consumer = 'transfers' AND partition = 0",
    );
    await expect(own.run()).rejects.toMatchObject({
      message: expect.stringContaining('`tds rebuild transfers`'),
    });
    expect(await rebuilt()).toMatchObject({ isSwapped: true, messages: 6 });
    await own.publish(blocks(6, 1));
    await own.catchUp();
    const [row] = await own.select(
      `SELECT count() AS n FROM ${(await servedBuilds(own.pool)).table('transfers')} FINAL`,
    );
    expect(Number(row?.['n'])).toBe(56);
  } finally {
    await own.close();
  }
});

test('a new read model on an old log is built before it is served, while the others go on', async () => {
  const own = await projectionWorld();
  try {
    const older = chainProjections.filter(({ name }) => name !== 'account-feed');
    await own.publish(blocks(0, 12));
    const run = await own.run({ projections: older });
    const names = older.map(({ name }) => name);
    await own.settled(names);

    await expect(own.run()).rejects.toMatchObject({
      code: 'VERSION_MISMATCH',
      message: expect.stringContaining('tds rebuild account-feed'),
    });
    expect((await servedBuilds(own.pool)).table.bind(null, 'account_feed')).toThrow('No build');
    expect(await listBuilds(own.pool, 'account-feed')).toEqual([]);
    await own.publish(blocks(12, 3));
    await own.settled(names);

    const { builds, tables, isSwapped } = await rebuild(
      {
        ...own,
        clock: systemClock,
        metrics: createProjectionMetrics(new Registry()),
        signal: new AbortController().signal,
      },
      chainProjections.filter(({ name }) => name === 'account-feed'),
      { swap: true, onProgress: () => {} },
    );
    expect([builds, tables, isSwapped]).toEqual([
      [expect.objectContaining({ projection: 'account-feed', before: null, after: 1 })],
      [],
      true,
    ]);
    expect(await atEnd(own.kafka, own.pool, topics.chainBlocks, ['account-feed'])).toBe(true);
    await run.stop();
    const all = await own.run();
    await own.publish(blocks(15, 2));
    await own.settled();
    await all.stop();
    const built = await own.checksums();

    const fresh = await projectionWorld();
    try {
      seq -= 17;
      await fresh.publish(blocks(0, 17));
      await fresh.catchUp();
      expect(built).toEqual(await fresh.checksums());
    } finally {
      await fresh.close();
    }
  } finally {
    await own.close();
  }
});

test('PostgreSQL projections are folded again, compared and swapped, and differing rows are reported', async () => {
  const own = await projectionWorld();
  try {
    const tokens = postgresProjections.find(({ name }) => name === 'tokens');
    if (tokens === undefined) throw new Error('there is no projection of tokens');
    const publisher = own.kafka.publisher();
    const addressOf = (number: number): string => `0x${number.toString(16).padStart(64, '0')}`;
    const describeTokens = async (first: number, count: number): Promise<void> => {
      await publisher.publish(
        topics.tokens,
        Array.from({ length: count }, (_, index) => ({
          key: String(first + index),
          value: topics.tokens.schema.parse({
            type: 'token.described',
            v: 1,
            token: addressOf(first + index),
            name: `Coin ${first + index}`,
            symbol: 'C',
            decimals: 18,
            standard: 'erc20',
            class_hash: null,
            block: 1,
            observed_at: 1_700_000_000_000,
          }),
        })),
      );
    };
    await describeTokens(1, 1200);
    const options = {
      ...own,
      projection: tokens,
      groupId: 'tokens',
      metrics: createProjectionMetrics(new Registry()),
    };
    const run = await runPostgresProjection(options);
    const caughtUp = async (count: number): Promise<void> =>
      await until(async () => {
        const schema = (await servedBuilds(own.pool)).schema('tokens');
        const { rows } = await own.pool.query(`SELECT count(*) AS n FROM ${schema}.tokens`);
        return rows[0]?.n === count;
      });
    await caughtUp(1200);
    await own.pool.query(`UPDATE tokens_v1_b1.tokens SET name = 'Forged' WHERE name = 'Coin 7'`);
    await own.pool.query(`UPDATE tokens_v1_b1.tokens SET token = '0xf' WHERE name = 'Coin 8'`);
    const { tables } = await rebuild(
      {
        ...own,
        clock: systemClock,
        metrics: createProjectionMetrics(new Registry()),
        signal: new AbortController().signal,
      },
      [tokens],
      { swap: true, onProgress: () => {} },
    );
    expect(tables.find(({ table }) => table === 'tokens')).toMatchObject({
      rows: 1200,
      samples: [
        { kind: 'different', key: `token=${addressOf(7)}` },
        { kind: 'extra', key: 'token=0xf' },
        { kind: 'missing', key: `token=${addressOf(8)}` },
      ],
    });
    // The runner goes on with what is served now.
    await describeTokens(2000, 10);
    await caughtUp(1210);
    const { rows } = await own.pool.query(`SELECT count(*) AS n FROM tokens_v1_b1.tokens`);
    expect(rows[0]?.n).toBe(1200);
    // A drop of the previous build gives way to a backup, so that others can open and swap builds.
    const drop = async (): Promise<void> => await dropBuild(own.pool, own.clickhouse, 'tokens', 1);
    await inTransaction(own.pool, async (tx) => {
      await tx.query('LOCK TABLE tokens_v1_b1.tokens IN ACCESS SHARE MODE');
      await expect(drop()).rejects.toMatchObject({
        code: 'CONFLICT',
        message: expect.stringContaining('Tables of tokens_v1_b1 are being read'),
      });
    });
    await drop();
    expect((await listBuilds(own.pool, 'tokens')).map(({ build }) => build)).toEqual([2]);
    await run.stop();
    await publisher.close();
  } finally {
    await own.close();
  }
});
