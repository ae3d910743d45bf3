import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { ServedBuilds } from '../served.ts';

type Tables = Pick<ServedBuilds, 'table'>;

const MAX_UINT32 = 0xffff_ffff;
const sumRow = z.object({
  token: z.string(),
  sum: z.string(),
  legs: z.coerce.number(),
  transfers: z.coerce.number(),
});
export type UnbalancedToken = z.infer<typeof sumRow>;

/**
 * Tokens whose legs do not sum to zero over these heights (both inclusive), or do not come in pairs: two for each of
 * their transfers that is not of an unknown kind. One pass over the ledger and one over `transfers`.
 */
export async function unbalancedTokens(
  clickhouse: Pick<ClickHouse, 'rows'>,
  tables: Tables,
  { from, to }: { from: number; to: number },
  limit: number,
): Promise<UnbalancedToken[]> {
  const within = `PREWHERE block_desc BETWEEN ${MAX_UINT32 - to} AND ${MAX_UINT32 - from}`;
  const sql = `SELECT concat('0x', lower(hex(of_token))) AS token, toString(sum(moved)) AS sum, sum(is_leg) AS legs,
      sum(is_transfer) AS transfers
    FROM (
      SELECT token AS of_token, sum(delta) AS moved, count() AS is_leg, 0 AS is_transfer
      FROM ${tables.table('account_ledger')} FINAL ${within} GROUP BY of_token
      UNION ALL
      SELECT token, toInt256(0), 0, countIf(kind != 'unknown') FROM ${tables.table('transfers')} FINAL ${within} GROUP BY token
    )
    GROUP BY of_token HAVING sum(moved) != 0 OR legs != 2 * transfers ORDER BY of_token LIMIT {limit:UInt32}`;
  return await clickhouse.rows({ name: 'account-ledger.unbalanced', sql, row: sumRow }, { limit });
}
