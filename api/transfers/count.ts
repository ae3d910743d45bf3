import { findRows } from '../../projections/transfer-counts/queries.ts';
import type { Subject } from '../../projections/transfer-counts/queries.ts';
import { MAX_HEIGHT, transferCount, transferSample } from '../../projections/transfers/queries.ts';
import { REACHABLE_ROWS } from '../http/envelope.ts';
import type { RowCount } from '../http/envelope.ts';
import { SKIPPING, countUpTo, countableSources } from './read.ts';
import type { TransferReading } from './read.ts';

/** Matches are counted exactly up to this number. */
const EXACT_COUNT = 100_000;

/** Newest rows of a subject that an estimate samples. */
const SAMPLE_ROWS = 20_000;

/**
 * Time limit of counting, reached only by a filter that matches few of tens of millions of rows (8 M rows take 300 ms);
 * the count is then an estimate.
 */
const COUNT_SECONDS = 4;

/**
 * Counts matching transfers: exact for a single token, account or block, from what is kept of it; otherwise exact up to
 * 100,000 and an estimate beyond.
 */
export async function countTransfers(reading: TransferReading): Promise<RowCount> {
  const { clickhouse, plan, filters } = reading;
  if (plan.count !== null) return { count: plan.count, isEstimate: false };
  if (plan.exact !== null) {
    return { count: await subjectCount(reading, plan.exact), isEstimate: false };
  }
  const { query, params } = transferCount(countableSources(plan), filters, EXACT_COUNT + 1);
  const limits = { max_execution_time: COUNT_SECONDS, timeout_overflow_mode: 'break' };
  // What fits into a time limit differs from call to call.
  const settings = { ...SKIPPING, max_threads: 2, ...(reading.isFixed ? {} : limits) };
  const started = performance.now();
  const [counted] = await clickhouse.rows(query, params, { settings });
  // A count that hit the time limit is not marked as such.
  const isWhole = reading.isFixed || performance.now() - started < COUNT_SECONDS * 1000;
  const n = counted?.n ?? 0;
  if (n <= EXACT_COUNT && isWhole) return { count: n, isEstimate: false };
  return { count: Math.max(n, await estimate(reading)), isEstimate: true };
}

/** Exact as far as page numbers reach: an estimate may be too high, and the last page would be empty. */
export async function countForLastPage(reading: TransferReading): Promise<RowCount> {
  const counted = await countTransfers(reading);
  if (!counted.isEstimate) return counted;
  const count = await countUpTo(reading, reading.filters, REACHABLE_ROWS);
  return count < REACHABLE_ROWS
    ? { count, isEstimate: false }
    : { count: Math.max(counted.count, count), isEstimate: true };
}

/** For each source, the number of its subject's rows times the share of matches among the newest of them. */
async function estimate(reading: TransferReading): Promise<number> {
  const { clickhouse, plan, filters } = reading;
  const parts = plan.sources.map(async ({ source, subject, whole = source }) => {
    if (subject === null) return 0;
    const { query, params } = transferSample(whole, filters, SAMPLE_ROWS);
    const settings = { max_threads: 1 };
    const [total, [sample]] = await Promise.all([
      subjectCount(reading, subject),
      clickhouse.rows(query, params, { settings }),
    ]);
    return sample === undefined || sample.seen === 0
      ? 0
      : Math.round((total * sample.matching) / Math.max(sample.seen, Math.min(total, SAMPLE_ROWS)));
  });
  return (await Promise.all(parts)).reduce((sum, part) => sum + part, 0);
}

async function subjectCount(reading: TransferReading, subject: Subject): Promise<number> {
  const { clickhouse, tables, filters } = reading;
  if (filters.lo === 0 && filters.hi === MAX_HEIGHT) return await reading.total(subject);
  const { total } = await findRows(clickhouse, tables, subject, {
    order: 'desc',
    lo: filters.lo,
    hi: filters.hi,
    skip: 0,
    need: 0,
  });
  return total;
}
