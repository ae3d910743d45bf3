import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedTables } from '../served.ts';
import { feltHex, feltParam } from '../transfer-reads.ts';

const row = z.object({ found: z.int() });

/** Whether a transaction of this hash has a transfer. */
export async function hasTransaction(
  clickhouse: ClickHouse,
  tables: ServedTables,
  hash: Felt,
): Promise<boolean> {
  const sql = `SELECT 1 AS found FROM ${tables.table('tx_index')} FINAL WHERE tx_hash = ${feltParam('hash')} LIMIT 1`;
  const rows = await clickhouse.rows(
    { name: 'tx-index.has', sql, row },
    { hash: feltHex(hash) },
    { settings: { max_threads: 1 } },
  );
  return rows.length > 0;
}
