import { ClickHouseError } from '@clickhouse/client';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { accountLedger } from '../../../projections/account-ledger/projector.ts';
import { chainProjections } from '../../../projections/index.ts';
import { lockServed } from '../../../projections/engine/served-lock.ts';
import type { ServedLock } from '../../../projections/engine/served-lock.ts';
import { verify } from '../../../projections/engine/verify/verify.ts';
import type { VerifyReport } from '../../../projections/engine/verify/verify.ts';
import { accepted, busyBlock, reverted } from '../../support/chain-messages.ts';
import { firstTable, giveToNobody, projectionWorld } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';

/** Verifications and repairs of a range that gets a block whenever they look at it. */

let world: ProjectionWorld;
let seq = 0;
let height = 0;

const projections = chainProjections.filter(({ name }) =>
  ['transfers', 'account-ledger', 'indexed-blocks'].includes(name),
);
const names = projections.map(({ name }) => name);

beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world?.close());
afterEach(async () => await world.stopRuns());

const publish = async (count: number): Promise<void> => {
  const blocks = Array.from({ length: count }, (_, index) => busyBlock(height + index, 4));
  height += count;
  await world.publish(blocks.map((block) => accepted(block, (seq += 1))));
};
const start = async (): Promise<void> => {
  await world.run({ projections });
  await publish(5);
  await world.settled(names);
  await world.pool.query(
    `INSERT INTO tds.chunks (name, range_start, cursor, final_height) VALUES ('live', 0, $1, 0)
     ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor`,
    [height],
  );
};

/** The blocks of an account that the log does not have. */
const nobodys = async (): Promise<unknown[]> =>
  await world.select(
    `SELECT range FROM {{account_ledger_by_block}} FINAL WHERE account = toFixedString('nobody', 32)
     UNION ALL SELECT range FROM {{account_ledger_ranges}} FINAL WHERE account = toFixedString('nobody', 32)`,
  );

interface Events {
  /** After the first sums were recomputed from the served tables, once for each reading of the log. */
  readonly afterDerive?: () => Promise<void>;
  readonly beforeLogCheck?: () => Promise<void>;
  readonly afterDeriveInRepair?: () => Promise<void>;
  readonly beforeDelete?: (table: string) => Promise<void>;
}
const look = async (repair: boolean, events: Events, pool = world.pool): Promise<VerifyReport> => {
  let isDerived = false;
  let isRepairing = false;
  const clickhouse: ProjectionWorld['clickhouse'] = {
    ...world.clickhouse,
    async rows(query, params, options) {
      if (query.name === 'verify.hint') isDerived = false;
      if (query.name === 'log.links') await events.beforeLogCheck?.();
      return await world.clickhouse.rows(query, params, options);
    },
    async command(sql, options) {
      const [, deletedFrom] = /^DELETE FROM (\w+)/.exec(sql) ?? [];
      if (deletedFrom !== undefined) await events.beforeDelete?.(deletedFrom);
      await world.clickhouse.command(sql, options);
      if (isDerived || !/INSERT INTO verify_\w+_account_ledger_ranges /.test(sql)) return;
      isDerived = true;
      await (isRepairing ? (events.afterDeriveInRepair ?? events.afterDerive) : events.afterDerive)?.();
    },
  };
  return await verify(
    { ...world, pool, clickhouse, projections, deferred: [], signal: new AbortController().signal },
    {
      from: null,
      to: null,
      repair,
      waitMs: 5000,
      betweenComparisonsMs: 10,
      onProgress: ({ phase }) => void (isRepairing = phase === 'repairing'),
    },
  );
};
/** A block that is indexed between the calculation of sums and their comparison. */
const moveHead = async (): Promise<void> => {
  await publish(1);
  await world.settled(names);
};

test('finds no difference in correct sums that new blocks change whenever they are compared', async () => {
  await start();
  expect((await look(false, { afterDerive: moveHead })).differences).toEqual([]);
});

test('repairs rows and sums of a range that gets new blocks whenever they are compared', async () => {
  await start();
  await giveToNobody(world);
  const before = height;
  const report = await look(true, { afterDerive: moveHead });
  expect(height).toBeGreaterThan(before + 2);
  expect(report.differences).toEqual([]);
  expect(report.repairedTables).toEqual({
    account_ledger_by_block: { deleted: 1, inserted: 0 },
    account_ledger_ranges: { deleted: 1, inserted: 0 },
  });
  expect(await nobodys()).toEqual([]);
  expect((await look(false, {})).differences).toEqual([]);
});

test('names the repaired rows when blocks are written again whenever they are compared with them', async () => {
  await start();
  await giveToNobody(world);
  const block = busyBlock(height - 1, 4);
  const isRepaired = async (): Promise<boolean> => (await nobodys()).length === 0;
  const failing = look(true, {
    async beforeLogCheck() {
      if (!(await isRepaired())) return;
      await world.publish([reverted(block, (seq += 1)), accepted(block, (seq += 1))]);
      await world.settled(names);
    },
  });
  await expect(failing).rejects.toMatchObject({
    code: 'CONFLICT',
    message: expect.stringMatching(
      new RegExp(
        `blocks ${block.height} to ${block.height} were written again .*account_ledger_by_block: 1 wrong rows deleted, 0 inserted`,
      ),
    ),
  });
  expect((await look(false, {})).differences).toEqual([]);
});

test('deletes wrong sums while blocks are written', async () => {
  await start();
  await giveToNobody(world);
  const sums = firstTable('account_ledger_ranges');
  const deletedFrom: string[] = [];
  const report = await look(true, {
    afterDeriveInRepair: moveHead,
    async beforeDelete(table) {
      deletedFrom.push(table);
      if (table === sums) await moveHead();
    },
  });
  expect(deletedFrom).toEqual([firstTable('account_ledger_by_block'), sums]);
  expect(report.differences).toEqual([]);
  const rows = { deleted: 1, inserted: 0 };
  expect(report.repairedTables).toEqual({ account_ledger_by_block: rows, account_ledger_ranges: rows });
  expect(await nobodys()).toEqual([]);
  expect((await look(false, {})).differences).toEqual([]);
});

test('names the repaired rows when writers do not stop for the repair of sums', async () => {
  await start();
  await giveToNobody(world);
  const impatient: ProjectionWorld['pool'] = {
    ...world.pool,
    async connect() {
      const client = await world.pool.connect();
      const query: typeof client.query = async (statement, values) =>
        await client.query(
          typeof statement === 'string' && statement.startsWith('SET LOCAL lock_timeout')
            ? 'SET LOCAL lock_timeout = 50'
            : statement,
          values,
        );
      return { ...client, query };
    },
  };
  let writing: ServedLock | undefined;
  const failing = look(
    true,
    {
      async afterDeriveInRepair() {
        await moveHead();
        writing = await lockServed(world.pool, [
          { projection: 'account-ledger', version: accountLedger.version, build: 1, names: {} },
        ]);
      },
    },
    impatient,
  );
  await expect(failing).rejects.toMatchObject({
    code: 'CONFLICT',
    message: expect.stringMatching(
      /the sums of blocks 0 to 1023 are not repaired yet; try again\. Repaired: account_ledger_by_block: 1 wrong rows deleted, 0 inserted/,
    ),
  });
  await writing?.release();
  expect((await look(true, {})).differences).toEqual([]);
  expect(await nobodys()).toEqual([]);
});

test('names the repaired rows when ClickHouse fails in the repair of another table', async () => {
  await start();
  await giveToNobody(world);
  const sums = firstTable('account_ledger_ranges');
  const failing = look(true, {
    async beforeDelete(table) {
      if (table === sums)
        throw new ClickHouseError({ message: 'Mutation is not finished', code: '341', type: 'UNFINISHED' });
    },
  });
  await expect(failing).rejects.toMatchObject({
    code: 'STORE_UNAVAILABLE',
    message: 'Mutation is not finished. Repaired: account_ledger_by_block: 1 wrong rows deleted, 0 inserted',
  });
  expect((await look(true, {})).differences).toEqual([]);
  expect(await nobodys()).toEqual([]);
});
