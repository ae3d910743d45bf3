import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { movedWithin } from '../../projections/account-ledger/queries.ts';
import type { Moved } from '../../projections/account-ledger/queries.ts';
import { chainReads, pairKey } from '../../projections/balances/queries.ts';
import type { Anchor, ChainReads, Pair } from '../../projections/balances/queries.ts';
import type { IndexedBlock } from '../../projections/indexed-blocks/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { RequestedAt, RefreshBus, RefreshRequest } from '../commands/refresh.ts';
import type { ServedBuilds } from '../http/route.ts';
import type { Coverage, CoverageReader } from './coverage.ts';
import { balanceAt, chooseBasis, hasDeltas, isReadable } from '../../schemas/balance.ts';
import type { Basis, PairFacts } from '../../schemas/balance.ts';

export interface BalanceDeps {
  readonly clickhouse: ClickHouse;
  readonly pool: Sql;
  readonly served: ServedBuilds;
  readonly coverage: CoverageReader;
  readonly refreshes: RefreshBus;
  /** Unix milliseconds. */
  readonly now: () => number;
  readonly signal: AbortSignal;
}

/** A pair's balance as of the newest indexed block. */
export interface CurrentBalance {
  readonly pair: Pair;
  readonly token: TokenRow | undefined;
  /** null: unknown. */
  readonly balance: bigint | null;
  /** When the chain was last asked, or when the newest block was made where the ledger alone tells; unix milliseconds. */
  readonly lastUpdated: number;
  /** When the chain was last asked; null: never, or the answer is of a block that is gone. */
  readonly readAt: number | null;
  readonly reads: ChainReads;
}

export const NOTHING_MOVED: Moved = { delta: 0n, legs: 0 };

/** How old a chain read may be, in milliseconds; null: a new one is wanted. */
export type MaxAge = number | null;

export const requestOf = ({ account, token }: Pair): RefreshRequest => ({
  type: 'balance.requested',
  account,
  token,
});

export const factsOf = ({ account }: Pair, token: TokenRow | undefined): PairFacts => ({
  account,
  standard: token?.standard ?? null,
});

/** True where the chain has to be asked for what the caller wants. */
export function wantsRead(
  { pair, token, readAt, balance, reads }: CurrentBalance,
  maxAge: MaxAge,
  now: number,
): boolean {
  if (!isReadable(factsOf(pair, token))) return false;
  // Read a moment ago, and yet deltas make it negative: the chain says more than the events do.
  if (balance === null && reads.refusal === null) return true;
  return maxAge === null || readAt === null || now - readAt > maxAge;
}

/** When the chain last answered for a pair, be it that there is nothing to tell. */
export function lastRead(basis: Basis<Anchor>, { refusal }: ChainReads): number | null {
  const anchored = basis.from === 'anchor' ? basis.anchor.observedAt : null;
  if (refusal === null) return anchored;
  return Math.max(anchored ?? 0, refusal.refusedAt);
}

/** The balances of these pairs as they are known now, in their order. */
export async function currentBalances(deps: BalanceDeps, pairs: readonly Pair[]): Promise<CurrentBalance[]> {
  const { clickhouse, pool, served, coverage } = deps;
  const reading = chainReads(pool, served.schema('balances'), pairs);
  const blocksRead = reading.then((known) => blocksReadAt(deps, pairs, known));
  blocksRead.catch(() => {}); // whoever waits for it below is told
  const [readsOf, tokens, kept] = await Promise.all([
    reading,
    tokensByAddress(
      pool,
      served.schema('tokens'),
      pairs.map(({ token }) => token),
    ),
    coverage.read(clickhouse, served),
  ]);
  const anchors = pairs.flatMap((pair) => readsOf(pair).anchors);
  const basesOf = (covered: Coverage | null, hashAt: (anchor: number) => Felt | undefined) =>
    pairs.map((pair) => {
      const [token, reads] = [tokens.get(pair.token), readsOf(pair)];
      return { pair, token, reads, basis: basisOf(factsOf(pair, token), reads, hashAt, covered) };
    });
  const movedSince = async (known: ReturnType<typeof basesOf>, head: number): Promise<Moved[]> =>
    await movedWithin(
      clickhouse,
      served,
      known.map(({ pair, token, basis }) => ({
        ...pair,
        after: startOf(basis, factsOf(pair, token), head),
        upTo: head,
      })),
    );
  // Most blocks that were read at still are the indexed ones: what moved since is looked up while that is made sure of.
  const hashRead = new Map(anchors.map(({ block, hash }) => [block, hash]));
  const guessed = basesOf(kept, (height) => hashRead.get(height));
  const [blocks, movedSinceGuess] = await Promise.all([blocksRead, movedSince(guessed, kept?.run.end ?? -1)]);
  // A block that was read at is indexed, so what is known of the head may be older than that.
  const isBehind = kept !== null && [...blocks.keys()].some((height) => height > kept.run.end);
  const covered = isBehind ? await coverage.read(clickhouse, served, true) : kept;
  const known = basesOf(covered, (height) => blocks.get(height)?.hash);
  const isAsGuessed = !isBehind && known.every(({ basis }, i) => isSameBasis(basis, guessed[i]?.basis));
  const moved = isAsGuessed ? movedSinceGuess : await movedSince(known, covered?.run.end ?? -1);
  return known.map(({ pair, token, reads, basis }, i) => ({
    pair,
    token,
    reads,
    balance: balanceAt(basis, factsOf(pair, token), covered?.run.end ?? -1, moved[i] ?? NOTHING_MOVED),
    lastUpdated: basis.from === 'anchor' ? basis.anchor.observedAt : (covered?.head.timestamp ?? 0) * 1000,
    readAt: lastRead(basis, reads),
  }));
}

/** The blocks that are indexed at the heights that these pairs were read at. */
export async function blocksReadAt(
  { clickhouse, served, coverage }: Pick<BalanceDeps, 'clickhouse' | 'served' | 'coverage'>,
  pairs: readonly Pair[],
  readsOf: (pair: Pair) => ChainReads,
): Promise<ReadonlyMap<number, IndexedBlock>> {
  const heights = pairs.flatMap((pair) => readsOf(pair).anchors.map(({ block }) => block));
  return await coverage.blocks(clickhouse, served, heights);
}

function isSameBasis(one: Basis<Anchor>, other: Basis<Anchor> | undefined): boolean {
  if (one.from !== 'anchor' || other?.from !== 'anchor') return one.from === other?.from;
  return one.anchor === other.anchor;
}

function basisOf(
  facts: PairFacts,
  { anchors }: ChainReads,
  hashAt: (height: number) => Anchor['hash'] | undefined,
  covered: Coverage | null,
): Basis<Anchor> {
  if (covered === null) return { from: 'nothing' };
  return chooseBasis(facts, anchors, hashAt, covered.run, covered.run.end);
}

/** The height that the deltas begin above; where there are none to add, they begin at the end. */
export function startOf(basis: Basis<Anchor>, facts: PairFacts, head: number): number {
  if (!hasDeltas(facts) || basis.from === 'nothing') return head;
  return basis.from === 'anchor' ? basis.anchor.block : -1;
}

/** A balance after the chain was asked for what was too old, as far as that came in time. */
export interface AnsweredBalance extends CurrentBalance {
  /** It could not be made as new as was wanted. */
  readonly isStale: boolean;
}

/** The balances of these pairs, read from the chain where they are older than the caller wants, in their order. */
export async function freshBalances(
  deps: BalanceDeps,
  pairs: readonly Pair[],
  maxAge: MaxAge,
): Promise<AnsweredBalance[]> {
  const { pool, served, refreshes, now, signal } = deps;
  let old: readonly Pair[];
  if (maxAge === null) {
    // Whatever is known is too old: nothing but what the contract is has to be looked up first.
    const addresses = pairs.map(({ token }) => token);
    const tokens = await tokensByAddress(pool, served.schema('tokens'), addresses);
    old = pairs.filter((pair) => isReadable(factsOf(pair, tokens.get(pair.token))));
  } else {
    const cached = await currentBalances(deps, pairs);
    const unfit = cached.filter((one) => wantsRead(one, maxAge, now()));
    if (unfit.length === 0) return cached.map((one) => ({ ...one, isStale: false }));
    old = unfit.map(({ pair }) => pair);
  }
  const wanted = new Map(old.map((pair) => [pairKey(pair), { pair, request: requestOf(pair) }]));

  const came = new Set<string>();
  const schema = served.schema('balances');
  const look = async (requestedAt: RequestedAt): Promise<true | null> => {
    const readsOf = await chainReads(
      pool,
      schema,
      [...wanted.values()].map(({ pair }) => pair),
    );
    for (const [key, { pair, request }] of wanted)
      if (hasCome(readsOf(pair), requestedAt(request))) came.add(key);
    return came.size === wanted.size ? true : null;
  };
  await Promise.all([
    refreshes.refresh(
      [...wanted.values()].map(({ request }) => request),
      look,
      signal,
    ),
    // Kept for what follows; whether it does is found out there.
    deps.coverage.read(deps.clickhouse, served).catch(() => null),
  ]);
  const fresh = await currentBalances(deps, pairs);
  return fresh.map((one) => {
    const key = pairKey(one.pair);
    return { ...one, isStale: wanted.has(key) && (!came.has(key) || one.readAt === null) };
  });
}

/** The chain has answered a request that was made then, or a later one. */
export function hasCome({ anchors, refusal }: ChainReads, requestedAt: number): boolean {
  return (
    anchors.some((anchor) => anchor.requestedAt >= requestedAt) ||
    (refusal !== null && refusal.requestedAt >= requestedAt)
  );
}
