import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { descending } from '../descending.ts';
import type { ServedTables } from '../served.ts';
import { ZERO_ADDRESS } from '../sql-terms.ts';
import { count, feltHex, feltParam, feltText, upToSql } from '../transfer-reads.ts';
import type { TransferSource, VersionedSource } from '../transfer-reads.ts';

const legs = { account: '', search: '', from: ' AND leg IN (1, 3)', to: ' AND leg IN (2, 3)' } as const;

/** An account's transfers, in the order of the key: all, only outgoing, or only incoming ones. */
export function transfersOfAccount(tables: ServedTables, filter: keyof typeof legs): TransferSource {
  return { sql: `${transfersInAndOut(tables, filter).sql}${legs[filter]}`, settles: [filter] };
}

/** An account's transfers in both directions, also where it is given as one side: the filter remains a condition on them. */
export function transfersInAndOut(tables: ServedTables, filter: keyof typeof legs): TransferSource {
  return {
    sql: `FROM ${tables.table('account_feed')} FINAL WHERE account = ${feltParam(filter)}`,
    settles: [],
  };
}

/** Every version of the same rows. */
export function versionsOfAccount(tables: ServedTables, filter: keyof typeof legs): VersionedSource {
  return {
    sql: `FROM ${tables.table('account_feed')} WHERE account = ${feltParam(filter)}${legs[filter]}`,
    key: 'account, block_desc, position_desc, item_desc, leg',
    subject: 'account',
    settles: [filter],
  };
}

const settings = { max_threads: 2 } as const;

const figuresRow = z.object({
  first: z.int(),
  last: z.int(),
  transfers: count,
  tokens: count,
  counterparties: count,
});
/** Times are unix seconds, and 0 without a transfer. The account itself and the zero address are no counterparties. */
export type AccountFigures = z.infer<typeof figuresRow>;

const feeRow = z.object({ o_token: feltText, amount: z.string().regex(/^[0-9]+$/) });
export interface AccountFee {
  readonly token: Felt;
  /** Decimal text. */
  readonly amount: string;
}

/** Figures of an account's transfers up to a height, and the fees it paid by token. Reads a row for each of these transfers. */
export async function accountFigures(
  clickhouse: RowReader,
  tables: ServedTables,
  account: Felt,
  upTo: number,
): Promise<{ figures: AccountFigures; fees: AccountFee[] }> {
  const own = `FROM ${tables.table('account_feed')} FINAL WHERE account = ${feltParam('account')} ${upToSql(upTo)}`;
  const other = `if(leg = 1, to_address, from_address)`;
  const sql = `SELECT min(timestamp) AS first, max(timestamp) AS last, count() AS transfers, uniqExact(token) AS tokens,
      uniqExactIf(${other}, leg != 3 AND ${other} != ${ZERO_ADDRESS}) AS counterparties ${own}`;
  const paid = `SELECT hex(token) AS o_token, toString(sum(p.amount)) AS amount
    FROM (SELECT token, amount ${own} AND is_fee = 1 AND leg IN (1, 3)) AS p GROUP BY token ORDER BY token`;
  const params = { account: feltHex(account), up_to: descending(upTo) };
  const [[figures], fees] = await Promise.all([
    clickhouse.rows({ name: 'account-feed.figures', sql, row: figuresRow }, params, { settings }),
    clickhouse.rows({ name: 'account-feed.fees', sql: paid, row: feeRow }, params, { settings }),
  ]);
  if (figures === undefined) throw new TypeError('ClickHouse returned no sums');
  return { figures, fees: fees.map(({ o_token: token, amount }) => ({ token, amount })) };
}
