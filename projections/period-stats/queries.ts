import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Felt } from '../../schemas/felt.ts';
import { HEIGHT_RANGE } from '../../schemas/topics.ts';
import { ascendingSql, descending } from '../descending.ts';
import { dueSql, markedBlocks } from '../due-blocks.ts';
import type { ServedTables } from '../served.ts';
import { bigUint, count, feltHex, feltParam, feltText } from '../transfer-reads.ts';
import { DAY_SECONDS, HOUR_SECONDS, startSql, tokenFigures } from './figures.ts';

const settings = { max_threads: 2 } as const;

/** Periods of one length whose start lies between two times, both inclusive; seconds. */
export interface PeriodsRead {
  readonly step: number;
  readonly first: number;
  readonly last: number;
  /** Start of the first period that is computed from the transfers; those before it are derived. */
  readonly presentFrom: number;
  /** The newest height that is counted. Transfers are written before the blocks that they are in. */
  readonly newest: number;
}

const tokenRow = z
  .object({
    start: z.int(),
    transfers: count,
    high: bigUint,
    low: bigUint,
    senders: count,
    receivers: count,
    mints: count,
    burns: count,
  })
  .transform(({ high, low, ...row }) => ({ ...row, volume: (high << 128n) + low }));
export type TokenPeriod = z.infer<typeof tokenRow>;

/** Rows of `transfers` from a time on, up to the newest block: times ascend with heights, so the blocks bound the key. */
const PRESENT = (tables: ServedTables): string => `block_desc >= {newest_desc:UInt32} AND block_desc <= (
    SELECT max(block_desc) FROM ${tables.table('indexed_blocks')} WHERE timestamp >= {presentFrom:UInt32}
  ) AND timestamp >= {presentFrom:UInt32}`;
const START = startSql('{step:UInt32}');
const IN_READ = 'BETWEEN {first:UInt32} AND {last:UInt32}';
const DERIVED = `step = {step:UInt32} AND start ${IN_READ} AND start < {presentFrom:UInt32}`;

/** A set of numbers takes half the time of a set of texts, and its cells twice the memory: so it is filled by one thread. */
const asNumber = (address: string): string => `reinterpretAsUInt256(${address})`;
const ONE_THREAD = { max_threads: 1 } as const;

const paramsOf = ({ newest, ...read }: PeriodsRead) => ({ ...read, newest_desc: descending(newest) });

const hasPresent = ({ last, presentFrom }: PeriodsRead): boolean => last >= presentFrom;

/** Lengths of periods in seconds. */
export const PERIODS = { hour: HOUR_SECONDS, day: DAY_SECONDS } as const;

/** The newest blocks of periods before `presentFrom` that are still to be counted. */
export async function uncountedPeriods(
  clickhouse: RowReader,
  tables: ServedTables,
  { presentFrom }: Pick<PeriodsRead, 'presentFrom'>,
): ReturnType<typeof markedBlocks> {
  const [due, blocks] = [tables.table('period_stats_due'), tables.table('indexed_blocks')];
  return await markedBlocks(clickhouse, due, blocks, presentFrom / HOUR_SECONDS);
}

const lowestRow = z.object({ n: count, lowest: z.int() });

/** The lowest block whose hour, of those from a time (seconds) to before another, is still to be derived; null: none. */
export async function lowestDue(
  clickhouse: RowReader,
  tables: ServedTables,
  { from, before }: { readonly from: number; readonly before: number },
): Promise<number | null> {
  const sql = `SELECT count() AS n, ${ascendingSql('max(block_desc)')} AS lowest
    FROM (${dueSql(tables.table('period_stats_due'))}) WHERE hour >= {from:UInt32} AND hour < {before:UInt32}`;
  const [row] = await clickhouse.rows(
    { name: 'period-stats.due', sql, row: lowestRow },
    { from: from / HOUR_SECONDS, before: before / HOUR_SECONDS },
    { settings },
  );
  return row === undefined || row.n === 0 ? null : row.lowest;
}

/**
 * Start of the first period to compute from the transfers: that of the newest block, or the previous one while no pass has
 * derived it yet.
 */
export async function presentPeriod(
  clickhouse: RowReader,
  tables: ServedTables,
  { step, newest }: { readonly step: number; /** Seconds. */ readonly newest: number },
): Promise<number> {
  const present = Math.floor(newest / step) * step;
  const previous = Math.max(0, present - step);
  const due = await lowestDue(clickhouse, tables, { from: previous, before: present });
  return due === null ? present : previous;
}

/** A token's periods with a transfer, the first one first. */
export async function tokenPeriods(
  clickhouse: RowReader,
  tables: ServedTables,
  token: Felt,
  read: PeriodsRead,
): Promise<TokenPeriod[]> {
  const own = `token = ${feltParam('token')}`;
  const present = `UNION ALL
      SELECT ${START} AS start, ${tokenFigures(asNumber)} FROM ${tables.table('transfers')} FINAL
      WHERE ${own} AND ${PRESENT(tables)} GROUP BY start HAVING start ${IN_READ}`;
  const sql = `SELECT start, transfers, toString(p.high) AS high, toString(p.low) AS low, senders, receivers, mints, burns FROM (
      SELECT start, transfers, high, low, senders, receivers, mints, burns FROM ${tables.table('token_stats')} FINAL
      WHERE ${own} AND ${DERIVED} ${hasPresent(read) ? present : ''}
    ) AS p ORDER BY start`;
  return await clickhouse.rows(
    { name: 'period-stats.token', sql, row: tokenRow },
    { token: feltHex(token), ...paramsOf(read) },
    { settings: ONE_THREAD },
  );
}

const chainRow = z.object({
  start: z.int(),
  blocks: count,
  transfers: count,
  accounts: count,
  tokens: count,
});
export type ChainPeriod = z.infer<typeof chainRow>;

const topRow = z
  .object({ o_token: feltText, n: count })
  .transform(({ o_token: token, n: transfers }) => ({ token, transfers }));
export type TopToken = z.infer<typeof topRow>;

/** Rows of `transfers` of the periods that are computed. Only tokens with a transfer there are read. */
const presentTransfers = (tables: ServedTables): string => `FROM ${tables.table('transfers')} FINAL
    WHERE token IN (
      SELECT DISTINCT subject FROM ${tables.table('transfer_counts_by_block')}
      WHERE subject_kind = 1 AND range BETWEEN (
        SELECT intDiv(${ascendingSql('max(block_desc)')}, ${HEIGHT_RANGE}) FROM ${tables.table('indexed_blocks')}
        WHERE timestamp >= {presentFrom:UInt32}
      ) AND intDiv(${ascendingSql('{newest_desc:UInt32}')}, ${HEIGHT_RANGE})
    ) AND ${PRESENT(tables)}`;

const accountsSql = `uniqExactArray(arrayFilter(one -> one != 0, [${asNumber('from_address')}, ${asNumber('to_address')}]))`;

/** The chain's periods with a block, the first one first. */
export async function chainPeriods(
  clickhouse: RowReader,
  tables: ServedTables,
  read: PeriodsRead,
): Promise<ChainPeriod[]> {
  const present = `UNION ALL
      SELECT start, max(blocks), max(transfers), max(accounts), max(active) FROM (
        SELECT ${START} AS start, 0 AS blocks, count() AS transfers, ${accountsSql} AS accounts, uniqExact(token) AS active
        ${presentTransfers(tables)} GROUP BY start
        UNION ALL
        SELECT ${START} AS start, count(), 0, 0, 0 FROM ${tables.table('indexed_blocks')} FINAL
        WHERE block_desc >= {newest_desc:UInt32} AND timestamp >= {presentFrom:UInt32} GROUP BY start
      ) WHERE start ${IN_READ} GROUP BY start`;
  const sql = `SELECT start, blocks, transfers, accounts, active AS tokens FROM (
      SELECT start, blocks, transfers, accounts, length(tokens) AS active FROM ${tables.table('chain_stats')} FINAL
      WHERE ${DERIVED} ${hasPresent(read) ? present : ''}
    ) ORDER BY start`;
  return await clickhouse.rows({ name: 'period-stats.chain', sql, row: chainRow }, paramsOf(read), {
    settings: ONE_THREAD,
  });
}

/** The tokens with most transfers in these periods together, then by address. */
export async function topTokens(
  clickhouse: RowReader,
  tables: ServedTables,
  read: PeriodsRead,
  limit: number,
): Promise<TopToken[]> {
  const present = `UNION ALL
      SELECT token, count() AS moved ${presentTransfers(tables)} AND ${START} ${IN_READ} GROUP BY token`;
  const sql = `SELECT hex(token) AS o_token, sum(moved) AS n FROM (
      SELECT token, moved FROM (
        SELECT tokens, token_transfers FROM ${tables.table('chain_stats')} FINAL WHERE ${DERIVED}
      ) ARRAY JOIN tokens AS token, token_transfers AS moved
      ${hasPresent(read) ? present : ''}
    ) GROUP BY token ORDER BY n DESC, token LIMIT {limit:UInt32}`;
  return await clickhouse.rows(
    { name: 'period-stats.top', sql, row: topRow },
    { ...paramsOf(read), limit },
    { settings },
  );
}
