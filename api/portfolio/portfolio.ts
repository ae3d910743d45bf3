import { createYielding } from '../../infra/yielding.ts';
import type { Point } from '../../projections/balances-at.ts';
import { pricesAtTimes } from '../../projections/prices/queries.ts';
import type { PortfolioPointData } from '../../schemas/api/portfolio.ts';
import { hasDeltas, isReadable } from '../../schemas/balance.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { Decimal } from '../../schemas/money.ts';
import { accountBalancesAt, requestReads, tokensOfAccount } from '../balances/account.ts';
import type { AccountTokens, TokenBalances } from '../balances/account.ts';
import type { BalanceDeps } from '../balances/current.ts';
import { iso } from '../http/times.ts';
import { pricesFor } from '../prices/current.ts';
import { byValue, createTotals, holdingOf, usdOf } from './holdings.ts';
import type { Figures, Held, Holding, Prices } from './holdings.ts';
import { locateTimes } from './locate-times.ts';
import type { LocatedTimes, Location } from './locate-times.ts';

interface Portfolio {
  readonly holdings: readonly Holding[];
  readonly isComplete: boolean;
}

/** The known holdings of an account at a time (unix milliseconds; null: now), the largest value first. */
export async function portfolioAt(deps: BalanceDeps, account: Felt, time: number | null): Promise<Portfolio> {
  const read = await readAccount(deps, account, time === null ? null : [time]);
  if (read === null) return { holdings: [], isComplete: false };
  const { located, ofAccount } = read;
  const [location = 'unknown'] = located.locations;
  if (!isPoint(location)) return { holdings: [], isComplete: location === 'before the first block' };
  const addresses = ofAccount.tokens.map(({ pair }) => pair.token);
  const [tokens, priced] = await Promise.all([
    accountBalancesAt(deps, ofAccount, [location]),
    time === null ? pricesFor(deps, addresses) : pricesAt(deps, addresses, time),
  ]);
  requestReads(
    deps,
    tokens.filter((token) => canReadHelp(token, [location], located)),
  );
  return {
    holdings: tokens
      .flatMap(heldOf)
      .map((held) => holdingOf(held, priced))
      .toSorted(byValue),
    isComplete: location.run.start === 0 && tokens.every(({ balances }) => balances[0] !== null),
  };
}

interface AccountRead {
  readonly located: LocatedTimes;
  readonly ofAccount: AccountTokens;
}

/** Where these times lie among the indexed blocks, and the account's tokens; null before the first block. */
async function readAccount(
  deps: BalanceDeps,
  account: Felt,
  times: readonly number[] | null,
): Promise<AccountRead | null> {
  const covered = await deps.coverage.read(deps.clickhouse, deps.served);
  if (covered === null) return null;
  const [located, ofAccount] = await Promise.all([
    locateTimes(deps, times),
    tokensOfAccount(deps, account, covered.run.end),
  ]);
  if (located === null) return null;
  const isBehind = ofAccount.head !== located.head;
  return { located, ofAccount: isBehind ? await tokensOfAccount(deps, account, located.head) : ofAccount };
}

async function pricesAt(
  { clickhouse, served }: BalanceDeps,
  tokens: readonly Felt[],
  time: number,
): Promise<Prices> {
  const [priced] = await pricesAtTimes(clickhouse, served, tokens, [time]);
  return priced ?? new Map();
}

function heldOf({ pair, token, balances: [balance = null] }: TokenBalances): Held[] {
  return balance === null || balance === 0n ? [] : [{ address: pair.token, token, balance }];
}

/** Whether a read of the chain, at the head, could determine a balance that is unknown at one of these points. */
function canReadHelp(
  { facts, reads, bases, balances }: TokenBalances,
  points: readonly Point[],
  { head, newestFrom }: Pick<LocatedTimes, 'head' | 'newestFrom'>,
): boolean {
  if (!isReadable(facts) || reads.refusal !== null) return false;
  return points.some(({ height }, i) => {
    if (balances[i] !== null || height < newestFrom) return false;
    return height === head || (hasDeltas(facts) && bases[i]?.from !== 'anchor');
  });
}

export interface PortfolioHistory {
  readonly data: readonly PortfolioPointData[];
  /** False where the portfolio at one of the points may lack unknown balances. */
  readonly isComplete: boolean;
  /** Unix milliseconds from which no point is left out; null: the last is; undefined: none is. */
  readonly completeFrom: number | null | undefined;
}

/** A time that has a point in the answer; `index` is that of its balances, null before the first block. */
interface ShownTime {
  readonly time: number;
  readonly index: number | null;
}

/**
 * The figures of an account's portfolio at each of these times (unix milliseconds, ascending). A time is left out where
 * a balance is unknown that is, or could be, known at another: the value would seem to jump.
 */
export async function portfolioHistory(
  deps: BalanceDeps,
  account: Felt,
  times: readonly number[],
): Promise<PortfolioHistory> {
  if (times.length === 0) return { data: [], isComplete: true, completeFrom: undefined };
  const read = await readAccount(deps, account, times);
  if (read === null) return { data: [], isComplete: true, completeFrom: null };
  const { located, ofAccount } = read;
  const points = located.locations.filter((location) => isPoint(location));
  const tokens = points.length === 0 ? [] : await accountBalancesAt(deps, ofAccount, points);
  requestReads(
    deps,
    tokens.filter((token) => canReadHelp(token, points, located)),
  );
  const tracked = tokens.filter((token) => !isNeverKnown(token));
  const shown = shownTimes(times, located.locations, tracked);
  const figures = await figuresAt(deps, tracked, shown);
  const data = figures.map((one, i) => ({ timestamp: iso(shown[i]?.time ?? 0), ...one }));
  const isWhole = points.every(({ run }) => run.start === 0);
  return {
    data,
    isComplete: data.length === 0 || (isWhole && tracked.length === tokens.length),
    completeFrom: completeFrom(times, new Set(shown.map(({ time }) => time))),
  };
}

function shownTimes(
  times: readonly number[],
  locations: readonly Location[],
  tracked: readonly TokenBalances[],
): ShownTime[] {
  let next = 0;
  return times.flatMap((time, i): ShownTime[] => {
    const location = locations[i] ?? 'unknown';
    if (location === 'before the first block') return [{ time, index: null }];
    if (!isPoint(location)) return [];
    const index = next++;
    return tracked.every(({ balances }) => balances[index] !== null) ? [{ time, index }] : [];
  });
}

/** The figures at each of these times. */
async function figuresAt(
  { clickhouse, served }: BalanceDeps,
  tracked: readonly TokenBalances[],
  shown: readonly ShownTime[],
): Promise<Figures[]> {
  const held = tracked.filter(({ balances }) =>
    shown.some(({ index }) => index !== null && balances[index] !== 0n),
  );
  const priced = await pricesAtTimes(
    clickhouse,
    served,
    held.map(({ pair }) => pair.token),
    shown.map(({ time }) => time),
  );
  const totals = shown.map(() => createTotals());
  const yielding = createYielding();
  for (const { pair, token, balances } of held) {
    let last: { balance: bigint; price: string | undefined; usd: Decimal | null } | null = null;
    for (const [i, { index }] of shown.entries()) {
      const balance = index === null ? 0n : (balances[index] ?? 0n);
      if (balance === 0n) continue;
      const price = priced[i]?.get(pair.token);
      // Most values do not change from one point to the next.
      if (last === null || last.balance !== balance || last.price !== price)
        last = { balance, price, usd: usdOf(token, balance, price) };
      totals[i]?.add(last.usd);
    }
    await yielding();
  }
  return totals.map((total) => total.figures());
}

function isPoint(location: Location): location is Point {
  return typeof location === 'object';
}

/** A balance that cannot be determined at any of the points: it is in no portfolio. */
function isNeverKnown({ facts, reads, balances }: TokenBalances): boolean {
  const cannotBeRead = !isReadable(facts) || reads.refusal !== null || facts.standard === 'unknown';
  return cannotBeRead && balances.every((balance) => balance === null);
}

function completeFrom(times: readonly number[], shown: ReadonlySet<number>): number | null | undefined {
  const missing = times.findLastIndex((time) => !shown.has(time));
  return missing === -1 ? undefined : (times[missing + 1] ?? null);
}
