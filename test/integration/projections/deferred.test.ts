import { Registry } from 'prom-client';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { systemClock } from '../../../infra/clock.ts';
import { withAdvisoryLocks } from '../../../infra/postgres/advisory-lock.ts';
import { listBuilds, openBuild } from '../../../projections/engine/builds.ts';
import { deriveBuild } from '../../../projections/engine/deferred/derive-build.ts';
import { markAgain } from '../../../projections/engine/deferred/mark-again.ts';
import { derivePass, isDue } from '../../../projections/engine/deferred/derive.ts';
import type { PassResult } from '../../../projections/engine/deferred/pass.ts';
import { runDeferred } from '../../../projections/engine/deferred/run.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { compareDeferred } from '../../../projections/engine/rebuild/compare-deferred.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import type { RebuildReport } from '../../../projections/engine/rebuild/rebuild.ts';
import { verify } from '../../../projections/engine/verify/verify.ts';
import type { VerifyReport } from '../../../projections/engine/verify/verify.ts';
import { chainProjections, deferredProjections, projections } from '../../../projections/index.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { ServedBuilds } from '../../../projections/served.ts';
import type { Projection } from '../../../projections/define.ts';
import { accountLedger } from '../../../projections/account-ledger/projector.ts';
import { tokenHolders } from '../../../projections/token-holders/projector.ts';
import { accepted, busyBlock, reverted } from '../../support/chain-messages.ts';
import { giveToNobody, projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** Deferred tables on a real log: derived beside a runner, and rebuilt. */

let world: ProjectionWorld;
let seq = 0;
const all = [...deferredProjections, ...chainProjections];
const names = all.map(({ name }) => name);

beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world.close());
afterEach(async () => await world.stopRuns());

/** Three blocks an hour. */
const blocks = (first: number, count: number, fork = 0) =>
  Array.from({ length: count }, (_, index) => {
    const block = busyBlock(first + index, 6, fork);
    return accepted({ ...block, timestamp: 1_700_000_000 + 1200 * block.height }, (seq += 1));
  });
const deps = () => ({ ...world, clock: systemClock, signal: new AbortController().signal });
const targetOf = async (projection = tokenHolders) => ({
  projection,
  build: await openBuild(world.pool, world.clickhouse, projection),
});

/** Balances by pair, as served, and as the ledger's legs sum up. */
const held = async (): Promise<unknown[]> =>
  await world.clickhouse.rows({
    name: 'test.held',
    sql: `SELECT hex(token) AS t, hex(account) AS a, toString(balance) AS b FROM ${(await servedBuilds(world.pool)).table('token_holders')} FINAL ORDER BY t, a`,
    row: { parse: (row) => row },
  });
const summed = async (): Promise<unknown[]> =>
  await world.clickhouse.rows({
    name: 'test.summed',
    sql: `SELECT hex(token) AS t, hex(account) AS a, toString(sum(delta)) AS b
      FROM ${(await servedBuilds(world.pool)).table('account_ledger')} FINAL WHERE account != toFixedString('', 32)
      GROUP BY token, account HAVING sum(delta) > 0 ORDER BY t, a`,
    row: { parse: (row) => row },
  });

/** Balances by pair, as the ranks and the holders have them. */
const ranksAndHolders = async (): Promise<unknown[][]> => {
  const served = await servedBuilds(world.pool);
  const lines = async (table: string, balance: string): Promise<unknown[]> =>
    await world.clickhouse.rows({
      name: 'test.lines',
      sql: `SELECT hex(token) AS t, hex(account) AS a, toString(${balance}) AS b FROM ${served.table(table)} FINAL ORDER BY t, a, b`,
      row: { parse: (row) => row },
    });
  return [await lines('token_holder_ranks', 'bitNot(balance_desc)'), await lines('token_holders', 'balance')];
};

/** Transfers of the chain by hour, as served, and as their rows are counted: without the newest hour, which is not over. */
const hoursOf = async (select: (served: ServedBuilds) => string): Promise<unknown[]> => {
  const served = await servedBuilds(world.pool);
  const sql = `SELECT toUInt32(hour) AS start, toUInt64(moved) AS transfers FROM (${select(served)})
    WHERE hour < (SELECT max(intDiv(timestamp, 3600) * 3600) FROM ${served.table('indexed_blocks')} FINAL) ORDER BY hour`;
  return await world.clickhouse.rows({ name: 'test.hours', sql, row: { parse: (row) => row } });
};
const hours = async (): Promise<unknown[]> =>
  await hoursOf(
    (served) =>
      `SELECT start AS hour, transfers AS moved FROM ${served.table('chain_stats')} FINAL WHERE step = 3600`,
  );
const counted = async (): Promise<unknown[]> =>
  await hoursOf(
    (served) =>
      `SELECT intDiv(timestamp, 3600) * 3600 AS hour, count() AS moved FROM ${served.table('transfers')} FINAL GROUP BY hour`,
  );

const rebuildNow = async (
  wanted: readonly Projection[],
  swap = true,
  clickhouse = world.clickhouse,
): Promise<RebuildReport> => {
  // Builds that differ are compared again every second.
  const clock = {
    ...systemClock,
    sleep: (ms: number, signal?: AbortSignal) => systemClock.sleep(ms / 20, signal),
  };
  const metrics = createProjectionMetrics(new Registry());
  return await rebuild({ ...deps(), clickhouse, clock, metrics }, wanted, { swap, onProgress: () => {} });
};

/** As `tds verify --repair`. */
const repair = async (clickhouse = world.clickhouse): Promise<VerifyReport> => {
  await world.pool.query(
    `INSERT INTO tds.chunks (name, range_start, cursor, final_height) VALUES ('live', 0, 1024, 0) ON CONFLICT DO NOTHING`,
  );
  return await verify(
    {
      ...world,
      clickhouse,
      projections: chainProjections,
      deferred: deferredProjections,
      signal: deps().signal,
    },
    { from: null, to: null, repair: true, waitMs: 5000, betweenComparisonsMs: 50 },
  );
};

test('a process derives what a runner marks, through a reorg', async () => {
  await world.run({ projections: all });
  const passes = runDeferred(world, tokenHolders);
  try {
    await world.publish(blocks(0, 30));
    await world.settled(names);
    await until(async () => !(await isDue(world, await targetOf())));
    expect((await held()).length).toBeGreaterThan(20);
    expect(await held()).toEqual(await summed());
    const orphans = blocks(10, 20).map(({ block }) => reverted(block, (seq += 1)));
    await world.publish([...orphans.toReversed(), ...blocks(10, 5, 1)]);
    await world.settled(names);
    await until(async () => !(await isDue(world, await targetOf())));
    expect(await held()).toEqual(await summed());
  } finally {
    await passes.stop();
  }
});

test('blocks wait for a source that has not read them', async () => {
  await world.catchUp({ projections: all });
  await deriveBuild(deps(), await targetOf());
  const run = await world.run({ projections: [tokenHolders], groupId: 'holders' });
  await world.publish(blocks(40, 3));
  await world.settled([tokenHolders.name]);
  await run.stop();
  expect(await derivePass(world, await targetOf())).toMatchObject({ derived: 0, waiting: 3 });
  const before = await held();
  await world.catchUp({ projections: chainProjections, groupId: 'others' });
  await deriveBuild(deps(), await targetOf());
  expect(await held()).not.toEqual(before);
  expect(await held()).toEqual(await summed());
});

test('each holder has one rank, of its balance, after two passes in succession were interrupted anywhere', async () => {
  const target = await targetOf();
  /** A pass that ends before one of its statements. */
  const interrupted = async (before: number): Promise<void> => {
    let statements = 0;
    const clickhouse = {
      ...world.clickhouse,
      command: async (...args: Parameters<typeof world.clickhouse.command>) => {
        if ((statements += 1) === before) throw new Error('interrupted');
        return await world.clickhouse.command(...args);
      },
    };
    await expect(derivePass({ ...world, clickhouse }, target)).rejects.toThrow('interrupted');
    // Nothing remembers the balances before.
    await world.clickhouse.command(`OPTIMIZE TABLE ${target.build.names['token_holders']} FINAL`);
  };
  await world.run({ projections: all });
  let height = 50;
  const more = async (): Promise<void> => {
    await world.publish(blocks((height += 1), 1));
    await world.settled(names);
  };
  // The fourth writes the ranks of what the third has written.
  for (const [first, second] of [
    [4, 3],
    [4, 5],
    [3, 4],
    [5, 4],
    [4, 4],
  ] as const) {
    await more();
    await interrupted(first);
    await more();
    await interrupted(second);
    await more();
    await deriveBuild(deps(), target);
    const [ranks, holders] = await ranksAndHolders();
    expect(ranks, `${first} ${second}`).toEqual(holders);
  }
  expect(await held()).toEqual(await summed());
});

test('each holder has one rank after two passes side by side, with a merge between two statements of the later one', async () => {
  const target = await targetOf();
  await world.run({ projections: all });
  const [earlierComputed, laterComputed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const pass = async (before: (statement: number) => Promise<void>): Promise<PassResult> => {
    let statements = 0;
    const command: typeof world.clickhouse.command = async (...args) => {
      await before((statements += 1));
      await world.clickhouse.command(...args);
    };
    return await derivePass({ ...world, clickhouse: { ...world.clickhouse, command } }, target);
  };
  await world.publish(blocks(60, 3));
  await world.settled(names);
  const earlier = pass(async (statement) => {
    if (statement !== 2) return;
    earlierComputed.resolve();
    await laterComputed.promise;
  });
  await earlierComputed.promise;
  await world.publish(blocks(63, 3));
  await world.settled(names);
  const later = pass(async (statement) => {
    if (statement === 2) {
      laterComputed.resolve();
      await earlier;
    }
    if (statement === 4)
      await world.clickhouse.command(`OPTIMIZE TABLE ${target.build.names['token_holders']} FINAL`);
  });
  expect(await earlier).toMatchObject({ derived: 0 });
  expect(await later).toMatchObject({ derived: 6 });
  await deriveBuild(deps(), target);
  const [ranks, holders] = await ranksAndHolders();
  expect(ranks).toEqual(holders);
  expect(await held()).toEqual(await summed());
});

test('blocks that a repair changed are due again, and no others', async () => {
  const before = await held();
  await deriveBuild(deps(), await targetOf());
  await markAgain(world, deferredProjections, { from: 900_000, to: 900_100 });
  expect(await isDue(world, await targetOf())).toBe(false);
  await markAgain(world, deferredProjections, { from: 0, to: 5 });
  await markAgain(world, deferredProjections, { from: 0, to: 5 });
  expect(await derivePass(world, await targetOf())).toMatchObject({ derived: 6, waiting: 0 });
  expect(await isDue(world, await targetOf())).toBe(false);
  expect(await held()).toEqual(before);
});

test('blocks that a repair changed while a pass derives them stay due', async () => {
  const target = await targetOf();
  await markAgain(world, deferredProjections, { from: 0, to: 5 });
  const clickhouse = {
    ...world.clickhouse,
    insert: async (...args: Parameters<typeof world.clickhouse.insert>) => {
      await markAgain(world, deferredProjections, { from: 3, to: 3 });
      await world.clickhouse.insert(...args);
    },
  };
  expect(await derivePass({ ...world, clickhouse }, target)).toMatchObject({ derived: 6 });
  // Of two rows with the same version, a merge keeps the one that was inserted last: the one that clears the mark.
  await world.clickhouse.command(`OPTIMIZE TABLE ${target.build.names['token_holders_due']} FINAL`);
  expect(await derivePass(world, target)).toMatchObject({ derived: 1, waiting: 0 });
  expect(await isDue(world, target)).toBe(false);
});

test('a pass that a later one overtakes clears no marks', async () => {
  const before = await held();
  const target = await targetOf();
  await markAgain(world, deferredProjections, { from: 0, to: 5 });
  let later: PassResult | null = null;
  const clickhouse = {
    ...world.clickhouse,
    command: async (...args: Parameters<typeof world.clickhouse.command>) => {
      if (later === null) {
        later = await derivePass(world, target);
        await markAgain(world, deferredProjections, { from: 0, to: 2 });
      }
      await world.clickhouse.command(...args);
    },
  };
  expect(await derivePass({ ...world, clickhouse }, target)).toMatchObject({ derived: 0 });
  expect(later).toMatchObject({ derived: 6 });
  expect(await derivePass(world, target)).toMatchObject({ derived: 3 });
  expect(await held()).toEqual(before);
});

test('a repair that deletes the rows of a pair which the log does not have derives the pair again', async () => {
  const target = await targetOf();
  const before = await held();
  await giveToNobody(world);
  await markAgain(world, deferredProjections, { from: 0, to: 1023 });
  await deriveBuild(deps(), target);
  expect(await held()).toHaveLength(before.length + 1);

  const { found, differences } = await repair();
  expect(found.some(({ what }) => what.startsWith('account_ledger_by_block: extra row'))).toBe(true);
  // The chain of this test ends where its last reorg left it, so other heights are missing.
  expect(differences.filter(({ table: name }) => name !== undefined)).toEqual([]);
  await deriveBuild(deps(), target);
  expect(await held()).toEqual(before);
});

test.each([
  ['records the keys of the rows', /^INSERT INTO account_ledger_by_block\w+ SELECT .*is_deleted/],
  ['deletes the rows', /^DELETE FROM account_ledger_by_block/],
  ['marks the blocks', /^INSERT INTO token_holders_due/],
])('a repair that was interrupted before it %s is completed by the next one', async (_, statement) => {
  const before = await held();
  await giveToNobody(world);
  await markAgain(world, deferredProjections, { from: 0, to: 1023 });
  await deriveBuild(deps(), await targetOf());
  expect(await held()).toHaveLength(before.length + 1);
  const clickhouse = {
    ...world.clickhouse,
    command: async (...args: Parameters<typeof world.clickhouse.command>) => {
      if (statement.test(args[0])) throw new Error('interrupted');
      await world.clickhouse.command(...args);
    },
  };
  await expect(repair(clickhouse)).rejects.toThrow('interrupted');
  await repair();
  await deriveBuild(deps(), await targetOf());
  expect(await held()).toEqual(before);
  // Reads without FINAL may find a wrong row beside its tombstone.
  const ledger = (await servedBuilds(world.pool)).table('account_ledger_by_block');
  const versions = await world.clickhouse.rows({
    name: 'test.versions',
    sql: `SELECT account, token, block, seq, uniqExact(is_deleted) AS states FROM ${ledger} GROUP BY ALL HAVING states > 1`,
    row: { parse: (row) => row },
  });
  expect(versions).toEqual([]);
});

test('a rebuild derives all of the shadow build, compares it and swaps', async () => {
  const before = await held();
  for (const projection of deferredProjections) await deriveBuild(deps(), await targetOf(projection));
  const hoursBefore = await hours();
  expect(hoursBefore.length).toBeGreaterThan(5);
  expect(hoursBefore).toEqual(await counted());
  const report = await rebuildNow(deferredProjections);
  expect(report.tables.filter(({ rows }) => rows === 0)).toEqual([]);
  expect(report.tables.map(({ table }) => table).toSorted()).toEqual([
    'chain_stats',
    'token_holder_ranks',
    'token_holder_totals',
    'token_holders',
    'token_stats',
  ]);
  expect(report.tables.filter(({ differing, unsettled }) => differing.length + unsettled.length > 0)).toEqual(
    [],
  );
  const builds = await listBuilds(world.pool, tokenHolders.name);
  expect(builds.map(({ state }) => state)).toEqual(['retired', 'serving']);
  expect(await held()).toEqual(before);
  expect(await hours()).toEqual(hoursBefore);
});

test('a rebuild reports no difference of builds that new blocks keep apart', async () => {
  await rebuildNow([tokenHolders], false);
  const served = await targetOf();
  const shadow = (await listBuilds(world.pool, tokenHolders.name)).find(({ state }) => state === 'building');
  const target = { projection: tokenHolders, build: shadow ?? served.build };
  await world.run({ projections: all });
  await world.publish(blocks(400, 1));
  await world.settled(names);
  const clock = { ...systemClock, sleep: async () => {} };
  const derivesElsewhere = ['tds.derive token-holders'];
  await withAdvisoryLocks(
    world.pool,
    derivesElsewhere,
    () => '',
    () => compareDeferred({ ...deps(), clock }, served, target, async () => {}),
  );
  expect(await isDue(world, served)).toBe(true);
  // Whenever it has caught up, there are new blocks again.
  const compared = await compareDeferred({ ...deps(), clock }, served, target, async () => {});
  expect(compared.map(({ isUnsettled }) => isUnsettled)).toEqual(compared.map(() => true));
  const { tables } = await rebuildNow([tokenHolders]);
  expect(tables.flatMap(({ differing, unsettled }) => [...differing, ...unsettled])).toEqual([]);
});

test('a rebuild together with its source derives the balances from the new ledger', async () => {
  const wrong = (await servedBuilds(world.pool)).table('account_ledger_ranges');
  // The served ledger lies about one pair; the log does not.
  await world.clickhouse.command(
    `INSERT INTO ${wrong} SELECT account, token, range, delta + 5, legs, seq + 1, 0 FROM ${wrong} FINAL
     WHERE account != toFixedString('', 32) AND delta > 0 ORDER BY account LIMIT 1`,
  );
  const before = await held();
  const report = await rebuildNow([accountLedger, tokenHolders]);
  expect(await held()).toEqual(before);
  expect(await held()).toEqual(await summed());
  expect(report.tables.filter(({ differing }) => differing.length > 0).map(({ table }) => table)).toEqual([
    'account_ledger_ranges',
  ]);
});

test('an unfinished rebuild derives again what a repair changed, and swaps in the balances of the log', async () => {
  const before = await held();
  await giveToNobody(world);
  await rebuildNow([tokenHolders], false);
  await repair();
  const { builds, isSwapped } = await rebuildNow([tokenHolders]);
  expect([builds, isSwapped]).toEqual([[expect.objectContaining({ isResumed: true })], true]);
  expect(await held()).toEqual(before);
  expect(await held()).toEqual(await summed());
});

test.each([
  ['before it resumes', [[accountLedger], [tokenHolders]]],
  ['together with it', [[tokenHolders, accountLedger]]],
])('an unfinished rebuild begins anew when its source is rebuilt %s', async (_, runs) => {
  const before = await held();
  await giveToNobody(world);
  await rebuildNow([tokenHolders], false);
  const reports = [];
  for (const run of runs) reports.push(await rebuildNow(run));
  const rebuilt = reports.flatMap(({ builds }) => builds);
  expect(rebuilt.find(({ projection }) => projection === tokenHolders.name)).toMatchObject({
    isResumed: false,
  });
  expect(await held()).toEqual(before);
  expect(await held()).toEqual(await summed());
});

test('a rebuild swaps nothing when its source is rebuilt meanwhile', async () => {
  const before = await held();
  await giveToNobody(world);
  let isSourceRebuilt = false;
  const clickhouse = {
    ...world.clickhouse,
    command: async (...args: Parameters<typeof world.clickhouse.command>) => {
      await world.clickhouse.command(...args);
      if (isSourceRebuilt) return;
      isSourceRebuilt = true;
      await rebuildNow([accountLedger]);
    },
  };
  await expect(rebuildNow([tokenHolders], true, clickhouse)).rejects.toMatchObject({
    code: 'CONFLICT',
    message: expect.stringContaining('derived from builds that were replaced meanwhile'),
  });
  expect(await held()).toEqual(before);
  expect((await rebuildNow([tokenHolders])).builds).toMatchObject([{ isResumed: false }]);
  expect(await held()).toEqual(before);
});

/** As `tds rebuild --all`. */
const rebuildOneByOne = async (): Promise<void> => {
  for (const one of projections.filter(({ name }) => names.includes(name))) await rebuildNow([one]);
};

test('rebuilds of all read models, one after the other, replace what was derived from a wrong ledger', async () => {
  const before = await held();
  const target = await targetOf();
  const wrong = (await servedBuilds(world.pool)).table('account_ledger_ranges');
  await world.clickhouse.command(
    `INSERT INTO ${wrong} SELECT account, token, range, delta + 5, legs, seq + 1, 0 FROM ${wrong} FINAL
     WHERE account != toFixedString('', 32) AND delta > 0 ORDER BY account LIMIT 1`,
  );
  await markAgain(world, deferredProjections, { from: 0, to: 1023 });
  await deriveBuild(deps(), target);
  expect(await held()).not.toEqual(before);
  await rebuildOneByOne();
  expect(await held()).toEqual(before);
  expect(await held()).toEqual(await summed());
});

test('rebuilds of all read models, one after the other, restore the tables that ClickHouse has lost', async () => {
  const [before, hoursBefore] = [await held(), await hours()];
  for (const build of await listBuilds(world.pool)) {
    for (const table of Object.values(build.names))
      await world.clickhouse.ddl(`DROP TABLE IF EXISTS ${table} SYNC`);
  }
  await rebuildOneByOne();
  expect([await held(), await hours()]).toEqual([before, hoursBefore]);
  expect(await held()).toEqual(await summed());
});
