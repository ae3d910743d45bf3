import { createPool } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { migrate } from '../../infra/postgres/migrate.ts';
import { isolated } from './isolation.ts';

/** A pool on a migrated database of its own, which is dropped when the pool ends. */
export async function isolatedPool(): Promise<Pool> {
  const own = await isolated();
  const pool = createPool(own.env.DATABASE_URL, { applicationName: 'test' });
  await migrate(pool);
  return {
    ...pool,
    async end() {
      await pool.end();
      await own.drop();
    },
  };
}
