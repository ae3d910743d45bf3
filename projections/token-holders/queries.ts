import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { descending } from '../descending.ts';
import { markedBlocks } from '../due-blocks.ts';
import type { ServedTables } from '../served.ts';
import { bigUint, feltHex, feltParam, feltText } from '../transfer-reads.ts';
import { ZERO_ADDRESS, lowerHalf, upperHalf } from '../sql-terms.ts';

const settings = { max_threads: 1 } as const;

export interface Holder {
  readonly account: Felt;
  readonly balance: bigint;
}

export interface HolderTotals {
  readonly holders: number;
  /** Of all balances; it may exceed 2^256. */
  readonly sum: bigint;
}

/** A page of holders: the highest balance first, then by address. */
export interface HoldersRead {
  readonly token: Felt;
  /** The last holder of the previous page. */
  readonly after: Holder | null;
  readonly limit: number;
}

const sums = { holders: z.coerce.number(), high: bigUint, low: bigUint };
const totalsOf = ({ holders, high, low }: z.infer<z.ZodObject<typeof sums>>): HolderTotals => ({
  holders,
  sum: (high << 128n) + low,
});
const totalsRow = z.object(sums).transform(totalsOf);

const NOBODY: HolderTotals = { holders: 0, sum: 0n };

/** The newest blocks whose balances are still to be counted. */
export async function uncountedHolders(
  clickhouse: RowReader,
  tables: ServedTables,
): ReturnType<typeof markedBlocks> {
  return await markedBlocks(clickhouse, tables.table('token_holders_due'), tables.table('indexed_blocks'));
}

/** Number of a token's holders, and the sum of what they hold. */
export async function holderTotals(
  clickhouse: RowReader,
  tables: ServedTables,
  token: Felt,
): Promise<HolderTotals> {
  const sql = `SELECT sum(t.holders) AS holders, toString(sum(t.high)) AS high, toString(sum(t.low)) AS low
    FROM ${tables.table('token_holder_totals')} AS t FINAL WHERE token = ${feltParam('token')}`;
  const query = { name: 'token-holders.totals', sql, row: totalsRow };
  const [row] = await clickhouse.rows(query, { token: feltHex(token) }, { settings });
  return row ?? NOBODY;
}

const rankRow = z
  .object({ o_account: feltText, o_balance: bigUint })
  .transform(({ o_account: account, o_balance: balance }): Holder => ({ account, balance }));

/** Candidates beyond a page that are read with it: some may have another rank by then. */
const SPARE = 16;

/**
 * The holders after one, in order. Read in two steps, because FINAL over all ranks of a token merges all of them: the ranks of a
 * page in any part of the table, then FINAL up to the last of those.
 */
export async function holdersPage(
  clickhouse: RowReader,
  tables: ServedTables,
  read: HoldersRead,
): Promise<Holder[]> {
  const found: Holder[] = [];
  for (let { after } = read; ;) {
    const limit = read.limit - found.length + SPARE;
    const candidates = await ranks(clickhouse, tables, { ...read, after, limit, upTo: null });
    const upTo = candidates.at(-1);
    if (upTo === undefined) return found;
    found.push(...(await ranks(clickhouse, tables, { ...read, after, limit, upTo })));
    if (found.length >= read.limit || candidates.length < limit) return found.slice(0, read.limit);
    after = upTo;
  }
}

/** Ranks after one, up to another; without that one, also ranks which a later row deletes, and some twice. */
async function ranks(
  clickhouse: RowReader,
  tables: ServedTables,
  { token, after, upTo, limit }: HoldersRead & { readonly upTo: Holder | null },
): Promise<Holder[]> {
  // Each side of OR is a condition on the key; a comparison of tuples is not, and would read all holders of one balance.
  const beyond = (balance: string, order: '<' | '>', account: string, orderOfEqual: '<=' | '>'): string =>
    `(balance_desc ${order} bitNot({${balance}:UInt256})
      OR (balance_desc = bitNot({${balance}:UInt256}) AND account ${orderOfEqual} ${feltParam(account)}))`;
  const conditions = [
    `token = ${feltParam('token')}`,
    ...(after === null ? [] : [beyond('balance', '>', 'after', '>')]),
    upTo === null ? 'is_deleted = 0' : beyond('lowest', '<', 'last', '<='),
  ];
  const sql = `SELECT hex(account) AS o_account, toString(bitNot(balance_desc)) AS o_balance
    FROM ${tables.table('token_holder_ranks')} ${upTo === null ? '' : 'FINAL'} WHERE ${conditions.join(' AND ')}
    ORDER BY token, balance_desc, account LIMIT {limit:UInt32}`;
  const params = {
    token: feltHex(token),
    limit,
    ...(after === null ? {} : { balance: after.balance, after: feltHex(after.account) }),
    ...(upTo === null ? {} : { lowest: upTo.balance, last: feltHex(upTo.account) }),
  };
  return await clickhouse.rows({ name: 'token-holders.ranks', sql, row: rankRow }, params, { settings });
}

const upToRow = z
  .object({ ...sums, page: z.array(z.tuple([feltText, bigUint])) })
  .transform(({ page, ...totals }) => ({
    holders: page.map(([account, balance]): Holder => ({ account, balance })),
    totals: totalsOf(totals),
  }));

/** Page and totals at a height, summed from the token's transfers up to it: for tokens with few. */
export async function holdersUpTo(
  clickhouse: RowReader,
  tables: ServedTables,
  { token, after, limit }: HoldersRead,
  upTo: number,
): Promise<{ holders: Holder[]; totals: HolderTotals }> {
  const balances = `SELECT account, toUInt256(sum(moved)) AS balance FROM (
      SELECT arrayJoin([(from_address, -toInt256(amount)), (to_address, toInt256(amount))]) AS leg, leg.1 AS account, leg.2 AS moved
      FROM ${tables.table('transfers')} FINAL
      WHERE token = ${feltParam('token')} AND block_desc >= {upTo:UInt32} AND kind != 'unknown'
    ) WHERE account != ${ZERO_ADDRESS} GROUP BY account HAVING sum(moved) > 0`;
  const isBeyond =
    after === null
      ? '1'
      : `(balance < {balance:UInt256} OR (balance = {balance:UInt256} AND account > ${feltParam('after')}))`;
  // In one statement: two would sum the balances twice.
  const sql = `SELECT count() AS holders, toString(sum(${upperHalf('balance')})) AS high, toString(sum(${lowerHalf('balance')})) AS low,
      arrayMap(one -> (hex(one.2), toString(bitNot(one.1))),
        groupArraySortedIf(${limit})((bitNot(balance), account), ${isBeyond})) AS page
    FROM (${balances})`;
  const position = after === null ? {} : { balance: after.balance, after: feltHex(after.account) };
  const [row] = await clickhouse.rows(
    { name: 'token-holders.up-to', sql, row: upToRow },
    { token: feltHex(token), upTo: descending(upTo), ...position },
    { settings },
  );
  return row ?? { holders: [], totals: NOBODY };
}
