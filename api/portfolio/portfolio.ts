import type { Felt } from '../../schemas/felt.ts';
import type { PortfolioPointData } from '../../schemas/api/portfolio.ts';
import { askFor, balancesAt, touchedBy, turns } from '../balances/account.ts';
import type { Point, TokenBalances, Touched } from '../balances/account.ts';
import type { BalanceDeps } from '../balances/current.ts';
import type { Decimal } from '../../schemas/money.ts';
import { hasDeltas, isReadable } from '../../schemas/balance.ts';
import type { PriceReader } from '../prices/reader.ts';
import { iso } from '../http/times.ts';
import { byValue, createTotals, holdingOf, usdOf } from './holdings.ts';
import type { Held, Holding, Prices } from './holdings.ts';
import { placesOf } from './places.ts';
import type { Place, Places } from './places.ts';

interface Portfolio {
  readonly holdings: readonly Holding[];
  readonly isComplete: boolean;
}

/** What an account holds at a time (unix milliseconds; null: now), as far as it is known, the largest value first. */
export async function portfolioAt(
  deps: BalanceDeps,
  prices: PriceReader,
  account: Felt,
  time: number | null,
): Promise<Portfolio> {
  const looked = await lookAt(deps, account, time === null ? null : [time]);
  if (looked === null) return { holdings: [], isComplete: false };
  const { found, touched } = looked;
  const [place = 'unknown'] = found.places;
  if (!isPoint(place)) return { holdings: [], isComplete: place === 'before the first block' };
  const addresses = [...touched.totals.keys()];
  const [tokens, priced] = await Promise.all([
    balancesAt(deps, touched, [place]),
    time === null ? prices.now(deps.served, addresses) : priceAt(deps, prices, addresses, time),
  ]);
  askFor(
    deps.refreshes,
    tokens.filter((token) => isWorthAsking(token, [place], found)),
  );
  return {
    holdings: tokens
      .flatMap((token) => heldAt(token, 0))
      .map((held) => holdingOf(held, priced))
      .toSorted(byValue),
    isComplete: place.run.start === 0 && tokens.every(({ balances }) => balances[0] !== null),
  };
}

/** Where these times lie, and meanwhile what the account has to do with. */
async function lookAt(
  deps: BalanceDeps,
  account: Felt,
  times: readonly number[] | null,
): Promise<{ readonly found: Places; readonly touched: Touched } | null> {
  const kept = await deps.coverage.read(deps.clickhouse, deps.served);
  if (kept === null) return null;
  const [found, touched] = await Promise.all([placesOf(deps, times), touchedBy(deps, account, kept.run.end)]);
  if (found === null) return null;
  const isBehind = touched.head !== found.head;
  return { found, touched: isBehind ? await touchedBy(deps, account, found.head) : touched };
}

async function priceAt(
  { served }: BalanceDeps,
  prices: PriceReader,
  tokens: readonly Felt[],
  time: number,
): Promise<Prices> {
  const [priced] = await prices.atTimes(served, tokens, [time]);
  return priced ?? new Map();
}

function heldAt({ pair, token, balances }: TokenBalances, index: number): Held[] {
  const balance = balances[index] ?? 0n;
  return balance === 0n ? [] : [{ address: pair.token, token, balance }];
}

/** Whether a read of the chain, which is one of now, could tell what is not known at one of these points. */
function isWorthAsking(
  { facts, reads, bases, balances }: TokenBalances,
  points: readonly Point[],
  { head, newestFrom }: { readonly head: number; readonly newestFrom: number },
): boolean {
  if (!isReadable(facts) || reads.refusal !== null) return false;
  return points.some(({ height }, i) => {
    if (balances[i] !== null || height < newestFrom) return false;
    return height === head || (hasDeltas(facts) && bases[i]?.from !== 'anchor');
  });
}

export interface PortfolioHistory {
  readonly data: readonly PortfolioPointData[];
  /** False where the portfolio at one of the points may lack what is not known. */
  readonly isComplete: boolean;
  /** The time from which on no point is left out (unix milliseconds); null: the last is; undefined: none is. */
  readonly completeFrom: number | null | undefined;
}

/**
 * The figures of an account's portfolio at each of these times (unix milliseconds, ascending). A time at which a balance
 * is not known that is known at another, or could be, is left out: what it is worth would seem to jump.
 */
export async function portfolioHistory(
  deps: BalanceDeps,
  prices: Pick<PriceReader, 'atTimes'>,
  account: Felt,
  times: readonly number[],
): Promise<PortfolioHistory> {
  if (times.length === 0) return { data: [], isComplete: true, completeFrom: undefined };
  const looked = await lookAt(deps, account, times);
  if (looked === null) return { data: [], isComplete: true, completeFrom: null };
  const { found, touched } = looked;
  const points = found.places.filter((place) => isPoint(place));
  const tokens = points.length === 0 ? [] : await balancesAt(deps, touched, points);
  askFor(
    deps.refreshes,
    tokens.filter((token) => isWorthAsking(token, points, found)),
  );
  const followed = tokens.filter((token) => !isNeverKnown(token));

  let next = 0;
  const shown = times.flatMap((time, i): { time: number; index: number | null }[] => {
    const place = found.places[i] ?? 'unknown';
    if (place === 'before the first block') return [{ time, index: null }];
    if (!isPoint(place)) return [];
    const index = next++;
    return followed.every(({ balances }) => balances[index] !== null) ? [{ time, index }] : [];
  });
  const held = followed.filter(({ balances }) =>
    shown.some(({ index }) => index !== null && balances[index] !== 0n),
  );
  const priced = await prices.atTimes(
    deps.served,
    held.map(({ pair }) => pair.token),
    shown.map(({ time }) => time),
  );
  const totals = shown.map(() => createTotals());
  const turn = turns();
  for (const { pair, token, balances } of held) {
    let last: { balance: bigint; price: string | undefined; usd: Decimal | null } | null = null;
    for (const [i, { index }] of shown.entries()) {
      const balance = index === null ? 0n : (balances[index] ?? 0n);
      if (balance === 0n) continue;
      const price = priced[i]?.get(pair.token);
      // Most do not change from one point to the next.
      if (last === null || last.balance !== balance || last.price !== price)
        last = { balance, price, usd: usdOf(token, balance, price) };
      totals[i]?.add(last.usd);
    }
    await turn(shown.length);
  }
  const data: PortfolioPointData[] = [];
  for (const [i, { time }] of shown.entries())
    data.push({ timestamp: iso(time), ...(totals[i] ?? createTotals()).figures() });
  const isWhole = points.every(({ run }) => run.start === 0);
  return {
    data,
    isComplete: data.length === 0 || (isWhole && followed.length === tokens.length),
    completeFrom: completeFrom(times, new Set(shown.map(({ time }) => time))),
  };
}

function isPoint(place: Place): place is Point {
  return typeof place === 'object';
}

/** What nobody can tell at any of the points, as far as is known: it is in no portfolio. */
function isNeverKnown({ facts, reads, balances }: TokenBalances): boolean {
  const isUntold = !isReadable(facts) || reads.refusal !== null || facts.standard === 'unknown';
  return isUntold && balances.every((balance) => balance === null);
}

function completeFrom(times: readonly number[], shown: ReadonlySet<number>): number | null | undefined {
  const missing = times.findLastIndex((time) => !shown.has(time));
  return missing === -1 ? undefined : (times[missing + 1] ?? null);
}
