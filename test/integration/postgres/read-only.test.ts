import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';

import { createPool, inTransaction, isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isolated } from '../../support/isolation.ts';
import type { Isolated } from '../../support/isolation.ts';

/** A URL that leads to a standby for a while, as during a fail-over by name: its sessions can only read. */

let own: Isolated;
let pool: Pool;
beforeAll(async () => {
  own = await isolated();
});
beforeEach(() => {
  pool = createPool(own.env.DATABASE_URL, { applicationName: 'test', max: 1 });
});
afterEach(async () => await pool.end());
afterAll(async () => await own.drop());

/** New sessions can only read, or write again; those that exist stay as they are. */
async function setReadOnly(mode: 'on' | 'off'): Promise<void> {
  const admin = createPool(own.env.DATABASE_URL, { applicationName: 'admin', max: 1 });
  const { pathname } = new URL(own.env.DATABASE_URL);
  await admin.query('SET default_transaction_read_only = off');
  await admin.query(`ALTER DATABASE "${pathname.slice(1)}" SET default_transaction_read_only = ${mode}`);
  await admin.end();
}

it.each([
  {
    how: 'in a transaction',
    write: async (table: string): Promise<void> =>
      await inTransaction(pool, async (tx) => void (await tx.query(`CREATE TABLE ${table} (id integer)`))),
  },
  {
    how: 'on a connection that is taken',
    async write(table: string): Promise<void> {
      const client = await pool.connect();
      try {
        await client.query(`CREATE TABLE ${table} (id integer)`);
      } finally {
        client.release();
      }
    },
  },
])('a write $how is refused as unavailable, and accepted once sessions can write', async ({ how, write }) => {
  const table = how.replaceAll(' ', '_');
  await setReadOnly('on');
  const error: unknown = await write(table).catch((failure: unknown) => failure);
  expect(error).toMatchObject({ code: '25006' });
  expect(isPostgresUnavailable(error)).toBe(true);
  await setReadOnly('off');
  // The only connection of the pool was of the standby.
  await write(table);
});
