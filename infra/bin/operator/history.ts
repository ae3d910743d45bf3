import { z } from 'zod';

import { chainStatusRow } from '../../../projections/chain-status/queries.ts';
import { chunkTotals, newestBlock } from '../../../projections/indexed-blocks/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type { HistoryAnswer } from '../../../schemas/api/admin/history.ts';
import type { PipelineAnswer } from '../../../schemas/api/admin/pipeline.ts';
import type { Clock } from '../../clock.ts';
import type { ClickHouse } from '../../clickhouse/client.ts';
import type { Logger } from '../../log.ts';
import { startLoop } from '../../loop.ts';
import type { Loop } from '../../loop.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { chunkMap, headHeight, logHeight } from './status.ts';

const STEP_SECONDS = 5;
const MINUTE_SECONDS = 60;
/** How long rows are kept, by their step. */
const KEPT_SECONDS: Readonly<Record<HistoryStep, number>> = {
  [STEP_SECONDS]: 3600,
  [MINUTE_SECONDS]: 86_400,
};
export type HistoryStep = typeof STEP_SECONDS | typeof MINUTE_SECONDS;
/** A process that finds the current row taken leaves up to this many further rows to other processes. */
const LEFT_TO_OTHERS = 3;
/** Throughput is measured over this long. */
const THROUGHPUT_SECONDS = 60;

interface HistoryDeps {
  readonly pool: Sql;
  readonly clickhouse: ClickHouse;
  readonly clock: Clock;
}

export interface HistoryRecorder {
  /** Measures the present row, unless another process has taken it: then false. */
  record(): Promise<boolean>;
}

/**
 * Records heights, lags and totals. Any number of processes may record: each row is measured by the one that inserts it, so
 * the history continues as long as one of them lives.
 */
export function createHistoryRecorder({ pool, clickhouse, clock }: HistoryDeps): HistoryRecorder {
  let lastMinute = -1;
  return {
    async record() {
      const now = clock.wallTime();
      const at = slotOf(now, STEP_SECONDS);
      const { rowCount } = await pool.query(
        'INSERT INTO tds.history (step, at) VALUES ($1, $2) ON CONFLICT DO NOTHING',
        [STEP_SECONDS, at],
      );
      if (rowCount === 0) return false;
      const measured = await measure({ pool, clickhouse }, now);
      await pool.query(
        `UPDATE tds.history SET head_height = $3, log_height = $4, indexed_height = $5, lag_blocks = $6, lag_seconds = $7,
           blocks = $8, transfers = $9 WHERE step = $1 AND at = $2`,
        [STEP_SECONDS, at, ...measured],
      );
      const minute = slotOf(now, MINUTE_SECONDS);
      if (minute.getTime() !== lastMinute) await foldMinutes(pool, minute, now);
      lastMinute = minute.getTime();
      return true;
    },
  };
}

/** Records until it is stopped. */
export function startHistory(deps: HistoryDeps & { readonly log: Logger }): Loop {
  const { clock, log } = deps;
  const recorder = createHistoryRecorder(deps);
  return startLoop({
    clock,
    async round() {
      const hasRecorded = await recorder.record().catch((error: unknown) => {
        // A store is unavailable, or no read model is built yet.
        log.debug({ err: error }, 'could not record the history');
        return true;
      });
      const now = clock.wallTime();
      const next = slotOf(now, STEP_SECONDS).getTime() + STEP_SECONDS * 1000;
      const more = hasRecorded ? 0 : (LEFT_TO_OTHERS - clock.random()) * STEP_SECONDS * 1000;
      return next - now + more;
    },
  });
}

/** The start of the step in which a time lies (unix milliseconds). */
function slotOf(now: number, step: HistoryStep): Date {
  return new Date(Math.floor(now / (step * 1000)) * step * 1000);
}

/** Values of the columns from `head_height` to `transfers`; null where a store does not answer. */
async function measure(
  { pool, clickhouse }: Pick<HistoryDeps, 'pool' | 'clickhouse'>,
  now: number,
): Promise<(number | null)[]> {
  const served = await servedBuilds(pool);
  const [chain, chunks, newest, totals] = await Promise.all([
    chainStatusRow(pool, served.schema('chain-status')),
    chunkMap(pool),
    newestBlock(clickhouse, served).catch(() => null),
    chunkTotals(clickhouse, served).catch(() => null),
  ]);
  const head = headHeight(chain, chunks);
  const lag = head === null || newest === null ? null : Math.max(0, head - newest.height);
  const age = newest === null ? null : Math.max(0, now / 1000 - newest.timestamp);
  const sum = (of: 'blocks' | 'transfers'): number | null =>
    totals?.reduce((all, chunk) => all + chunk[of], 0) ?? null;
  return [
    head,
    logHeight(chunks),
    newest?.height ?? null,
    lag,
    lag === 0 ? 0 : age,
    sum('blocks'),
    sum('transfers'),
  ];
}

/** Makes the rows of the minutes that have ended, and deletes what is no longer kept. */
async function foldMinutes(pool: Sql, minute: Date, now: number): Promise<void> {
  await pool.query(
    `INSERT INTO tds.history (step, at, head_height, log_height, indexed_height, lag_blocks, lag_seconds, blocks, transfers)
     SELECT $1, date_trunc('minute', at), (array_agg(head_height ORDER BY at DESC))[1],
       (array_agg(log_height ORDER BY at DESC))[1], (array_agg(indexed_height ORDER BY at DESC))[1],
       max(lag_blocks), max(lag_seconds), (array_agg(blocks ORDER BY at DESC))[1],
       (array_agg(transfers ORDER BY at DESC))[1]
     FROM tds.history WHERE step = $2 AND at < $3 AND ${IS_MEASURED} GROUP BY 2 ON CONFLICT DO NOTHING`,
    [MINUTE_SECONDS, STEP_SECONDS, minute],
  );
  for (const step of [STEP_SECONDS, MINUTE_SECONDS] as const) {
    await pool.query('DELETE FROM tds.history WHERE step = $1 AND at <= $2', [
      step,
      new Date(now - KEPT_SECONDS[step] * 1000),
    ]);
  }
}

/** Its process has not ended between inserting and measuring. */
const IS_MEASURED = 'num_nonnulls(head_height, log_height, indexed_height) > 0';

const historyRow = z.object({
  at: z.date(),
  head_height: z.number().nullable(),
  log_height: z.number().nullable(),
  indexed_height: z.number().nullable(),
  lag_blocks: z.number().nullable(),
  lag_seconds: z.number().nullable(),
  blocks: z.number().nullable(),
  transfers: z.number().nullable(),
});
type HistoryRow = z.infer<typeof historyRow>;

/** The history of the last hour or day, oldest first; steps in which nothing was recorded are missing. */
export async function readHistory(pool: Sql, step: HistoryStep, now: number): Promise<HistoryAnswer> {
  const rows = await historyRows(pool, step, now - KEPT_SECONDS[step] * 1000);
  return {
    step_seconds: step,
    results: rows.map(({ at, blocks, transfers, ...row }, i) => {
      const rates = ratesBetween(rows[i - 1], { at, blocks, transfers });
      return {
        time: at.toISOString(),
        ...row,
        blocks_per_second: rates?.blocks_per_second ?? null,
        transfers_per_second: rates?.transfers_per_second ?? null,
      };
    }),
  };
}

/** What was indexed per second during the last minute. */
export async function readThroughput(pool: Sql, now: number): Promise<PipelineAnswer['throughput']> {
  const rows = await historyRows(pool, STEP_SECONDS, now - (THROUGHPUT_SECONDS + 2 * STEP_SECONDS) * 1000);
  const counted = rows.filter(({ blocks }) => blocks !== null);
  const last = counted.at(-1);
  return last === undefined ? null : ratesBetween(counted[0], last);
}

async function historyRows(pool: Sql, step: HistoryStep, since: number): Promise<HistoryRow[]> {
  const columns = Object.keys(historyRow.shape).join(', ');
  const sql = `SELECT ${columns} FROM tds.history WHERE step = $1 AND at > $2 AND ${IS_MEASURED} ORDER BY at`;
  return await sqlRows(pool, historyRow, sql, [step, new Date(since)]);
}

type Counted = Pick<HistoryRow, 'at' | 'blocks' | 'transfers'>;

/** null where a total is unknown or has fallen, as after a reorg. */
function ratesBetween(previous: Counted | undefined, { at, blocks, transfers }: Counted) {
  if (previous === undefined || blocks === null || transfers === null) return null;
  if (previous.blocks === null || previous.transfers === null) return null;
  const seconds = (at.getTime() - previous.at.getTime()) / 1000;
  const [moreBlocks, moreTransfers] = [blocks - previous.blocks, transfers - previous.transfers];
  if (seconds <= 0 || moreBlocks < 0 || moreTransfers < 0) return null;
  return {
    seconds,
    blocks_per_second: moreBlocks / seconds,
    transfers_per_second: moreTransfers / seconds,
  };
}
