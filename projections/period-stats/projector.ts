import { z } from 'zod';

import { rangeOf } from '../../schemas/topics.ts';
import { heightSpans } from '../chain-rows.ts';
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
import { DAY_SECONDS, HOUR_SECONDS, chainFigures, startSql, tokenFigures } from './figures.ts';

const HOURS_PER_DAY = 24;
/** A day whose blocks are still being marked is derived when this many seconds have passed without one, if others are due. */
const QUIET_SECONDS = 5;

const IN_DAY = 'timestamp >= {day:UInt32} AND timestamp < {nextDay:UInt32}';
const MOVED_IN_DAY = `block_desc BETWEEN {newest:UInt32} AND {oldest:UInt32} AND ${IN_DAY}`;
const STEPS = `arrayJoin([${HOUR_SECONDS}, ${DAY_SECONDS}])`;

/** Recomputes the periods of the day for each token of the due blocks; one that has none any more gets tombstones. */
const tokenPeriods = (touched: string): string => `
INSERT INTO {{token_stats}}
  (token, step, start, transfers, high, low, senders, receivers, mints, burns, seq, is_deleted)
SELECT token, step, start, max(transfers) AS total, max(high), max(low), max(senders), max(receivers), max(mints),
  max(burns), {pass:UInt64}, total = 0
FROM (
  SELECT token, ${STEPS} AS step, ${startSql('step')} AS start, ${tokenFigures()}
  FROM {{transfers}} FINAL WHERE token IN (${touched}) AND ${MOVED_IN_DAY} GROUP BY token, step, start
  UNION ALL
  SELECT token, step, start, 0, toUInt256(0), toUInt256(0), 0, 0, 0, 0 FROM {{token_stats}} FINAL
  WHERE token IN (${touched}) AND step IN (${HOUR_SECONDS}, ${DAY_SECONDS}) AND start >= {day:UInt32} AND start < {nextDay:UInt32}
)
GROUP BY token, step, start`;

/** Recomputes the periods of the day for the chain, and writes tombstones for periods without a block. */
const chainPeriods = (active: string): string => `
INSERT INTO {{chain_stats}} (step, start, blocks, transfers, accounts, tokens, token_transfers, seq, is_deleted)
SELECT step, start, max(blocks) AS total, max(moved), max(accounts), groupArrayArray(tokens), groupArrayArray(counts),
  {pass:UInt64}, total = 0
FROM (
  SELECT step, start, 0 AS blocks, transfers AS moved, accounts, pairs.1 AS tokens, pairs.2 AS counts FROM (
    SELECT ${STEPS} AS step, ${startSql('step')} AS start, ${chainFigures.replace('AS moved', 'AS pairs')}
    FROM {{transfers}} FINAL WHERE token IN (${active}) AND ${MOVED_IN_DAY} GROUP BY step, start
  )
  UNION ALL
  SELECT ${STEPS} AS step, ${startSql('step')} AS start, count(), 0, 0, [], []
  FROM {{indexed_blocks}} FINAL WHERE ${IN_DAY} GROUP BY step, start
  UNION ALL
  SELECT step, start, 0, 0, 0, [], [] FROM {{chain_stats}} FINAL
  WHERE step IN (${HOUR_SECONDS}, ${DAY_SECONDS}) AND start >= {day:UInt32} AND start < {nextDay:UInt32}
)
GROUP BY step, start`;

const boundsRow = z.object({ newest: z.int(), oldest: z.int() });

/**
 * The newest day that has hours which are due and over. An hour is over when the newest block is in a later one; so is a day,
 * and its last hour is not over before it. Hours of reverted blocks above the newest stay due.
 */
async function plan(
  due: readonly DueBlock[],
  { clickhouse, table, newestTime }: DeferredReads,
): Promise<DeferredPlan | null> {
  const newest = await newestTime();
  if (newest === null) return null;
  const present = Math.floor(newest / HOUR_SECONDS);
  const over = due.filter(({ hour }) => hour < present);
  const byDay = Map.groupBy(over, ({ hour }) => Math.floor(hour / HOURS_PER_DAY));
  const days = [...byDay.keys()].toSorted((a, b) => b - a);
  const isQuiet = (day: number): boolean => (byDay.get(day) ?? []).every(({ age }) => age >= QUIET_SECONDS);
  const day = days.find(isQuiet) ?? days[0];
  if (day === undefined) return null;
  const blocks = byDay.get(day) ?? [];
  const isOver = day < Math.floor(present / HOURS_PER_DAY);
  const times = { day: day * DAY_SECONDS, nextDay: (day + 1) * DAY_SECONDS };
  // Times ascend with heights. Without a block in the day both are 0, which is the key of none.
  const [bounds = { newest: 0, oldest: 0 }] = await clickhouse.rows(
    {
      name: 'period-stats.bounds',
      sql: `SELECT min(block_desc) AS newest, max(block_desc) AS oldest FROM ${table('indexed_blocks')} FINAL WHERE ${IN_DAY}`,
      row: boundsRow,
    },
    times,
  );
  return { blocks, statements: (pass) => statementsOf(blocks, isOver, { ...times, ...bounds, pass }) };
}

/**
 * Recomputes all tokens of a day that is over: those of earlier hours may have been derived before it was, and no block of
 * theirs is due any more. Of a day that is not over, only tokens of due blocks, so that no row outlives a reorg.
 */
function statementsOf(
  blocks: readonly DueBlock[],
  isOver: boolean,
  params: { readonly newest: number; readonly oldest: number } & Readonly<Record<string, unknown>>,
): DeriveStatement[] {
  const due = heightSpans(blocks);
  // Rows of the base table also name the tokens of reverted blocks.
  const tokens = (spans: readonly { readonly first: number; readonly last: number }[]): string =>
    `SELECT DISTINCT subject FROM {{transfer_counts_by_block}} WHERE subject_kind = 1 AND (${spans.map(spanSql).join(' OR ')})`;
  const day = { first: 0xffff_ffff - params.oldest, last: 0xffff_ffff - params.newest };
  return [
    { sql: tokenPeriods(tokens(isOver ? [...due, day] : due)), params },
    { sql: chainPeriods(tokens([day])), params },
  ];
}

function spanSql({ first, last }: { readonly first: number; readonly last: number }): string {
  return `(range BETWEEN ${rangeOf(first)} AND ${rangeOf(last)} AND block BETWEEN ${first} AND ${last})`;
}

/** Periods that are over at the newest block. */
const OVER = 'start + step <= intDiv((SELECT max(timestamp) FROM {{indexed_blocks}} FINAL), step) * step';

export const periodStats: DeferredProjection = {
  kind: 'clickhouse',
  name: 'period-stats',
  version: 1,
  topic: chainBlocks,
  ddl: tableSql(import.meta.url),
  tables: { period_stats_due: { columns: dueColumns } },
  project: (item) => ({ period_stats_due: [dueRow(item)] }),
  deferred: {
    due: 'period_stats_due',
    sources: ['transfers', 'transfer-counts', 'indexed-blocks'],
    plan,
    compared: {
      token_stats: `SELECT token, step, start, transfers, high, low, senders, receivers, mints, burns FROM {{token_stats}} FINAL WHERE ${OVER}`,
      chain_stats: `SELECT step, start, blocks, transfers, accounts, arraySort(arrayZip(tokens, token_transfers)) FROM {{chain_stats}} FINAL WHERE ${OVER}`,
    },
  },
};
