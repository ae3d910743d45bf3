import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { balancesAt } from '../../projections/balances-at.ts';
import { chainReads, pairKey } from '../../projections/balances/queries.ts';
import type { Anchor, ChainReads, Pair } from '../../projections/balances/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import { isReadable } from '../../schemas/balance.ts';
import type { Basis, PairFacts } from '../../schemas/balance.ts';
import type { RefreshBus, RefreshRequest } from '../commands/refresh.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import type { AsOf } from '../http/as-of.ts';
import { boundReads } from './bound-reads.ts';
import type { CoverageReader } from './coverage.ts';

export interface BalanceDeps {
  readonly clickhouse: ClickHouse;
  readonly pool: Sql;
  readonly served: ServedBuilds;
  /** The block as of which to answer; null: the newest. Then nothing is read from the chain. */
  readonly asOf: AsOf | null;
  /** As of a block, up to that block. */
  readonly coverage: CoverageReader;
  readonly refreshes: RefreshBus;
  /** Unix milliseconds; as of a block, its time. */
  readonly now: () => number;
  readonly signal: AbortSignal;
  /** Who shares the chain reads of one caller: a hash. */
  readonly caller: string;
}

/** A pair's balance as of the newest indexed block. */
export interface CurrentBalance {
  readonly pair: Pair;
  readonly token: TokenRow | undefined;
  /** null: unknown. */
  readonly balance: bigint | null;
  /** When the chain was last read, or the time of the newest block for a sum of the ledger; unix milliseconds. */
  readonly lastUpdated: number;
  /** When the chain was last read; null: never, or at a block that is no longer indexed. */
  readonly readAt: number | null;
  readonly reads: ChainReads;
}

/** The maximum age of a chain read in milliseconds; null requires a new one. */
export type MaxAge = number | null;

export const requestOf = (
  { account, token }: Pair,
  { caller }: Pick<BalanceDeps, 'caller'>,
): RefreshRequest => ({ type: 'balance.requested', account, token, caller });

export const factsOf = ({ account }: Pair, token: TokenRow | undefined): PairFacts => ({
  account,
  standard: token?.standard ?? null,
});

/** Whether the chain must be read to satisfy the caller. */
export function needsRead(
  { pair, token, readAt, balance, reads }: CurrentBalance,
  maxAge: MaxAge,
  now: number,
): boolean {
  if (!isReadable(factsOf(pair, token))) return false;
  // Unknown despite a recent read: later deltas make the balance negative, so events are missing.
  if (balance === null && reads.refusal === null) return true;
  return maxAge === null || readAt === null || now - readAt > maxAge;
}

/** When the chain last answered for a pair, including an answer that the contract has no balance. */
function lastReadAt(basis: Basis<Anchor>, { refusal }: ChainReads): number | null {
  const observedAt = basis.from === 'anchor' ? basis.anchor.observedAt : null;
  return refusal === null ? observedAt : Math.max(observedAt ?? 0, refusal.refusedAt);
}

/** Adds the times: of the chain read that the balance is based on, else of the head. */
export function currentBalance(
  known: Pick<CurrentBalance, 'pair' | 'token' | 'reads'>,
  {
    bases: [basis = { from: 'nothing' }],
    balances: [balance = null],
  }: Awaited<ReturnType<typeof balancesAt>>[number],
  headSeconds: number,
): CurrentBalance {
  return {
    ...known,
    balance,
    lastUpdated: basis.from === 'anchor' ? basis.anchor.observedAt : headSeconds * 1000,
    readAt: lastReadAt(basis, known.reads),
  };
}

/** The balances of these pairs as currently known, in their order. */
async function currentBalances(deps: BalanceDeps, pairs: readonly Pair[]): Promise<CurrentBalance[]> {
  const { clickhouse, pool, served, coverage } = deps;
  const [readsOf, tokens, cached] = await Promise.all([
    chainReads(pool, served, pairs),
    tokensByAddress(
      pool,
      served.schema('tokens'),
      pairs.map(({ token }) => token),
    ),
    coverage.read(clickhouse, served),
  ]);
  const known = await boundReads(
    deps,
    pairs.map((pair) => ({ pair, token: tokens.get(pair.token), reads: readsOf(pair) })),
  );
  const subjects = known.map(({ pair, token, reads: { anchors } }) => ({
    ...pair,
    ...factsOf(pair, token),
    anchors,
  }));
  // A read above the cached head: its block is usually indexed by now.
  const isBehind = subjects.some(({ anchors }) =>
    anchors.some(({ block }) => cached !== null && block > cached.run.end),
  );
  const covered = isBehind ? await coverage.read(clickhouse, served, true) : cached;
  const found =
    covered === null
      ? []
      : await balancesAt({ clickhouse }, served, subjects, {
          points: [{ height: covered.run.end, run: covered.run }],
          head: covered.run.end,
        });
  return known.map((one, i) =>
    currentBalance(one, found[i] ?? { bases: [], balances: [] }, covered?.head.timestamp ?? 0),
  );
}

/** A balance after stale pairs were refreshed, if the refresh arrived in time. */
export interface FreshBalance extends CurrentBalance {
  /** Older than the requested maximum age. */
  readonly isStale: boolean;
}

/** The balances of these pairs in their order, read from the chain where they are older than the caller wants. */
export async function freshBalances(
  deps: BalanceDeps,
  pairs: readonly Pair[],
  maxAge: MaxAge,
): Promise<FreshBalance[]> {
  if (deps.asOf !== null) {
    return (await currentBalances(deps, pairs)).map((one) => ({ ...one, isStale: false }));
  }
  const { pool, served, now } = deps;
  let old: readonly Pair[];
  if (maxAge === null) {
    // Every known balance is too old: only the standard of each contract is needed.
    const addresses = pairs.map(({ token }) => token);
    const tokens = await tokensByAddress(pool, served.schema('tokens'), addresses);
    old = pairs.filter((pair) => isReadable(factsOf(pair, tokens.get(pair.token))));
  } else {
    const known = await currentBalances(deps, pairs);
    const outdated = known.filter((one) => needsRead(one, maxAge, now()));
    if (outdated.length === 0) return known.map((one) => ({ ...one, isStale: false }));
    old = outdated.map(({ pair }) => pair);
  }
  const [arrived] = await Promise.all([
    refreshPairs(deps, old),
    // Warms the cache for the read below, which reports a failure.
    deps.coverage.read(deps.clickhouse, served).catch(() => null),
  ]);
  const wanted = new Set(old.map(pairKey));
  const fresh = await currentBalances(deps, pairs);
  return fresh.map((one) => {
    const key = pairKey(one.pair);
    return { ...one, isStale: wanted.has(key) && (!arrived.has(key) || one.readAt === null) };
  });
}

/** Requests a chain read of each pair and waits; returns the keys of the pairs that were read in time. */
export async function refreshPairs(
  deps: Pick<BalanceDeps, 'pool' | 'served' | 'refreshes' | 'signal' | 'caller'>,
  pairs: readonly Pair[],
): Promise<ReadonlySet<string>> {
  const { pool, served, refreshes, signal } = deps;
  const wanted = new Map(pairs.map((pair) => [pairKey(pair), { pair, request: requestOf(pair, deps) }]));
  const distinct = [...wanted.values()];
  const arrived = new Set<string>();
  await refreshes.refresh(
    distinct.map(({ request }) => request),
    async (requestedAt) => {
      const readsOf = await chainReads(
        pool,
        served,
        distinct.map(({ pair }) => pair),
      );
      for (const [key, { pair, request }] of wanted)
        if (hasReadSince(readsOf(pair), requestedAt(request))) arrived.add(key);
      return arrived.size === wanted.size ? true : null;
    },
    signal,
  );
  return arrived;
}

/** Whether the chain has answered a request made then or later. */
function hasReadSince({ anchors, refusal }: ChainReads, requestedAt: number): boolean {
  return (
    anchors.some((anchor) => anchor.requestedAt >= requestedAt) ||
    (refusal !== null && refusal.requestedAt >= requestedAt)
  );
}
