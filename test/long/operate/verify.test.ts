import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { createMetrics } from '../../../infra/metrics.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { withNames } from '../../../projections/define.ts';
import { reportLines } from '../../../projections/engine/verify/report-lines.ts';
import type { Difference } from '../../../projections/engine/verify/difference.ts';
import { chainProjections } from '../../../projections/index.ts';
import { startSampling } from '../../../projections/engine/verify/sampling.ts';
import { verify } from '../../../projections/engine/verify/verify.ts';
import type { VerifyOptions, VerifyReport } from '../../../projections/engine/verify/verify.ts';
import { accepted, busyBlock, reverted } from '../../support/chain-messages.ts';
import { projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** Every kind of difference, planted in real stores: each is named, nothing else is, and what can be repaired is. */

const FIRST = 1000;
const LAST = 1059;
let world: ProjectionWorld;
let names: Record<string, string>;

beforeAll(async () => {
  world = await projectionWorld();
  const orphan = busyBlock(1010, 4, 1);
  // Over the bound of two ranges, and so of two partitions; a reorg, and a block that was repaired.
  const heights = Array.from({ length: LAST - FIRST + 1 }, (_, index) => FIRST + index);
  await world.publish([accepted(orphan, 1), reverted(orphan, 2)]);
  await world.publish(heights.map((height) => accepted(busyBlock(height, 4), 3)));
  await world.publish([reverted(busyBlock(1030, 4), 4), accepted(busyBlock(1030, 4), 5)]);
  await world.catchUp();
  await world.pool.query(
    `INSERT INTO tds.chunks (name, range_start, cursor, final_height) VALUES ('live', $1, $2, $1)`,
    [FIRST, LAST + 1],
  );
  const served = await servedBuilds(world.pool);
  const placeholders = chainProjections.flatMap(({ ddl }) =>
    [...ddl.matchAll(/\{\{([a-z_]+)\}\}/g)].map(([, name = '']) => name),
  );
  names = Object.fromEntries(placeholders.map((name) => [name, served.table(name)]));
});
afterAll(async () => await world?.close());

/** Where it is not about every table: a look at all of them takes some hundred statements. */
const some = chainProjections.filter(({ name }) =>
  ['transfers', 'account-ledger', 'nft-transfers', 'indexed-blocks'].includes(name),
);
const look = async (
  options: Partial<VerifyOptions> = {},
  projections = chainProjections,
): Promise<VerifyReport> =>
  await verify(
    { ...world, projections, deferred: [], signal: new AbortController().signal },
    { from: null, to: null, repair: false, waitMs: 5000, betweenComparisonsMs: 50, ...options },
  );
const plant = async (sql: string): Promise<void> =>
  await world.clickhouse.command(withNames(sql, names), { settings: { lightweight_deletes_sync: 2 } });
const whats = (differences: readonly Difference[]): string[] =>
  differences.map(({ what }) => what).toSorted();
const select = async (sql: string) => await world.select(withNames(sql, names));
/** A row's columns, some of them changed. */
const copy = (table: string, changes: string, where: string): string =>
  `INSERT INTO {{${table}}} SELECT * REPLACE (${changes}) FROM {{${table}}} FINAL WHERE ${where}`;
const at = (height: number): string => `block_desc = 0xffffffff - ${height}`;

const contents = async (): Promise<Record<string, unknown>> => {
  const sums: Record<string, unknown> = {};
  for (const [name, table] of Object.entries(names)) {
    const columns = ['account_ledger_ranges', 'transfer_counts', 'indexed_block_ranges'].includes(name)
      ? '* EXCEPT (seq)'
      : '*';
    const [row] = await select(
      `SELECT count() AS rows, sum(cityHash64(${columns})) AS hash FROM ${table} FINAL`,
    );
    sums[name] = row;
  }
  return sums;
};

test('reports no difference in correct tables, whole or a range of them', async () => {
  const whole = await look();
  expect(whole).toMatchObject({ heights: { from: FIRST, to: LAST }, differences: [], repairedRows: 0 });
  // The orphan lies before everything that is in force.
  expect(whole.messages).toBe(62);
  const part = await look({ from: 1020, to: 1021 });
  expect(part).toMatchObject({ heights: { from: 1020, to: 1021 }, differences: [] });
});

/** What is planted, and how it must be named. */
const plants: readonly [planted: string, name: RegExp][] = [
  [
    `DELETE FROM {{transfers}} WHERE ${at(1005)} AND position_desc = 0xffffffff - 1`,
    /^transfers: missing row .*block=1005 position=1 item=0$/,
  ],
  [
    copy('transfers', 'amount + 1 AS amount', `${at(1006)} LIMIT 1`),
    /^transfers: different row .*block=1006 /,
  ],
  // Says of itself that it is newer than what the log says.
  [
    copy('account_feed', 'amount + 1 AS amount, seq + 9 AS seq', `${at(1007)} LIMIT 1`),
    /^account_feed: different row .*block=1007 /,
  ],
  [
    copy('nft_transfers', 'token_id + 1 AS token_id', `${at(1008)} LIMIT 1`),
    /^nft_transfers: extra row .*block=1008 /,
  ],
  [
    copy('tx_index', "toFixedString('orphan', 32) AS tx_hash", `${at(1010)} LIMIT 1`),
    /^tx_index: extra row .*block=1010$/,
  ],
  [
    copy('indexed_blocks', 'log_offset + 7 AS log_offset', at(1030)),
    /^indexed_blocks: different row block=1030$/,
  ],
  [
    // All rows of one message.
    `DELETE FROM {{account_ledger}} WHERE ${at(1050)}`,
    /^account_ledger: missing row .*block=1050 /,
  ],
  [
    copy(
      'account_ledger',
      'delta + 5 AS delta',
      `${at(1040)} AND leg = 2 AND token = (SELECT max(token) FROM {{account_ledger}} WHERE ${at(1040)}) LIMIT 1`,
    ),
    /^account_ledger: different row .*block=1040 .*leg=2$/,
  ],
  [
    copy('account_ledger_by_block', 'legs + 1 AS legs, seq + 9 AS seq', 'block = 1056 LIMIT 1'),
    /^account_ledger_by_block: different row .*block=1056$/,
  ],
  [
    copy('account_ledger_ranges', 'delta + 1 AS delta, seq + 1000 AS seq', 'range = 0 LIMIT 1'),
    /^account_ledger_ranges: different row .*range=0$/,
  ],
  // Newer, too: of two equal versions the totals may be made of either.
  [
    copy('transfer_counts_by_block', 'transfers + 1 AS transfers, seq + 9 AS seq', 'block = 1055 LIMIT 1'),
    /^transfer_counts_by_block: different row .*block=1055$/,
  ],
  [
    copy('transfer_counts', 'transfers + 1 AS transfers, seq + 1000 AS seq', 'range = 0 LIMIT 1'),
    /^transfer_counts: different row .*range=0$/,
  ],
  [
    copy('indexed_block_ranges', "'nobody' AS chunk", 'range = 0 LIMIT 1'),
    /^indexed_block_ranges: extra row chunk=nobody range=0$/,
  ],
  [
    'DELETE FROM {{indexed_block_ranges}} WHERE range = 1',
    /^indexed_block_ranges: missing row chunk=live range=1$/,
  ],
];
/** What follows from them. */
const consequences = [
  // The total of a base row that is wrong.
  /^transfer_counts: different row .*range=1$/,
  /^account_ledger_ranges: different row .*range=1$/,
  /^token 0x[0-9a-f]{64}, blocks 1000 to 1059: its legs sum to 5; /,
  /^token 0x[0-9a-f]{64}, blocks 1000 to 1059: its legs sum to -?[0-9]+; [0-9]+ legs for [0-9]+ transfers$/,
];

test('reports every difference and nothing else, and repairs restore the tables', async () => {
  const before = await contents();
  for (const [planted] of plants) await plant(planted);
  const without = await look();
  for (const [planted, name] of plants) {
    expect(
      without.differences.some(({ what }) => name.test(what)),
      planted,
    ).toBe(true);
  }
  for (const name of consequences)
    expect(whats(without.differences)).toContainEqual(expect.stringMatching(name));
  const known = [...plants.map(([, name]) => name), ...consequences];
  expect(whats(without.differences).filter((what) => !known.some((name) => name.test(what)))).toEqual([]);
  // Only elsewhere: nothing there is wrong but the totals of the whole range.
  const elsewhere = await look({ from: 1011, to: 1020 });
  expect(new Set(elsewhere.differences.map(({ kind }) => kind))).toEqual(new Set(['derived']));

  const repaired = await look({ repair: true });
  expect(whats(repaired.found)).toEqual(whats(without.differences));
  expect(repaired.differences).toEqual([]);
  expect(repaired.repairedRows).toBeGreaterThanOrEqual(8);
  expect(await contents()).toEqual(before);
});

test('keeps all columns of a row that it deletes, which streams read', async () => {
  const extra = `${at(1009)} AND item_desc = 0xffffffff - 7`;
  await plant(copy('transfers', '0xffffffff - 7 AS item_desc', `${at(1009)} LIMIT 1`));
  const [row] = await select(`SELECT * REPLACE (1 AS is_deleted) FROM {{transfers}} WHERE ${extra}`);
  const report = await look({ from: 1009, to: 1009, repair: true }, some);
  expect(report.repairedTables).toEqual({ transfers: { deleted: 1, inserted: 0 } });
  expect(await select(`SELECT * FROM {{transfers}} WHERE ${extra}`)).toEqual([row]);
});

test('refills emptied tables from the log', async () => {
  const before = await contents();
  const { state } = await servedBuilds(world.pool);
  await plant('TRUNCATE TABLE {{account_ledger}}');
  await plant('TRUNCATE TABLE {{transfer_counts}}');
  const report = await look({ repair: true });
  expect(report.found.length).toBeGreaterThan(100);
  expect(report.differences).toEqual([]);
  expect(await contents()).toEqual(before);
  // Pages that were read before are not given again.
  expect((await servedBuilds(world.pool)).state).not.toBe(state);
});

test('deletes only the totals that are wrong', async () => {
  const before = await contents();
  await plant(copy('transfer_counts', 'transfers + 1 AS transfers, seq + 1000 AS seq', 'range = 0 LIMIT 1'));
  const report = await look({ repair: true });
  expect(report.differences).toEqual([]);
  expect(report.repairedTables).toEqual({ transfer_counts: { deleted: 1, inserted: 0 } });
  expect(await contents()).toEqual(before);
});

test('keeps rows written during a repair', async () => {
  const block = busyBlock(1041, 4);
  await plant(`DELETE FROM {{transfers}} WHERE ${at(1041)}`);
  // Read from the log already, not yet inserted: meanwhile the block is reverted, and its rows are taken back.
  let meanwhile = async (): Promise<void> => {
    await world.publish([reverted(block, 8)]);
    await world.catchUp();
  };
  const clickhouse: ProjectionWorld['clickhouse'] = {
    ...world.clickhouse,
    async command(sql, options) {
      if (sql.startsWith(`INSERT INTO ${names['transfers']}`)) {
        await meanwhile();
        meanwhile = async () => {};
      }
      await world.clickhouse.command(sql, options);
    },
  };
  const report = await verify(
    { ...world, clickhouse, projections: some, deferred: [], signal: new AbortController().signal },
    { from: null, to: null, repair: true, betweenComparisonsMs: 50 },
  );
  expect(whats(report.differences)).toEqual(['block 1041 of the log: no block is accepted']);
  expect(await select(`SELECT 1 AS x FROM {{transfers}} FINAL WHERE ${at(1041)}`)).toEqual([]);
  await world.publish([accepted(block, 9)]);
  await world.catchUp();
  expect((await look({}, some)).differences).toEqual([]);
});

/** A repair, with something that happens before some statement of it. */
const repairing = async (before: (sql: string) => Promise<void>): Promise<VerifyReport> =>
  await verify(
    {
      ...world,
      clickhouse: {
        ...world.clickhouse,
        async command(sql, options) {
          await before(sql);
          await world.clickhouse.command(sql, options);
        },
      },
      projections: some,
      deferred: [],
      signal: new AbortController().signal,
    },
    { from: null, to: null, repair: true, betweenComparisonsMs: 50 },
  );

test('does not report rows written after the log was read', async () => {
  const block = busyBlock(1042, 4);
  const rows = await select(`SELECT 1 AS x FROM {{transfers}} FINAL WHERE ${at(1043)}`);
  await plant(`DELETE FROM {{transfers}} WHERE ${at(1043)}`);
  let isWritten = false;
  const report = await repairing(async (sql) => {
    if (isWritten || !sql.startsWith('INSERT INTO verify_') || !sql.includes(`FROM ${names['transfers']}`))
      return;
    isWritten = true;
    await world.publish([reverted(block, 10), accepted(block, 11)]);
    await world.catchUp();
  });
  expect(isWritten).toBe(true);
  expect(report.differences).toEqual([]);
  expect(report.repairedTables['transfers']).toEqual({ deleted: 0, inserted: rows.length });
  expect(reportLines(report)).toEqual([
    ...report.found.map(({ kind, what }) => `repaired: ${kind}: ${what}`),
    ...Object.entries(report.repairedTables).map(
      ([table, { deleted, inserted }]) => `${table}: ${deleted} wrong rows deleted, ${inserted} inserted`,
    ),
    expect.stringMatching(/^Blocks 1000 to 1059, [0-9]+ messages: no difference\.$/),
  ]);
});

test('reports no differences for blocks that are rewritten while they are compared', async () => {
  let seq = 20;
  let left = 1;
  const clickhouse: ProjectionWorld['clickhouse'] = {
    ...world.clickhouse,
    async rows(query, params, options) {
      if (query.name === 'verify.hint') left -= 1;
      else if (query.name === 'log.links' && left >= 0) {
        const block = busyBlock(1044, 4);
        await world.publish([reverted(block, seq), accepted(block, seq + 1)]);
        seq += 2;
        await world.catchUp();
      }
      return await world.clickhouse.rows(query, params, options);
    },
  };
  const again = async (): Promise<VerifyReport> =>
    await verify(
      { ...world, clickhouse, projections: some, deferred: [], signal: new AbortController().signal },
      { from: null, to: null, repair: false, betweenComparisonsMs: 50 },
    );
  expect((await again()).differences).toEqual([]);
  expect(seq).toBe(22);
  left = 100;
  await expect(again()).rejects.toMatchObject({
    code: 'CONFLICT',
    message: expect.stringContaining('blocks 1044 to 1044 were written again while they were compared'),
  });
  await expect(look({ from: 1041, to: 1040 })).rejects.toMatchObject({ code: 'INVALID' });
});

test('reports no difference in totals that change while they are compared, also by blocks outside the verified heights', async () => {
  const block = busyBlock(1044, 4);
  let isReverted = false;
  // The block is in the computed totals, but no longer in the served ones.
  const clickhouse: ProjectionWorld['clickhouse'] = {
    ...world.clickhouse,
    async command(sql, options) {
      await world.clickhouse.command(sql, options);
      if (isReverted || !/INSERT INTO verify_\w+_indexed_block_ranges/.test(sql)) return;
      isReverted = true;
      await world.publish([reverted(block, 300)]);
      await world.catchUp();
    },
  };
  const report = await verify(
    { ...world, clickhouse, projections: some, deferred: [], signal: new AbortController().signal },
    { from: 1046, to: 1048, repair: false, waitMs: 5000, betweenComparisonsMs: 50 },
  );
  expect(report.differences).toEqual([]);
  expect(isReverted).toBe(true);
  await world.publish([accepted(block, 301)]);
  await world.catchUp();
  expect((await look()).differences).toEqual([]);
});

/** The server has those of other files, too. */
const OWN_LOCK = `locktype = 'advisory'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

test('a repairer that lost its lock deletes nothing and blocks nobody', async () => {
  // A row that no repair has deleted before: its tombstone would let the next verification delete it.
  await plant(copy('nft_transfers', 'token_id + 2 AS token_id', `${at(1008)} LIMIT 1`));
  await world.clickhouse.command('CREATE TABLE verify_0badcafe_left (x UInt8) ENGINE = Memory');
  const before = await contents();
  const { state } = await servedBuilds(world.pool);
  const failing = repairing(async (sql) => {
    if (!/^INSERT INTO verify_\w+_wrong/.test(sql)) return;
    await world.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE ${OWN_LOCK} AND objsubid = 1
         AND (classid::bigint << 32) + objid::bigint = hashtextextended('tds.verify', 0)`,
    );
  });
  await expect(failing).rejects.toMatchObject({ code: 'CONFLICT' });
  expect(await contents()).toEqual(before);
  expect((await servedBuilds(world.pool)).state).not.toBe(state);
  const away = repairing(async (sql) => {
    if (/^INSERT INTO verify_\w+_wrong/.test(sql)) throw new Error('ClickHouse is away');
  });
  await expect(away).rejects.toThrow('ClickHouse is away');
  const { rows } = await world.pool.query(`SELECT 1 FROM pg_locks WHERE ${OWN_LOCK}`);
  expect(rows).toEqual([]);
  expect((await look({ repair: true }, some)).differences).toEqual([]);
  expect(await select("SELECT name FROM system.tables WHERE startsWith(name, 'verify_')")).toEqual([]);
});

test('reports a message that cannot be projected, unless it was skipped', async () => {
  const broken = some.map((one): (typeof some)[number] => ({
    ...one,
    project(item) {
      if (item.message.block.height === 1020) throw new Error('too large');
      return one.project(item);
    },
  }));
  const whats1020 = async (): Promise<string[]> => {
    const { differences } = await verify(
      { ...world, projections: broken, deferred: [], signal: new AbortController().signal },
      { from: 1020, to: 1020, repair: false, betweenComparisonsMs: 50 },
    );
    return whats(differences.filter(({ kind }) => kind === 'log'));
  };
  const [place] = await select(
    `SELECT log_partition, log_offset FROM {{indexed_blocks}} FINAL WHERE ${at(1020)}`,
  );
  const [partition, offset] = Object.values(place ?? {}).map(String);
  expect(await whats1020()).toEqual([`chain.blocks:${partition}:${offset}: projecting failed: too large`]);
  await world.pool.query(
    "INSERT INTO tds.skips (projection, topic, partition, message_offset) VALUES ('transfers', 'chain.blocks', $1, $2)",
    [partition, offset],
  );
  try {
    expect(await whats1020()).toEqual([]);
  } finally {
    await world.pool.query('DELETE FROM tds.skips');
  }
});

test('sampling raises an alarm that names a difference, and clears it once repaired', async () => {
  const metrics = createMetrics('test');
  const sampling = startSampling({
    ...world,
    metrics,
    everyMs: 1,
    clock: {
      ...systemClock,
      sleep: async (ms, signal) => await sleep(Math.min(ms, 2), signal),
      // Three heights of sixty, among them every one that is spoilt below.
      random: () => ([3.5, 5.5, 12.5][Math.floor(Math.random() * 3)] ?? 0) / 60,
    },
  });
  const figure = async (name: string): Promise<number> =>
    (await metrics.getSingleMetric(name)?.get())?.values[0]?.value ?? 0;
  const alarms = async (): Promise<unknown[]> =>
    (await world.pool.query('SELECT name, detail FROM tds.alarms ORDER BY name')).rows;
  try {
    await until(async () => (await figure('tds_verify_blocks_total')) > 30);
    expect(await alarms()).toEqual([]);
    expect(await figure('tds_verify_differences_total')).toBe(0);

    await plant(`DELETE FROM {{transfers}} WHERE ${at(1005)} AND position_desc = 0xffffffff - 1`);
    await plant(copy('account_ledger', 'delta + 5 AS delta', `${at(1012)} AND leg = 2 LIMIT 1`));
    await plant(copy('indexed_blocks', 'log_offset + 1 AS log_offset', at(1003)));
    await until(async () => (await alarms()).length === 3, 100_000);
    expect(await alarms()).toEqual([
      {
        name: 'verify.block:1003',
        detail: expect.stringMatching(/^chain\.blocks:0:\d+ does not hold the block 0x/),
      },
      {
        name: 'verify.block:1005',
        detail:
          '8 transfers are counted, 7 rows are in transfers: `tds verify --from 1005 --to 1005 --repair`',
      },
      { name: 'verify.block:1012', detail: expect.stringMatching(/legs, which sum to 5 and move/) },
    ]);
    expect(await figure('tds_verify_differences_total')).toBeGreaterThan(2);
    expect((await look({ repair: true })).differences).toEqual([]);
    await until(async () => (await alarms()).length === 0, 100_000);

    // Of a block that is gone since.
    await world.pool.query("INSERT INTO tds.alarms (name, detail) VALUES ('verify.block:1900', 'x')");
    await until(async () => (await alarms()).length === 0, 20_000);
  } finally {
    await sampling.stop();
  }
});

describe('the state', () => {
  const update = async (set: string, where: string): Promise<void> =>
    void (await world.pool.query(`UPDATE tds.checkpoints SET ${set} WHERE ${where}`));

  test('reports a checkpoint outside the log or of a recreated topic', async () => {
    await update('next_offset = 900', "consumer = 'tx-index' AND partition = 2");
    await update("topic_id = 'x' || topic_id", "consumer = 'transfers' AND partition = 3");
    expect(whats((await look()).differences)).toEqual([
      'the checkpoint of transfers in chain.blocks:3 belongs to another topic of that name',
      'the checkpoint of tx-index in chain.blocks:2 is 900, the log holds 0 to 0',
    ]);
    await update('next_offset = 0', "consumer = 'tx-index' AND partition = 2");
    await update('topic_id = substr(topic_id, 2)', "consumer = 'transfers' AND partition = 3");
  });

  test('is inconclusive while a projection is behind', async () => {
    await update('next_offset = next_offset - 1', "consumer = 'tx-index' AND partition = 0");
    await expect(look({ waitMs: 10 })).rejects.toMatchObject({ code: 'CONFLICT' });
    // Also below the message that halts it, as after a kill; not at that message.
    await world.pool.query(
      `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
       SELECT consumer, build, topic, partition, next_offset, 'test' FROM tds.checkpoints
       WHERE consumer = 'tx-index' AND partition = 0`,
    );
    expect((await look({ waitMs: 10 })).differences).toContainEqual(
      expect.objectContaining({ kind: 'halt' }),
    );
    await update('next_offset = next_offset - 1', "consumer = 'tx-index' AND partition = 0");
    await expect(look({ waitMs: 10 })).rejects.toMatchObject({ code: 'CONFLICT' });
    await world.pool.query('DELETE FROM tds.projection_halts');
    await world.catchUp();
    expect((await look()).differences).toEqual([]);
  });
});

test('reports blocks of the log that are missing, incomplete, duplicated or unlinked', async () => {
  const stranger = busyBlock(2054, 4, 3);
  await world.publish([
    accepted(busyBlock(2048, 4), 6),
    accepted({ ...busyBlock(2050, 4), event_count: 99 }, 6),
    accepted(busyBlock(2051, 4), 6),
    accepted({ ...busyBlock(2052, 4, 3), parent_hash: busyBlock(2051, 4).hash }, 6),
    accepted(busyBlock(2052, 4), 7),
    accepted(busyBlock(2053, 4), 7),
    accepted({ ...stranger, parent_hash: stranger.hash }, 7),
  ]);
  await world.catchUp();
  await world.pool.query('UPDATE tds.chunks SET range_end = $1', [LAST]);
  await world.pool.query(
    "INSERT INTO tds.chunks (name, range_start, cursor, final_height) VALUES ('later', 2048, 2055, 2048)",
  );
  const { differences } = await look({ from: 2048 });
  const ofLog = differences.filter(({ kind }) => kind === 'log');
  expect(whats(ofLog)).toEqual([
    'block 2049 of the log: no block is accepted',
    'block 2050 of the log: the header counts 4 transactions and 99 events, the body holds 4 and 12',
    expect.stringMatching(/^block 2052 of the log: two blocks are accepted: 0x/),
    expect.stringMatching(/^block 2054 of the log: names a parent that is not accepted below it: 0x/),
  ]);
  expect(differences.filter(({ reread }) => reread === true).map(({ heights }) => heights?.from)).toEqual([
    2050, 2049,
  ]);
});
