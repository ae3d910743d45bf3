import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import {
  newestBlock,
  newestHeightAt,
  newestRun,
  runStart,
  wholeUpTo,
} from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import {
  holderTotals,
  holdersPage,
  holdersUpTo,
  uncountedHolders,
} from '../../projections/token-holders/queries.ts';
import type { Holder, HolderTotals, HoldersRead } from '../../projections/token-holders/queries.ts';
import { subjectTotals } from '../../projections/transfer-counts/queries.ts';
import { tokenHoldersAnswer } from '../../schemas/api/analytics.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { AsOf } from '../http/as-of.ts';
import type { ClickHouseFor } from '../http/clickhouse.ts';
import { invalidInput } from '../http/errors.ts';
import { readCovering } from '../http/min-block.ts';
import { address, limit, text, timestamp } from '../http/params.ts';
import { defineRoute } from '../http/route.ts';
import type { RequestInfo, Route } from '../http/route.ts';
import { figure } from '../http/stated-limits.ts';
import { POLL_MS, coverageHeaders, coverageOf, keepWhileUnchanged } from './coverage.ts';
import type { DerivedCoverage } from './coverage.ts';
import { decodeHoldersCursor, encodeHoldersCursor } from './holders-cursor.ts';

export interface HolderRouteDeps {
  readonly clickhouseFor: ClickHouseFor;
  /** Unix milliseconds. */
  readonly now: () => number;
}

/** At a time or as of a block, balances are summed from the token's transfers up to it: at most this many. */
const MAX_SUMMED = 200_000;

interface Holders {
  readonly holders: readonly Holder[];
  readonly totals: HolderTotals;
  readonly coverage: DerivedCoverage | null;
  readonly isComplete: boolean;
}

/** `start`: the lowest height from which all blocks are indexed. */
type Counted = DerivedCoverage & { readonly start: number };

export function holdersRoute({ clickhouseFor, now }: HolderRouteDeps): Route {
  const kept = keepWhileUnchanged<Counted | null>(now);
  return defineRoute({
    id: 'listTokenHolders',
    method: 'GET',
    path: '/api/tokens/{address}/holders/',
    summary: 'List the holders of a token',
    description: [
      'Sorted by balance, highest first, then by address. A balance is the sum of the account’s transfers in the indexed blocks: for',
      'an NFT contract, the number of its NFTs; for an ERC-1155 contract, the sum over all ids. The zero address and accounts whose',
      'sum is not above zero are left out. If not all blocks from 0 on are indexed, a balance is the change since the first indexed',
      'block, and `complete` is false. If balances of a token change without transfers, as with a rebasing token, its contract',
      'reports other balances: see `/api/account-balances/`. All blocks up to `X-Indexed-Block` are counted. For a few seconds, newer',
      'blocks may be counted too, and after a reorg also replaced ones. With `at_time`, returns the balances after the newest block',
      `at or before it. With \`at_time\` or \`as_of_block\`, a token with more than ${MAX_SUMMED.toLocaleString('en')} transfers until then returns 400.`,
    ].join(' '),
    tag: 'Analytics',
    auth: 'key',
    asOf: true,
    params: z.object({ address: address() }),
    reportsInvalidPath: true,
    query: z.object({
      cursor: text({ max: 200, description: '`next_cursor` of the previous page' }).optional(),
      limit: limit(),
      at_time: timestamp('ISO 8601, UTC by default; now when absent or in the future').optional(),
    }),
    limits: [`Transfers that are summed for \`at_time\` or \`as_of_block\`: ${figure(MAX_SUMMED)} (400)`],
    response: { 200: tokenHoldersAnswer },
    async handler({ input: { params, query }, served, request, asOf }) {
      const clickhouse = clickhouseFor(request);
      const { address: token } = params;
      const { limit: most, at_time: atTime } = query;
      if (asOf !== null && atTime !== undefined)
        throw invalidInput({ at_time: ['Give at_time or as_of_block, not both.'] });
      const time = atTime?.getTime() ?? null;
      // By hash: a cursor does not continue with the holders of another fork.
      const cursor = readCursor(query.cursor, `${token} ${asOf?.hash ?? time}`);
      const isNow = cursor.isNow ?? (asOf === null && (time ?? Infinity) >= now());
      const past = isNow ? null : (asOf ?? time);
      const read = { token, after: cursor.after, limit: most + 1 };
      const { holders, totals, coverage, isComplete } =
        past === null
          ? await holdersNow(clickhouse, served, read, await countedUpTo(kept, clickhouse, served, request))
          : await holdersAt(clickhouse, served, read, past);
      const shown = holders.slice(0, most);
      const last = shown.at(-1);
      const before = cursor.rank;
      const rank = before + shown.length;
      return {
        status: 200,
        headers: coverageHeaders(coverage, asOf),
        body: {
          count: totals.holders,
          results: shown.map(({ account, balance }, index) => ({
            rank: before + index + 1,
            account_address: account,
            balance: String(balance),
            share: shareOf(balance, totals.sum),
          })),
          links: {
            next_cursor:
              last === undefined || holders.length <= most
                ? null
                : encodeHoldersCursor({ after: last, rank }, cursor.search(isNow)),
          },
          ...(isComplete ? {} : { complete: false as const }),
        },
      };
    },
  });
}

/**
 * Where a page begins. `isNow`: whether the previous pages list the current holders: then this page does so too, even
 * if the time in the query has passed meanwhile; null for the first page.
 *
 * @param query what is asked for, as text
 * @throws 400 for the cursor of another query
 */
function readCursor(text: string | undefined, query: string) {
  const search = (isNow: boolean): string => (isNow ? `${query} now` : query);
  if (text === undefined) return { after: null, rank: 0, isNow: null, search };
  for (const isNow of [true, false]) {
    const found = decodeHoldersCursor(text, search(isNow));
    if (found !== null) return { ...found, isNow, search };
  }
  throw invalidInput({ cursor: ['Invalid cursor for this query.'] });
}

/** @throws 503 where the balances are not counted up to the block that the client asks for */
async function countedUpTo(
  kept: ReturnType<typeof keepWhileUnchanged<Counted | null>>,
  clickhouse: ClickHouse,
  served: ServedBuilds,
  request: RequestInfo,
): Promise<Counted | null> {
  const minBlock = request.minBlock() ?? -1;
  const read = async (): Promise<Counted | null> => {
    const run = await newestRun(clickhouse, served);
    if (run === null) return null;
    const { head, start } = run;
    return { ...coverageOf(head.height, await uncountedHolders(clickhouse, served)), start };
  };
  return await readCovering(
    async () => await kept(served, 'holders', read, (one) => (one?.upTo ?? -1) >= minBlock),
    (one) => one?.upTo ?? null,
    { request, everyMs: POLL_MS },
  );
}

/**
 * @param coverage read before the balances, which therefore include every block that it counts: a newer block is marked
 *   as due before its height can be read
 */
async function holdersNow(
  clickhouse: ClickHouse,
  served: ServedBuilds,
  read: HoldersRead,
  coverage: Counted | null,
): Promise<Holders> {
  const [holders, totals] = await Promise.all([
    holdersPage(clickhouse, served, read),
    holderTotals(clickhouse, served, read.token),
  ]);
  const isComplete = coverage === null || (!coverage.isLate && coverage.start === 0);
  return { holders, totals, coverage, isComplete };
}

/**
 * @param past the block, or unix milliseconds
 * @throws 400 where the token has too many transfers up to then
 */
async function holdersAt(
  clickhouse: ClickHouse,
  served: ServedBuilds,
  read: HoldersRead,
  past: AsOf | number,
): Promise<Holders> {
  const isTime = typeof past === 'number';
  const upTo = isTime ? await newestHeightAt(clickhouse, served, Math.floor(past / 1000)) : past.height;
  if (upTo === null) {
    const isComplete = await coversTime(clickhouse, served, upTo);
    return { holders: [], totals: { holders: 0, sum: 0n }, coverage: null, isComplete };
  }
  const [transfers = 0] = await subjectTotals(clickhouse, served, [subjectOf(read.token)], upTo);
  if (transfers > MAX_SUMMED) {
    throw invalidInput({
      [isTime ? 'at_time' : 'as_of_block']: [
        `This token has ${transfers} transfers up to block ${upTo}; past holders are known up to ${MAX_SUMMED} transfers.`,
      ],
    });
  }
  const [found, isWhole] = await Promise.all([
    holdersUpTo(clickhouse, served, read, upTo),
    isTime ? coversTime(clickhouse, served, upTo) : isRunFromZero(clickhouse, served, upTo),
  ]);
  return { ...found, coverage: null, isComplete: isWhole };
}

const isRunFromZero = async (clickhouse: ClickHouse, served: ServedBuilds, upTo: number): Promise<boolean> =>
  (await runStart(clickhouse, served, upTo)) === 0;

/**
 * Whether all blocks up to a time are indexed. `upTo` is the newest indexed one of them; null: none is. If the index
 * has a gap above it, some of them may be missing there.
 */
async function coversTime(
  clickhouse: ClickHouse,
  served: ServedBuilds,
  upTo: number | null,
): Promise<boolean> {
  // In this order, a block that is indexed meanwhile leaves no gap.
  const newest = await newestBlock(clickhouse, served);
  const whole = await wholeUpTo(clickhouse, served);
  if (whole === null) return false;
  return upTo === null || upTo < whole || (upTo === whole && upTo === newest?.height);
}

const subjectOf = (felt: Felt) => ({ kind: 'token', felt }) as const;

/** As a double: from 0 to 1, also where a page and the totals are of different moments. */
function shareOf(balance: bigint, sum: bigint): number {
  return sum === 0n ? 0 : Math.min(1, Number(balance) / Number(sum));
}
