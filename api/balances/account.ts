import { accountSums, balancesAt } from '../../projections/balances-at.ts';
import type { Point, SubjectBalances } from '../../projections/balances-at.ts';
import { MAX_TOKENS, movedByToken } from '../../projections/account-ledger/queries.ts';
import type { Moved } from '../../projections/account-ledger/queries.ts';
import { chainReadsOf, pairKey } from '../../projections/balances/queries.ts';
import type { ChainReads, Pair } from '../../projections/balances/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import { isReadable } from '../../schemas/balance.ts';
import type { PairFacts } from '../../schemas/balance.ts';
import type { Felt } from '../../schemas/felt.ts';
import { invalidInput } from '../http/errors.ts';
import { figure } from '../http/stated-limits.ts';
import { boundReads } from './bound-reads.ts';
import { currentBalance, factsOf, needsRead, refreshPairs, requestOf } from './current.ts';
import type { BalanceDeps, CurrentBalance, FreshBalance, MaxAge } from './current.ts';

/** Chain reads that one answer requests; a repeated call requests the next ones. */
export const MAX_READS = 200;

/** Tokens times points of one answer: 200 tokens at 5,000 points and as many again. More is refused, never truncated. */
export const MAX_BALANCES = 2_000_000;

/** In the OpenAPI document: accounts of more tokens are refused. */
export const TOKENS_LIMIT = `Tokens that the account has transfers of: ${figure(MAX_TOKENS)} (400)`;

/** A token that an account has a transfer of, with what was read of it from the chain. */
export interface AccountToken {
  readonly pair: Pair;
  readonly token: TokenRow | undefined;
  readonly reads: ChainReads;
  readonly facts: PairFacts;
}

/** What an account has of a token at some points, in their order. */
export type TokenBalances = AccountToken & SubjectBalances;

/** Every token that an indexed transfer of an account is of. */
export interface AccountTokens {
  readonly account: Felt;
  /** The newest indexed height. */
  readonly head: number;
  /** What moved up to it, by token. */
  readonly totals: ReadonlyMap<Felt, Moved>;
  readonly tokens: readonly AccountToken[];
}

type Deps = Pick<BalanceDeps, 'asOf' | 'clickhouse' | 'coverage' | 'pool' | 'served'>;

export async function tokensOfAccount(deps: Deps, account: Felt, head: number): Promise<AccountTokens> {
  const { clickhouse, pool, served } = deps;
  const readTotals = async (): Promise<Map<Felt, Moved>> => {
    const totals = await movedByToken(clickhouse, served, { account, upTo: head });
    if (totals.size > MAX_TOKENS) {
      const text = `This account has transfers of more than ${figure(MAX_TOKENS)} tokens. Use /api/balances/.`;
      throw invalidInput({ account_address: [text] });
    }
    return totals;
  };
  const totalsRead = readTotals();
  const [totals, rows, readsOf] = await Promise.all([
    totalsRead,
    totalsRead.then(
      async (totals) => await tokensByAddress(pool, served.schema('tokens'), [...totals.keys()]),
    ),
    chainReadsOf(pool, served, account),
  ]);
  const known = [...totals.keys()].map((address): AccountToken => {
    const pair = { account, token: address };
    const token = rows.get(address);
    return { pair, token, reads: readsOf(pair), facts: factsOf(pair, token) };
  });
  return { account, head, totals, tokens: await boundReads(deps, known) };
}

/**
 * The balances of all tokens of an account at each of these points; unknown ones too. A bounded number of statements,
 * however many points.
 */
export async function accountBalancesAt(
  { clickhouse, served }: Deps,
  { tokens, ...ofAccount }: AccountTokens,
  points: readonly Point[],
): Promise<TokenBalances[]> {
  if (tokens.length * points.length > MAX_BALANCES) {
    const text = `The window holds more than ${MAX_BALANCES.toLocaleString('en-US')} balances of this account; narrow it.`;
    throw invalidInput({ start_time: [text] });
  }
  const found = await balancesAt(
    { clickhouse, ledger: accountSums(clickhouse, served, ofAccount) },
    served,
    tokens.map(({ pair, facts, reads: { anchors } }) => ({ ...pair, ...facts, anchors })),
    { points, head: ofAccount.head },
  );
  return tokens.map((token, i) => ({ ...token, ...(found[i] ?? { bases: [], balances: [] }) }));
}

/** Requests chain reads of the first of these pairs without waiting; none as of a block. */
export function requestReads(
  deps: Pick<BalanceDeps, 'asOf' | 'refreshes' | 'caller'>,
  ones: readonly { readonly pair: Pair }[],
): void {
  // The chain is read at its newest block.
  if (ones.length === 0 || deps.asOf !== null) return;
  deps.refreshes.request(ones.slice(0, MAX_READS).map(({ pair }) => requestOf(pair, deps)));
}

/** Unix milliseconds at which the chain last answered for a pair, whether the answer is still of use or not; 0: never. */
function lastAnswerAt({ anchors, refusal }: ChainReads): number {
  return Math.max(refusal?.refusedAt ?? 0, ...anchors.map(({ observedAt }) => observedAt));
}

/**
 * The balances to read first: those never read, unknown ones before others, then those whose last read is the oldest. A
 * read moves a pair to the end, so that repeated calls reach all pairs.
 */
function byNeedOfRead(
  a: Pick<CurrentBalance, 'balance' | 'reads'>,
  b: Pick<CurrentBalance, 'balance' | 'reads'>,
): number {
  return (
    lastAnswerAt(a.reads) - lastAnswerAt(b.reads) || Number(a.balance !== null) - Number(b.balance !== null)
  );
}

interface AccountBalances<B> {
  /** Of every token that an indexed transfer of the account is of; unknown ones too. */
  readonly balances: readonly B[];
  /** False where transfers before the first indexed block may be missing. */
  readonly isWhole: boolean;
}

async function currentAccountBalances(
  deps: BalanceDeps,
  account: Felt,
): Promise<AccountBalances<CurrentBalance>> {
  const covered = await deps.coverage.read(deps.clickhouse, deps.served);
  if (covered === null) return { balances: [], isWhole: false };
  const { run, head } = covered;
  const tokens = await tokensOfAccount(deps, account, run.end);
  const found = await accountBalancesAt(deps, tokens, [{ height: run.end, run }]);
  return {
    isWhole: run.start === 0,
    balances: found.map(({ pair, token, reads, ...rest }) =>
      currentBalance({ pair, token, reads }, rest, head.timestamp),
    ),
  };
}

/**
 * All balances of an account. A bounded number of chain reads is requested for those older than the caller wants; only a
 * caller that requires new ones waits, others see them in a later answer.
 */
export async function freshAccountBalances(
  deps: BalanceDeps,
  account: Felt,
  maxAge: MaxAge,
): Promise<AccountBalances<FreshBalance>> {
  const known = await currentAccountBalances(deps, account);
  const old = known.balances.filter((one) => needsRead(one, maxAge, deps.now())).toSorted(byNeedOfRead);
  if (maxAge !== null || old.length === 0 || deps.asOf !== null) {
    requestReads(deps, old);
    return { ...known, balances: known.balances.map((one) => ({ ...one, isStale: false })) };
  }
  const arrived = await refreshPairs(
    deps,
    old.slice(0, MAX_READS).map(({ pair }) => pair),
  );
  const fresh = await currentAccountBalances(deps, account);
  const balances = fresh.balances.map((one) => ({
    ...one,
    isStale: isReadable(factsOf(one.pair, one.token)) && !arrived.has(pairKey(one.pair)),
  }));
  return { ...fresh, balances };
}
