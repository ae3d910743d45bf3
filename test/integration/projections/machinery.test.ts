import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import { openBuild } from '../../../projections/engine/builds.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { accounts } from '../../../projections/accounts/projector.ts';
import { indexedBlocks } from '../../../projections/indexed-blocks/projector.ts';
import { chainProjections } from '../../../projections/index.ts';
import { tokens } from '../../../projections/tokens/projector.ts';
import { transfers } from '../../../projections/transfers/projector.ts';
import { topics } from '../../../schemas/topics.ts';
import { accepted, busyBlock } from '../../support/chain-messages.ts';
import { firstTable, projectionWorld, until } from '../../support/projection-world.ts';
import type { ProjectionWorld } from '../../support/projection-world.ts';
import { tds } from '../../support/tds.ts';

/** What holds when something is wrong: unreadable messages, stores that are away, checkpoints and shapes that do not fit. */

let world: ProjectionWorld;
let height = 0;
const names = chainProjections.map(({ name }) => name);

beforeAll(async () => {
  world = await projectionWorld();
});
afterAll(async () => await world.close());
afterEach(async () => await world.stopRuns());
// Each test has a range, and so a partition, of its own.
beforeEach(() => {
  height += 1024;
});

const blocks = (count: number, first = height) =>
  Array.from({ length: count }, (_, index) => accepted(busyBlock(first + index, 3), first + index));
const partition = (): number => (height / 1024) % 8;
const indexed = async (): Promise<number[]> => {
  const rows = await world.select(
    `SELECT toUInt32(0xffffffff - block_desc) AS height FROM {{indexed_blocks}} FINAL
     WHERE block_desc BETWEEN 0xffffffff - ${height + 1023} AND 0xffffffff - ${height} ORDER BY height`,
  );
  return rows.map((row) => Number(row['height']) - height);
};
const halts = async (): Promise<unknown[]> => {
  const { rows } = await world.pool.query(
    'SELECT projection, partition, message_offset, reason FROM tds.projection_halts ORDER BY projection',
  );
  return rows;
};

/** The checkpoints of all projections in this test's partition, each value once. */
const stored = async (): Promise<number[]> => {
  const { rows } = await world.pool.query<{ next_offset: number }>(
    'SELECT DISTINCT next_offset FROM tds.projection_checkpoints WHERE topic = $1 AND partition = $2',
    ['chain.blocks', partition()],
  );
  return rows.map(({ next_offset }) => next_offset);
};

/** A ClickHouse client that does something before each insert. */
function watched(
  before: (table: string) => Promise<void> | void,
  after?: (table: string) => void,
): ClickHouse {
  return {
    ...world.clickhouse,
    async insertEncoded(table, columns, bytes) {
      await before(table);
      await world.clickhouse.insertEncoded(table, columns, bytes);
      after?.(table);
    },
  };
}

describe('a poison message', () => {
  test('halts its partition after the messages before it, and no other, until an operator skips it', async () => {
    const run = await world.run();
    await world.publish(blocks(2));
    const publisher = world.kafka.publisher();
    const [place] = await publisher.publish(topics.chainBlocks, [
      { value: { type: 'block.accepted', v: 1, seq: 'no number' } as never, partition: partition() },
    ]);
    await world.publish(blocks(2, height + 2));
    const elsewhere = height + 512 * 1024 + 1024;
    await world.publish(blocks(1, elsewhere));

    await until(async () => (await halts()).length === names.length);
    expect(await halts()).toEqual(
      names.toSorted().map((projection) => ({
        projection,
        partition: partition(),
        message_offset: place?.offset,
        reason: expect.stringContaining('seq'),
      })),
    );
    await until(
      async () =>
        (
          await world.select(
            `SELECT 1 AS x FROM {{indexed_blocks}} FINAL WHERE block_desc = 0xffffffff - ${elsewhere}`,
          )
        ).length === 1,
    );
    await until(async () => (await stored()).includes(2));
    expect(await stored()).toEqual([place?.offset]);
    expect(await indexed()).toEqual([0, 1]);

    const quarantined = [];
    for await (const { value } of world.kafka.readRange(topics.quarantine, 0, 0, 1)) {
      quarantined.push(JSON.parse(value.toString()));
    }
    expect(quarantined).toEqual([
      expect.objectContaining({
        type: 'message.quarantined',
        id: `chain.blocks:${partition()}:${place?.offset}`,
        value: Buffer.from('{"type":"block.accepted","v":1,"seq":"no number"}').toString('base64'),
      }),
    ]);

    // A skip for one projection is not enough: all of them stop at this message.
    await world.pool.query("INSERT INTO tds.skips VALUES ('transfers', 'chain.blocks', $1, $2)", [
      partition(),
      place?.offset,
    ]);
    await new Promise((resolve) => setTimeout(resolve, 1500));
    expect(await indexed()).toEqual([0, 1]);
    await world.pool.query(
      `INSERT INTO tds.skips SELECT projection, topic, partition, message_offset FROM tds.projection_halts
       ON CONFLICT DO NOTHING`,
    );
    await until(async () => (await indexed()).length === 4);
    await world.settled();
    expect(await halts()).toEqual([]);
    await run.stop();

    // Read again, the message is passed over without a halt.
    await world.pool.query('UPDATE tds.checkpoints SET next_offset = 0');
    await world.catchUp();
    expect(await halts()).toEqual([]);
    await publisher.close();
  });
});

describe('an unavailable store', () => {
  test('is retried without losing a message', async () => {
    let refusals = 6;
    const clickhouse = watched(() => {
      if ((refusals -= 1) >= 0)
        throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    });
    await world.publish(blocks(5));
    await world.catchUp({ clickhouse });
    expect(refusals).toBeLessThan(0);
    expect(await indexed()).toEqual([0, 1, 2, 3, 4]);
  });

  test('moves no checkpoint while one table is not acknowledged', async () => {
    const gate = Promise.withResolvers<void>();
    const clickhouse = watched(async (table) => {
      if (table === firstTable('account_ledger')) await gate.promise;
    });
    const run = await world.run({ clickhouse });
    await world.publish(blocks(3));
    await until(
      async () =>
        (
          await world.select(
            `SELECT 1 AS x FROM {{transfers}} FINAL WHERE block_desc = 0xffffffff - ${height}`,
          )
        ).length > 0,
    );
    expect(await stored()).toEqual([0]);
    // Neither do the totals: the block is not told of before all its rows are there.
    expect(await indexed()).toEqual([]);
    gate.resolve();
    await world.settled();
    expect(await stored()).toEqual([3]);
    expect(await indexed()).toEqual([0, 1, 2]);
    await run.stop();
  });

  test('ends the run on an error that is not retryable', async () => {
    const clickhouse = watched(() => {
      throw new TypeError('a bug');
    });
    const run = await world.run({ clickhouse });
    await world.publish(blocks(1));
    await expect(run.done).rejects.toThrow('a bug');
    await run.stop();
    await world.catchUp();
    expect(await indexed()).toEqual([0]);
  });

  test('bounds the gathered messages: the consumer waits', async () => {
    const gate = Promise.withResolvers<void>();
    let largest = 0;
    const clickhouse: ClickHouse = {
      ...world.clickhouse,
      async insertEncoded(table, columns, bytes) {
        largest = Math.max(largest, bytes.length);
        await gate.promise;
        await world.clickhouse.insertEncoded(table, columns, bytes);
      },
    };
    await world.publish(blocks(100));
    const run = await world.run({
      clickhouse,
      limits: { rows: 1_000_000, bytes: 40_000, waitMs: 50, gapMs: 0 },
    });
    await new Promise((resolve) => setTimeout(resolve, 1500));
    gate.resolve();
    await world.settled();
    await run.stop();
    // One block's rows are about 8 kB: no batch took more than its bound and one message.
    expect(largest).toBeLessThan(60_000);
    expect((await indexed()).length).toBe(100);
  });
});

describe('a start refuses', () => {
  const restored = async (work: () => Promise<void>): Promise<void> => {
    const { rows } = await world.pool.query('SELECT * FROM tds.checkpoints');
    try {
      await work();
    } finally {
      await world.pool.query('DELETE FROM tds.checkpoints');
      await world.pool.query(
        'INSERT INTO tds.checkpoints SELECT * FROM jsonb_populate_recordset(NULL::tds.checkpoints, $1)',
        [JSON.stringify(rows)],
      );
    }
  };

  test('a checkpoint outside the log', async () => {
    await restored(async () => {
      await world.pool.query(
        `UPDATE tds.checkpoints SET next_offset = 1000000 WHERE consumer = 'tx-index' AND partition = 0`,
      );
      await expect(world.run()).rejects.toMatchObject({
        code: 'CHECKPOINT_OUTSIDE_LOG',
        message: expect.stringContaining('tx-index'),
      });
    });
  });

  test('a checkpoint of another topic of that name', async () => {
    await restored(async () => {
      await world.pool.query(`UPDATE tds.checkpoints SET topic_id = 'gone' WHERE consumer = 'tx-index'`);
      await expect(world.run()).rejects.toMatchObject({ code: 'CHECKPOINT_OUTSIDE_LOG' });
    });
  });

  test('a table.sql that changed without a new version, but not a changed comment', async () => {
    const { ddl } = transfers;
    await openBuild(world.pool, world.clickhouse, { ...transfers, ddl: `-- said better\n${ddl}\n` });
    await expect(
      openBuild(world.pool, world.clickhouse, {
        ...transfers,
        ddl: ddl.replace('fee UInt256', 'fee UInt128'),
      }),
    ).rejects.toMatchObject({ code: 'SHAPE_CHANGED', message: expect.stringContaining('transfers') });
  });

  test('a program of another version', async () => {
    await expect(
      openBuild(world.pool, world.clickhouse, { ...indexedBlocks, version: indexedBlocks.version + 1 }),
    ).rejects.toMatchObject({ code: 'VERSION_MISMATCH' });
  });
});

describe('builds', () => {
  test('have a state that changes whenever a checkpoint of chain.blocks moves', async () => {
    const state = async () => (await servedBuilds(world.pool)).state;
    for (const projection of [accounts, tokens]) await openBuild(world.pool, null, projection);
    await world.publish(blocks(2));
    await world.catchUp();
    const first = await state();
    expect(first).toMatch(/^[0-9a-f]{32}$/);
    expect(await state()).toBe(first);
    await world.publish(blocks(1));
    await world.catchUp();
    const second = await state();
    expect(second).not.toBe(first);
    const insert = `INSERT INTO tds.checkpoints (consumer, build, topic, partition, topic_id, next_offset)
      VALUES ($1, $2, $3, 99, 'id', 1)`;
    await world.pool.query(insert, ['accounts', 1, 'commands']);
    // Of a build that nobody reads.
    await world.pool.query(insert, ['tokens', 2, 'tokens']);
    expect(await state()).toBe(second);
    await world.pool.query(insert, ['tokens', 1, 'tokens']);
    expect(await state()).not.toBe(second);
    await world.pool.query('DELETE FROM tds.checkpoints WHERE partition = 99');
    expect(await state()).toBe(second);
    await world.pool.query('UPDATE tds.served SET tables = tables || $1', [JSON.stringify({ more: 'x' })]);
    expect(await state()).not.toBe(second);
    await world.pool.query("UPDATE tds.served SET tables = tables - 'more'");
    expect(await state()).toBe(second);
  });

  test('are listed with the size of their tables', async () => {
    await world.publish(blocks(2));
    await world.catchUp();
    await openBuild(world.pool, null, accounts);
    const [rows] = await world.select('SELECT count() AS n FROM {{transfers}}');
    const { code, stdout } = await tds(world.env, 'builds');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      new RegExp(
        `^transfers +build 1  version \\d+  serving: ${String(rows?.['n'])} rows, [1-9][\\d.]* [KM]iB$`,
        'm',
      ),
    );
    // 8 KiB a page: empty tables with an index each.
    expect(stdout).toMatch(/^accounts +build 1  version \d+  serving: 0 rows, [1-9][\d.]* KiB$/m);
    expect(stdout).toMatch(/^ {2}api_keys: 0 rows, [1-9][\d.]* KiB$/m);
  });

  test('are created once by processes that start together, and served by name', async () => {
    const fresh = {
      ...transfers,
      name: 'made-together',
      topic: { ...transfers.topic, name: 'read.by.nobody' },
      version: 1,
      ddl: 'CREATE TABLE IF NOT EXISTS {{made_together}} (n UInt8) ENGINE = MergeTree ORDER BY n;\n',
    };
    const builds = await Promise.all([1, 2, 3].map(() => openBuild(world.pool, world.clickhouse, fresh)));
    expect(builds).toEqual([builds[0], builds[0], builds[0]]);
    const served = await servedBuilds(world.pool);
    expect(served.table('made_together')).toBe('made_together_v1_b1');
    expect(served.table('indexed_block_ranges')).toBe(firstTable('indexed_block_ranges'));
    expect(() => served.table('nothing')).toThrow('nothing');
    expect(await world.select('SELECT n FROM {{made_together}}')).toEqual([]);
  });
});
