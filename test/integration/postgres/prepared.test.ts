import { afterAll, beforeAll, expect, it } from 'vitest';

import { isTableMissing, prepared } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import { isolatedPool } from '../../support/isolated-pool.ts';

let pool: Pool;
let client: PoolClient;
beforeAll(async () => {
  pool = await isolatedPool();
  client = await pool.connect();
  await client.query(
    'CREATE SCHEMA prepared; CREATE TABLE prepared.rows (id integer PRIMARY KEY, name text)',
  );
});
afterAll(async () => {
  client.release();
  await pool.end();
});

const insert = async (id: number, name: string): Promise<void> =>
  void (await client.query(prepared('INSERT INTO prepared.rows (id, name) VALUES ($1, $2)', [id, name])));
const nameOf = async (id: number): Promise<unknown> =>
  (await client.query<{ name: string }>(prepared('SELECT name FROM prepared.rows WHERE id = $1', [id])))
    .rows[0]?.name;

it('prepares a statement once a connection, and runs it with other values', async () => {
  for (let id = 0; id < 20; id += 1) await insert(id, `row ${id}`);
  for (let id = 0; id < 20; id += 1) expect(await nameOf(id)).toBe(`row ${id}`);
  const { rows } = await client.query(
    `SELECT statement, generic_plans + custom_plans AS runs FROM pg_prepared_statements ORDER BY statement`,
  );
  expect(rows).toEqual([
    { statement: 'INSERT INTO prepared.rows (id, name) VALUES ($1, $2)', runs: 20 },
    { statement: 'SELECT name FROM prepared.rows WHERE id = $1', runs: 20 },
  ]);
});

it('sees a table that was changed, and one that was replaced', async () => {
  await client.query('ALTER TABLE prepared.rows ADD COLUMN more text');
  expect(await nameOf(1)).toBe('row 1');
  await client.query(`ALTER TABLE prepared.rows RENAME TO earlier;
    CREATE TABLE prepared.rows (id integer PRIMARY KEY, name text);
    INSERT INTO prepared.rows VALUES (1, 'another')`);
  expect(await nameOf(1)).toBe('another');
});

it('fails while its table is missing, and then works again', async () => {
  await client.query('ALTER TABLE prepared.rows RENAME TO away');
  const error: unknown = await nameOf(1).catch((reason: unknown) => reason);
  expect(isTableMissing(error)).toBe(true);
  await client.query('ALTER TABLE prepared.away RENAME TO rows');
  expect(await nameOf(1)).toBe('another');
});

it('works after a statement of it has failed in a transaction', async () => {
  await client.query('BEGIN');
  await expect(insert(1, 'again')).rejects.toMatchObject({ code: '23505' });
  await client.query('ROLLBACK');
  await insert(2, 'two');
  expect(await nameOf(2)).toBe('two');
});
