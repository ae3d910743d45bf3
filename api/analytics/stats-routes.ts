import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { newestBlock } from '../../projections/indexed-blocks/queries.ts';
import {
  PERIODS,
  chainPeriods,
  lowestDue,
  uncountedPeriods,
  presentPeriod,
  tokenPeriods,
  topTokens,
} from '../../projections/period-stats/queries.ts';
import type { PeriodsRead } from '../../projections/period-stats/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { chainStatsAnswer, tokenStatsAnswer } from '../../schemas/api/analytics.ts';
import type { AsOf } from '../http/as-of.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput } from '../http/errors.ts';
import { readCovering } from '../http/min-block.ts';
import { address, hoursOrDays } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import { figure } from '../http/stated-limits.ts';
import type { RequestInfo, Route } from '../http/route.ts';
import { blockSecond, iso } from '../http/times.ts';
import { POLL_MS, coverageHeaders, coverageOf, keepWhileUnchanged } from './coverage.ts';
import type { DerivedCoverage } from './coverage.ts';

export interface StatsRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  /** Unix milliseconds. */
  readonly now: () => number;
}

const STEPS = { '1 hour': PERIODS.hour, '1 day': PERIODS.day } as const;
/** Periods of one answer: a year of hours. */
const MAX_PERIODS = 8784;
/** Periods of an answer without start_time. */
const DEFAULT_PERIODS = 30;
const TOP_TOKENS = 10;

const periodsQuery = hoursOrDays(DEFAULT_PERIODS);

/** Which hours or days an answer has. */
const WHICH = [
  'Returns a row for each hour or day that begins between `start_time` and `end_time`, inclusive, oldest first; at most',
  `${MAX_PERIODS.toLocaleString('en')}. The hour or day of the newest block is counted up to that block. With`,
  '`as_of_block`, no later block is counted, and `end_time` is the time of that block by default.',
].join(' ');

const common = { method: 'GET', tag: 'Analytics', auth: 'key', asOf: true } as const;

/** Statistics of a token and of the chain. */
export function statsRoutes({ clickhouseFor, now }: StatsRouteDeps): Route[] {
  const periodsOf = periodReader(now);
  return [tokenStatsRoute(clickhouseFor, periodsOf), chainStatsRoute(clickhouseFor, periodsOf)];
}

function tokenStatsRoute(clickhouseFor: ClickHouseFor, periodsOf: PeriodReader): Route {
  return defineRoute({
    id: 'getTokenStats',
    ...common,
    path: '/api/tokens/{address}/stats/',
    summary: 'Get the transfers of a token by hour or day',
    description: [
      WHICH,
      'Hours and days without a transfer are left out. Counts the transfers that `/api/transfers/` lists, fees included. The',
      'zero address counts neither as a sender nor as a receiver. The volume is the sum of the amounts; for NFTs, their number;',
      'for contracts of unknown standard, 0.',
    ].join(' '),
    params: z.object({ address: address() }),
    reportsInvalidPath: true,
    query: periodsQuery,
    limits: [`Hours or days: ${figure(MAX_PERIODS)} (400)`],
    response: { 200: tokenStatsAnswer },
    async handler({ input: { params, query }, served, request, asOf }) {
      const clickhouse = clickhouseFor(request);
      const { read, coverage } = await periodsOf(clickhouse, served, query, { request, asOf });
      const found = await tokenPeriods(clickhouse, served, params.address, read);
      return {
        status: 200,
        headers: coverageHeaders(coverage, asOf),
        body: {
          results: found.map(({ start, volume, ...figures }) => ({
            time: iso(start * 1000),
            ...figures,
            volume: String(volume),
          })),
          ...lateness(coverage),
        },
      };
    },
  });
}

function chainStatsRoute(clickhouseFor: ClickHouseFor, periodsOf: PeriodReader): Route {
  return defineRoute({
    id: 'getChainStats',
    ...common,
    path: '/api/stats/',
    summary: 'Get the blocks and transfers of the chain by hour or day',
    description: [
      WHICH,
      'Hours and days without a block are left out. `accounts` counts senders and receivers except the zero address. `top_tokens`',
      `lists the ${TOP_TOKENS} tokens with the most transfers in all these hours or days together.`,
    ].join(' '),
    query: periodsQuery,
    limits: [`Hours or days: ${figure(MAX_PERIODS)} (400)`],
    response: { 200: chainStatsAnswer },
    async handler({ input: { query }, served, request, asOf }) {
      const clickhouse = clickhouseFor(request);
      const { read, coverage } = await periodsOf(clickhouse, served, query, { request, asOf });
      const [periods, top] = await Promise.all([
        chainPeriods(clickhouse, served, read),
        topTokens(clickhouse, served, read, TOP_TOKENS),
      ]);
      return {
        status: 200,
        headers: coverageHeaders(coverage, asOf),
        body: {
          results: periods.map(({ start, ...figures }) => ({ time: iso(start * 1000), ...figures })),
          top_tokens: top.map(({ token, transfers }) => ({ token_address: token, transfers })),
          ...lateness(coverage),
        },
      };
    },
  });
}

const lateness = (coverage: DerivedCoverage | null): { complete?: false } =>
  coverage?.isLate === true ? { complete: false } : {};

/** What the answers of one interval have in common. */
interface Present extends Pick<PeriodsRead, 'presentFrom' | 'newest'> {
  /** The block that the periods before `presentFrom` cover. */
  readonly coverage: DerivedCoverage | null;
}

type PeriodReader = (
  clickhouse: ClickHouse,
  served: ServedBuilds,
  query: z.output<typeof periodsQuery>,
  of: { readonly request: RequestInfo; readonly asOf: AsOf | null },
) => Promise<{ readonly read: PeriodsRead; readonly coverage: DerivedCoverage | null }>;

/**
 * Reads which of the requested periods to compute, and the block that the others cover.
 *
 * @throws 400 for too many, 503 where they do not cover the block that the client asks for
 */
function periodReader(now: () => number): PeriodReader {
  const kept = keepWhileUnchanged<Present>(now);
  return async (clickhouse, served, query, { request, asOf }) => {
    const bounds = boundsOf(query, asOf === null ? now() : asOf.timestamp * 1000);
    const { step } = bounds;
    const upTo = (one: Present): number => one.coverage?.upTo ?? -1;
    const isEnough = (one: Present): boolean => upTo(one) >= (request.minBlock() ?? -1);
    const read = async (): Promise<Present> => await presentOf(clickhouse, served, step);
    const { coverage, ...present } =
      asOf === null
        ? await readCovering(async () => await kept(served, step, read, isEnough), upTo, {
            request,
            everyMs: POLL_MS,
          })
        : await presentAsOf(clickhouse, served, bounds, asOf);
    return { read: { ...bounds, ...present }, coverage };
  };
}

async function presentOf(clickhouse: ClickHouse, served: ServedBuilds, step: number): Promise<Present> {
  const newest = await newestBlock(clickhouse, served);
  if (newest === null) return { presentFrom: 0, newest: 0, coverage: null };
  const presentFrom = await presentPeriod(clickhouse, served, { step, newest: newest.timestamp });
  const coverage = coverageOf(newest.height, await uncountedPeriods(clickhouse, served, { presentFrom }));
  return { presentFrom, newest: newest.height, coverage };
}

/** Periods that are over by the block are as derived: times ascend with heights. */
async function presentAsOf(
  clickhouse: ClickHouse,
  served: ServedBuilds,
  { step, first, last }: Pick<PeriodsRead, 'step' | 'first' | 'last'>,
  { height, timestamp }: AsOf,
): Promise<Present> {
  const presentFrom = await presentPeriod(clickhouse, served, { step, newest: timestamp });
  const asked = {
    from: Math.ceil(first / step) * step,
    before: Math.min(presentFrom, Math.floor(last / step) * step + step),
  };
  const due = await lowestDue(clickhouse, served, asked);
  const coverage = due === null ? null : { upTo: Math.min(height, due - 1), isLate: true };
  return { presentFrom, newest: height, coverage };
}

function boundsOf(
  query: z.output<typeof periodsQuery>,
  now: number,
): Pick<PeriodsRead, 'step' | 'first' | 'last'> {
  const step = STEPS[query.interval];
  const endMs = query.end_time?.getTime() ?? now;
  const startMs = query.start_time?.getTime() ?? endMs - DEFAULT_PERIODS * step * 1000;
  if (startMs > endMs) throw invalidInput({ start_time: ['Must not be later than end_time.'] });
  const [start, end] = [Math.ceil(startMs / 1000), Math.floor(endMs / 1000)];
  const asked = Math.floor(end / step) - Math.ceil(start / step) + 1;
  if (asked > MAX_PERIODS) {
    const unit = query.interval === '1 hour' ? 'hours' : 'days';
    throw invalidInput({
      start_time: [`There are ${asked} ${unit} until end_time; ${MAX_PERIODS} are allowed.`],
    });
  }
  return { step, first: blockSecond(start), last: blockSecond(end) };
}
