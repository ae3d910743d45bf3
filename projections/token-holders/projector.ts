import { z } from 'zod';

import { heightSpans } from '../chain-rows.ts';
import type { HeightSpan } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type {
  DeferredPlan,
  DeferredProjection,
  DeferredReads,
  DeriveStatement,
  DueBlock,
} from '../define.ts';
import { dueColumns, dueRow } from '../due-blocks.ts';
import { chainBlocks } from '../streams.ts';
import { ZERO_ADDRESS, lowerHalf, upperHalf } from '../sql-terms.ts';
import { SHARD } from './shards.ts';

/** Rows of blocks that one pass reads: bounds its memory to some hundred MB. */
const ROWS_PER_PASS = 400_000;
/** Ranges of heights that one pass touches: bounds its statements where blocks have few transfers. */
const RANGES_PER_PASS = 16;

/**
 * The new balance of every pair that appears in the due blocks, also in reverted ones, beside the one it has. A pair has few
 * rows in account_ledger_ranges, and these are adjacent. Without FINAL, which would hide a former holder.
 */
const COMPUTE = (touched: string): string => `
INSERT INTO {{token_holders_pass}} (pass, token, shard, account, balance, held, previous)
SELECT {pass:UInt64}, token, ${SHARD}, account,
  if(sum(moved) > 0, toUInt256(sum(moved)), toUInt256(0)), sum(now), sum(earlier)
FROM (
  SELECT token, account, toInt256(0) AS moved, toUInt256(0) AS now, toUInt256(0) AS earlier
  FROM (${touched})
  UNION ALL
  SELECT token, account, delta, toUInt256(0), toUInt256(0) FROM {{account_ledger_ranges}} FINAL
  WHERE (account, token) IN (SELECT account, token FROM (${touched}))
  UNION ALL
  SELECT token, account, toInt256(0), argMax(balance, seq), argMax(previous, seq) FROM {{token_holders}}
  WHERE (token, shard, account) IN (SELECT token, ${SHARD}, account FROM (${touched}))
  GROUP BY token, shard, account
)
GROUP BY token, account`;

const OF_PASS = 'FROM {{token_holders_pass}} WHERE pass = {pass:UInt64}';

/**
 * One insert moves the holders of a pass to their new ranks, so that a reader finds each of them once: the statement inserts one
 * part of the table, which becomes visible as a whole. It takes only holders whose balance is that of this pass, because another
 * pass may have written a later one meanwhile.
 */
const RANK_NEW = `
INSERT INTO {{token_holder_ranks}} (token, balance_desc, account, seq, is_deleted)
SELECT token, bitNot(ranked), account, {pass:UInt64} * 2 + 1, ranked != now
FROM (
  SELECT token, account, argMax(balance, seq) AS now, arrayJoin(groupUniqArrayArray([balance, previous])) AS ranked
  FROM {{token_holders}} WHERE (token, shard, account) IN (SELECT token, shard, account ${OF_PASS})
  GROUP BY token, shard, account HAVING max(seq) = {pass:UInt64}
) WHERE ranked > 0`;

/** Writes the ranks that a pass killed before RANK_NEW has not written, before its balances in token_holders are replaced. */
const RANK_HELD = `
INSERT INTO {{token_holder_ranks}} (token, balance_desc, account, seq, is_deleted)
SELECT token, bitNot(ranked), account, {pass:UInt64} * 2, ranked != held
FROM (SELECT token, account, held, arrayJoin(arrayDistinct([held, previous])) AS ranked ${OF_PASS} AND held != previous)
WHERE ranked > 0`;

const WRITE = [
  RANK_HELD,
  `INSERT INTO {{token_holders}} (token, shard, account, balance, previous, seq, is_deleted)
SELECT token, shard, account, balance, held, pass, balance = 0 ${OF_PASS}`,
  RANK_NEW,
  `INSERT INTO {{token_holder_totals}} (token, shard, holders, high, low, seq, is_deleted)
SELECT token, shard, sum(one) AS n, sum(upper), sum(lower), {pass:UInt64}, n = 0
FROM (
  SELECT DISTINCT token, shard, toUInt64(0) AS one, toUInt256(0) AS upper, toUInt256(0) AS lower ${OF_PASS}
  UNION ALL
  SELECT token, shard, toUInt64(1), ${upperHalf('balance')}, ${lowerHalf('balance')} FROM {{token_holders}} FINAL
  WHERE (token, shard) IN (SELECT token, shard ${OF_PASS})
)
GROUP BY token, shard`,
];

const countRow = z.object({ range: z.int(), rows: z.coerce.number() });

/** The newest ranges of heights with due blocks that one pass can take. */
async function plan(
  due: readonly DueBlock[],
  { clickhouse, table }: DeferredReads,
): Promise<DeferredPlan | null> {
  const spans = heightSpans(due)
    .toSorted((a, b) => b.range - a.range)
    .slice(0, RANGES_PER_PASS);
  if (spans.length === 0) return null;
  const sql = `SELECT range, count() AS rows FROM ${table('account_ledger_by_block')} WHERE ${touchedSql(spans)} GROUP BY range`;
  const counted = await clickhouse.rows({ name: 'token-holders.count', sql, row: countRow });
  const rowsOf = new Map(counted.map(({ range, rows }) => [range, rows]));
  let rows = 0;
  const taken = spans.filter(({ range }, index) => {
    rows += rowsOf.get(range) ?? 0;
    return index === 0 || rows <= ROWS_PER_PASS;
  });
  return {
    blocks: taken.flatMap(({ blocks }) => blocks),
    statements: (pass) => statementsOf(taken, pass),
  };
}

function touchedSql(spans: readonly HeightSpan[]): string {
  return spans
    .map(({ range, first, last }) => `(range = ${range} AND block BETWEEN ${first} AND ${last})`)
    .join(' OR ');
}

function statementsOf(spans: readonly HeightSpan[], pass: number): DeriveStatement[] {
  const touched = `SELECT DISTINCT token, account FROM {{account_ledger_by_block}}
    WHERE (${touchedSql(spans)}) AND account != ${ZERO_ADDRESS}`;
  return [COMPUTE(touched), ...WRITE].map((sql) => ({ sql, params: { pass } }));
}

export const tokenHolders: DeferredProjection = {
  kind: 'clickhouse',
  name: 'token-holders',
  version: 1,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: { token_holders_due: { columns: dueColumns } },
  project: (item) => ({ token_holders_due: [dueRow(item)] }),
  deferred: {
    due: 'token_holders_due',
    sources: ['account-ledger'],
    plan,
    compared: {
      token_holders: 'SELECT token, account, balance FROM {{token_holders}} FINAL',
      token_holder_ranks: 'SELECT token, account, balance_desc FROM {{token_holder_ranks}} FINAL',
      token_holder_totals: 'SELECT token, shard, holders, high, low FROM {{token_holder_totals}} FINAL',
    },
  },
};
