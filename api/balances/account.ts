import { movedByToken } from '../../projections/account-ledger/queries.ts';
import type { Moved } from '../../projections/account-ledger/queries.ts';
import { chainReads, pairKey } from '../../projections/balances/queries.ts';
import { blocksAt } from '../../projections/indexed-blocks/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { NOTHING_MOVED, balanceFrom, factsOf, hasCome, lastRead, requestOf, wantsRead } from './current.ts';
import type { AnsweredBalance, BalanceDeps, CurrentBalance, MaxAge } from './current.ts';
import { chooseBasis, hasDeltas, isReadable } from './math.ts';

/** Reads that one answer asks for without waiting for them; the next answer asks for more. */
const ASKED_AT_ONCE = 200;

interface AccountBalances {
  /** Of every token that a transfer of the account is indexed of, by address; also those that are unknown. */
  readonly balances: readonly CurrentBalance[];
  /** False where transfers before the first indexed block may be missing. */
  readonly isWhole: boolean;
}

/** All balances of an account that are known now. */
export async function accountBalances(deps: BalanceDeps, account: Felt): Promise<AccountBalances> {
  const { clickhouse, pool, served } = deps;
  const covered = await deps.coverage.read(clickhouse, served);
  if (covered === null) return { balances: [], isWhole: false };
  const { run, head } = covered;
  const totals = await movedByToken(clickhouse, served, { account, upTo: run.end });
  const pairs = [...totals.keys()].map((token) => ({ account, token }));
  const [readsOf, tokens] = await Promise.all([
    chainReads(pool, served.schema('balances'), pairs),
    tokensByAddress(pool, served.schema('tokens'), [...totals.keys()]),
  ]);
  const heights = pairs.flatMap((pair) => readsOf(pair).anchors.map(({ block }) => block));
  const blocks = await blocksAt(clickhouse, served, heights);
  const known = pairs.map((pair) => {
    const [token, reads] = [tokens.get(pair.token), readsOf(pair)];
    const facts = factsOf(pair, token);
    const basis = chooseBasis(
      facts,
      reads.anchors,
      (height) => blocks.get(height)?.hash,
      // What was read at a block newer than the head as it was looked up counts: nothing moved since is added to it.
      { start: run.start, end: Math.max(run.end, ...reads.anchors.map(({ block }) => block)) },
      run.end,
    );
    return { pair, token, reads, facts, basis };
  });
  const after = new Map(
    known.flatMap(({ pair, facts, basis }): [Felt, number][] =>
      basis.from === 'anchor' && hasDeltas(facts) ? [[pair.token, basis.anchor.block]] : [],
    ),
  );
  const since = await movedByToken(clickhouse, served, { account, upTo: run.end, after });
  const movedOf = (token: Felt, from: 'anchor' | 'first block' | 'nothing'): Moved =>
    (from === 'anchor' ? since : totals).get(token) ?? NOTHING_MOVED;
  return {
    isWhole: run.start === 0,
    balances: known.map(({ pair, token, reads, facts, basis }) => ({
      pair,
      token,
      reads,
      balance: balanceFrom(basis, facts, movedOf(pair.token, basis.from)),
      lastUpdated: basis.from === 'anchor' ? basis.anchor.observedAt : head.timestamp * 1000,
      readAt: lastRead(basis, reads),
    })),
  };
}

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
    refreshes.ask(unknownFirst.slice(0, ASKED_AT_ONCE).map(({ pair }) => requestOf(pair)));
    return { ...cached, balances: cached.balances.map((one) => ({ ...one, isStale: false })) };
  }
  const asked = old.map(({ pair }) => ({ pair, request: requestOf(pair) }));
  const came = new Set<string>();
  await refreshes.refresh(
    asked.map(({ request }) => request),
    async (askedAt) => {
      const readsOf = await chainReads(
        pool,
        served.schema('balances'),
        asked.map(({ pair }) => pair),
      );
      for (const { pair, request } of asked)
        if (hasCome(readsOf(pair), askedAt(request))) came.add(pairKey(pair));
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
