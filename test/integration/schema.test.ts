import { readFileSync, writeFileSync } from 'node:fs';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { openBuild, updateTableSettings } from '../../projections/engine/builds.ts';
import { projections } from '../../projections/index.ts';
import { dumpClickHouse, dumpPostgres } from '../support/dump-schema.ts';
import { firstTable, projectionWorld } from '../support/projection-world.ts';
import type { ProjectionWorld } from '../support/projection-world.ts';

/**
 * The committed schemas are what the migrations and the first build of every projection create.
 * `npm run schema:dump` writes them.
 */

let world: ProjectionWorld;
beforeAll(async () => {
  world = await projectionWorld();
  for (const projection of projections) await openBuild(world.pool, world.clickhouse, projection);
});
afterAll(async () => await world.close());

function expectCommitted(path: string, schema: string): void {
  const file = new URL(`../../${path}`, import.meta.url);
  if (process.env['SCHEMA_DUMP'] === 'write') writeFileSync(file, schema);
  expect(schema, `${path} is out of date: run \`npm run schema:dump\` and commit it`).toBe(
    readFileSync(file, 'utf8'),
  );
}

test('infra/postgres/schema.sql is the schema of PostgreSQL after all migrations', async () => {
  expectCommitted('infra/postgres/schema.sql', await dumpPostgres(world.pool));
});

test('infra/clickhouse/schema.sql is the schema of ClickHouse after the first build', async () => {
  expectCommitted('infra/clickhouse/schema.sql', await dumpClickHouse(world.clickhouse));
});

test('a table of an earlier release gets the settings of every table', async () => {
  const { pool, clickhouse } = world;
  const committed = await dumpClickHouse(clickhouse);
  await clickhouse.ddl(
    `ALTER TABLE ${firstTable('transfers')} RESET SETTING fsync_after_insert, fsync_part_directory, replicated_deduplication_window, merge_selector_base`,
  );
  expect(await dumpClickHouse(clickhouse)).not.toBe(committed);
  await updateTableSettings(pool, clickhouse);
  expect(await dumpClickHouse(clickhouse)).toBe(committed);
});

test('a table whose settings stand in another order has them', async () => {
  const { pool, clickhouse } = world;
  // Its text ends with index_granularity, which it does not set: a setting that is added comes after that.
  const name = firstTable('transfer_counts_by_block');
  await clickhouse.ddl(`ALTER TABLE ${name} RESET SETTING merge_selector_base`);
  await updateTableSettings(pool, clickhouse);
  const statements: string[] = [];
  await updateTableSettings(pool, {
    rows: (...asked) => clickhouse.rows(...asked),
    ddl: async (sql) => void statements.push(sql),
  });
  expect(statements).toEqual([]);
});
