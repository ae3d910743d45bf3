import { setImmediate } from 'node:timers/promises';

import { movedByToken, movedInSteps } from '../../projections/account-ledger/queries.ts';
import type { Moved } from '../../projections/account-ledger/queries.ts';
import { chainReads, chainReadsOf, pairKey } from '../../projections/balances/queries.ts';
import type { Anchor, ChainReads, Pair } from '../../projections/balances/queries.ts';
import { blocksAt } from '../../projections/indexed-blocks/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { invalidInput } from '../http/errors.ts';
import type { RefreshBus } from '../commands/refresh.ts';
import { factsOf, hasCome, lastRead, requestOf, wantsRead } from './current.ts';
import type { AnsweredBalance, BalanceDeps, CurrentBalance, MaxAge } from './current.ts';
import { addDelta, chooseBasis, hasDeltas, isReadable } from '../../schemas/balance.ts';
import type { Basis, PairFacts, IndexedRange } from '../../schemas/balance.ts';

/** Reads that one answer asks for without waiting for them; the next answer asks for more. */
const ASKED_AT_ONCE = 200;

/** Balances of one answer, tokens times points: 200 tokens at 5,000 points and as many again. More are refused, never cut. */
const MOST_BALANCES = 2_000_000;

/** So many balances are worked out before other requests have their turn; they take some milliseconds. */
const AT_ONCE = 10_000;

/** A height that is indexed, and the run of indexed blocks that it lies in. */
export interface Point {
  readonly height: number;
  readonly run: IndexedRange;
}

/** What an account has of a token at some points, in their order. */
export interface TokenBalances {
  readonly pair: Pair;
  readonly token: TokenRow | undefined;
  readonly reads: ChainReads;
  readonly facts: PairFacts;
  readonly bases: readonly Basis<Anchor>[];
  /** null: unknown. */
  readonly balances: readonly (bigint | null)[];
}

/** The tokens that a transfer of an account is indexed of, and what was read of them from the chain. */
export interface Touched {
  readonly account: Felt;
  /** The newest indexed height. */
  readonly head: number;
  /** What was moved up to it, by token. */
  readonly totals: ReadonlyMap<Felt, Moved>;
  readonly readsOf: (pair: Pair) => ChainReads;
}

type Deps = Pick<BalanceDeps, 'clickhouse' | 'pool' | 'served'>;

export async function touchedBy(
  { clickhouse, pool, served }: Deps,
  account: Felt,
  head: number,
): Promise<Touched> {
  const [totals, readsOf] = await Promise.all([
    movedByToken(clickhouse, served, { account, upTo: head }),
    chainReadsOf(pool, served.schema('balances'), account),
  ]);
  return { account, head, totals, readsOf };
}

/**
 * The balances of all these tokens, also those that are unknown, at each of these points. At the head an anchor tells the
 * last that is known also where it counts for nothing before. A bounded number of statements, however many points.
 */
export async function balancesAt(
  { clickhouse, pool, served }: Deps,
  { account, head, totals, readsOf }: Touched,
  points: readonly Point[],
): Promise<TokenBalances[]> {
  if (totals.size * points.length > MOST_BALANCES) {
    const text = `The window holds more than ${MOST_BALANCES.toLocaleString('en-US')} balances of this account; narrow it.`;
    throw invalidInput({ start_time: [text] });
  }
  const pairs = [...totals.keys()].map((token) => ({ account, token }));
  const anchors = pairs.flatMap((pair) => readsOf(pair).anchors);
  const inSteps = async (heights: readonly number[]) =>
    await movedInSteps(clickhouse, served, { account, heights });
  // Most blocks that were read at still are the indexed ones: what moved since is looked up while that is made sure of.
  const guessed = points.length === 1 ? guessHeights(points, pairs, readsOf, head) : [head];
  const isHead = (height: number): boolean => height === head;
  const [tokens, blocks, early] = await Promise.all([
    tokensByAddress(pool, served.schema('tokens'), [...totals.keys()]),
    blocksAt(
      clickhouse,
      served,
      anchors.map(({ block }) => block),
    ),
    guessed.every(isHead) ? null : inSteps(guessed),
  ]);
  const turn = turns();
  const known: Omit<TokenBalances, 'balances'>[] = [];
  for (const pair of pairs) {
    const [token, reads] = [tokens.get(pair.token), readsOf(pair)];
    const facts = factsOf(pair, token);
    const counts = hasDeltas(facts);
    // What was read at a block newer than the head as it was looked up counts: nothing moved since is added to it.
    const newest = Math.max(head, ...reads.anchors.map(({ block }) => block));
    const bases = points.map(({ height, run }): Basis<Anchor> => {
      if (height !== head && !counts) return NOTHING;
      const reach = height === head ? { start: run.start, end: newest } : run;
      return chooseBasis(facts, reads.anchors, (block) => blocks.get(block)?.hash, reach, height);
    });
    known.push({ pair, token, reads, facts, bases });
    await turn(points.length);
  }

  const needed = heightsOf(
    points,
    known.flatMap(({ facts, bases }) => (hasDeltas(facts) ? bases : [])),
    head,
  );
  const isAsGuessed = needed.every((height) => guessed.includes(height));
  const ends = isAsGuessed ? guessed : needed;
  const moved = ends.every(isHead) ? null : isAsGuessed ? early : await inSteps(ends);
  const indexOf = new Map(ends.map((height, i) => [height, i]));
  const found: TokenBalances[] = [];
  for (const one of known) {
    const { facts, bases, pair } = one;
    const counts = hasDeltas(facts);
    const steps =
      moved === null ? new Map([[head, totals.get(pair.token)?.delta ?? 0n]]) : moved.get(pair.token);
    let sum = 0n;
    const sums = ends.map((height) => (sum += steps?.get(height) ?? 0n));
    const upTo = (height: number): bigint => sums[indexOf.get(Math.min(height, head)) ?? -1] ?? 0n;
    const balances = points.map(({ height }, i): bigint | null => {
      const basis = bases[i];
      if (basis?.from === 'first block') return addDelta(0n, upTo(height));
      if (basis?.from !== 'anchor') return null;
      const { block, balance } = basis.anchor;
      return counts ? addDelta(balance, upTo(height) - upTo(block)) : balance;
    });
    found.push({ ...one, balances });
    await turn(points.length + ends.length);
  }
  return found;
}

/** The heights, ascending, that sums are needed up to: those of the points, and of the anchors that they start from. */
function heightsOf(points: readonly Point[], bases: readonly Basis<Anchor>[], head: number): number[] {
  const heights = new Set(points.map(({ height }) => height));
  for (const basis of bases) if (basis.from === 'anchor') heights.add(Math.min(basis.anchor.block, head));
  return [...heights].toSorted((a, b) => a - b);
}

/** The same, as if every anchor were good and every token's transfers counted. */
function guessHeights(
  points: readonly Point[],
  pairs: readonly Pair[],
  readsOf: Touched['readsOf'],
  head: number,
): number[] {
  const bases = pairs.flatMap((pair) => {
    const { anchors } = readsOf(pair);
    const hashes = new Map(anchors.map(({ block, hash }) => [block, hash]));
    const facts = { account: pair.account, standard: null };
    return points.map(({ height, run }) =>
      chooseBasis(facts, anchors, (block) => hashes.get(block), run, height),
    );
  });
  return heightsOf(points, bases, head);
}

/** Lets other requests have their turn each time that so much is done. */
export function turns(): (done: number) => Promise<void> {
  let since = 0;
  return async (done) => {
    since += done;
    if (since < AT_ONCE) return;
    since = 0;
    await setImmediate();
  };
}

/** Asks the chain for these, and waits for nothing. */
export function askFor(refreshes: RefreshBus, ones: readonly { readonly pair: Pair }[]): void {
  if (ones.length > 0) refreshes.request(ones.slice(0, ASKED_AT_ONCE).map(({ pair }) => requestOf(pair)));
}

interface AccountBalances {
  /** Of every token that a transfer of the account is indexed of, by address; also those that are unknown. */
  readonly balances: readonly CurrentBalance[];
  /** False where transfers before the first indexed block may be missing. */
  readonly isWhole: boolean;
}

/** All balances of an account that are known now. */
async function accountBalances(deps: BalanceDeps, account: Felt): Promise<AccountBalances> {
  const covered = await deps.coverage.read(deps.clickhouse, deps.served);
  if (covered === null) return { balances: [], isWhole: false };
  const { run, head } = covered;
  const touched = await touchedBy(deps, account, run.end);
  const found = await balancesAt(deps, touched, [{ height: run.end, run }]);
  return {
    isWhole: run.start === 0,
    balances: found.map(({ pair, token, reads, balances: [balance = null], bases: [basis = NOTHING] }) => ({
      pair,
      token,
      reads,
      balance,
      lastUpdated: basis.from === 'anchor' ? basis.anchor.observedAt : head.timestamp * 1000,
      readAt: lastRead(basis, reads),
    })),
  };
}

const NOTHING = { from: 'nothing' } as const;

/**
 * The same, and the chain is asked for what is older than the caller wants. Only who forces it waits for that: a cached
 * balance is answered at once, one that is unknown shows in a later answer.
 */
export async function freshAccountBalances(
  deps: BalanceDeps,
  account: Felt,
  maxAge: MaxAge,
): Promise<{ balances: readonly AnsweredBalance[]; isWhole: boolean }> {
  const { pool, served, refreshes, now, signal } = deps;
  const cached = await accountBalances(deps, account);
  const old = cached.balances.filter((one) => wantsRead(one, maxAge, now()));
  if (maxAge !== null || old.length === 0) {
    const unknownFirst = old.toSorted(
      (a, b) => Number(a.balance !== null) - Number(b.balance !== null) || (a.readAt ?? 0) - (b.readAt ?? 0),
    );
    askFor(refreshes, unknownFirst);
    return { ...cached, balances: cached.balances.map((one) => ({ ...one, isStale: false })) };
  }
  const asked = old.map(({ pair }) => ({ pair, request: requestOf(pair) }));
  const came = new Set<string>();
  await refreshes.refresh(
    asked.map(({ request }) => request),
    async (requestedAt) => {
      const readsOf = await chainReads(
        pool,
        served.schema('balances'),
        asked.map(({ pair }) => pair),
      );
      for (const { pair, request } of asked)
        if (hasCome(readsOf(pair), requestedAt(request))) came.add(pairKey(pair));
      return came.size === asked.length ? true : null;
    },
    signal,
  );
  const fresh = await accountBalances(deps, account);
  const balances = fresh.balances.map((one) => ({
    ...one,
    isStale: isReadable(factsOf(one.pair, one.token)) && !came.has(pairKey(one.pair)),
  }));
  return { ...fresh, balances };
}
