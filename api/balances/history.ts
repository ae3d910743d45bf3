import { movements } from '../../projections/account-ledger/queries.ts';
import type { Movement } from '../../projections/account-ledger/queries.ts';
import { balancesAt, pairSums } from '../../projections/balances-at.ts';
import type { BalanceSubject, LedgerSums } from '../../projections/balances-at.ts';
import { chainReads } from '../../projections/balances/queries.ts';
import type { Pair } from '../../projections/balances/queries.ts';
import { blocksAt, newestHeightAt, runStart } from '../../projections/indexed-blocks/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import { balancesBackward, hasDeltas, isReadable } from '../../schemas/balance.ts';
import type { IndexedRange } from '../../schemas/balance.ts';
import { invalidInput } from '../http/errors.ts';
import { boundReads } from './bound-reads.ts';
import { factsOf, refreshPairs } from './current.ts';
import type { BalanceDeps } from './current.ts';

/** Rows of one answer: a hot account has tens of thousands a day. A wider window is refused, never truncated. */
export const HISTORY_ROWS = 100_000;

/** The newest blocks may not be indexed yet, and clocks differ. */
const HEAD_MARGIN_MS = 60_000;

/** Both unix seconds, inclusive. */
export interface Window {
  readonly start: number;
  readonly end: number;
}

export interface HistoryRow extends Movement {
  /** Right after this transfer. */
  readonly balance: bigint;
}

export interface History {
  readonly token: TokenRow | undefined;
  /** Newest first. */
  readonly rows: readonly HistoryRow[];
  /** Earliest unix second at which the balance is known; null: never known; undefined: known over the whole window. */
  readonly completeFrom: number | null | undefined;
}

/** The part of a window that lies inside one contiguous run of indexed blocks. */
interface HistoryRange {
  readonly lo: number;
  readonly hi: number;
  readonly run: IndexedRange;
  /** The window begins before the run. */
  readonly startsBeforeRun: boolean;
  /** It is the newest run, so its balance can be read from the chain. */
  readonly isNewestRun: boolean;
}

/** Every transfer that touches a pair in a window with the balance after it, backward from the nearest known balance. */
export async function balanceHistory(deps: BalanceDeps, pair: Pair, window: Window): Promise<History> {
  const { pool, served } = deps;
  const [tokens, reach, readsOf] = await Promise.all([
    tokensByAddress(pool, served.schema('tokens'), [pair.token]),
    historyRangeOf(deps, window),
    chainReads(pool, served, [pair]),
  ]);
  const token = tokens.get(pair.token);
  const facts = factsOf(pair, token);
  if (!hasDeltas(facts)) return { token, rows: [], completeFrom: null };
  if (!('run' in reach)) return { token, rows: [], completeFrom: reach.completeFrom };

  const subject = { ...pair, ...facts };
  const [known] = await boundReads(deps, [{ pair, token, reads: readsOf(pair) }]);
  const parts = await readHistoryInputs(deps, { ...subject, anchors: known?.reads.anchors ?? [] }, reach);
  if (parts.last !== null || !reach.isNewestRun || !isReadable(facts) || deps.asOf !== null)
    return { token, ...rowsWithBalances(parts, reach) };

  await refreshPairs(deps, [pair]);
  const [again, freshReadsOf] = await Promise.all([
    historyRangeOf(deps, window, true),
    chainReads(pool, served, [pair]),
  ]);
  if (!('run' in again)) return { token, rows: [], completeFrom: again.completeFrom };
  const fresh = await readHistoryInputs(deps, { ...subject, ...freshReadsOf(pair) }, again);
  return { token, ...rowsWithBalances(fresh, again) };
}

/** What a history is computed from. */
interface HistoryInputs {
  /** The balance after the last block of the window; null: unknown. */
  readonly last: bigint | null;
  /** Newest first; one more than an answer may hold where there are more. */
  readonly moved: readonly Movement[];
  /** Unix seconds of the first block of the run, where the window begins before it. */
  readonly runSeconds: number | null;
}

async function readHistoryInputs(
  { clickhouse, served }: BalanceDeps,
  subject: BalanceSubject,
  { lo, hi, run, startsBeforeRun }: HistoryRange,
): Promise<HistoryInputs> {
  const { account, token } = subject;
  const sums = pairSums(clickhouse, served);
  let moved: readonly Movement[] = [];
  // With the sums, so that both are read before the anchor is checked, and again where it is gone.
  const ledger: LedgerSums = {
    async read(spans) {
      const window = { account, token, lo, hi };
      const [movedOf, found] = await Promise.all([
        sums.read(spans),
        movements(clickhouse, served, window, HISTORY_ROWS + 1),
      ]);
      moved = found;
      return movedOf;
    },
  };
  const [[found], first] = await Promise.all([
    balancesAt({ clickhouse, ledger }, served, [subject], {
      points: [{ height: hi, run }],
      // No block counts as the head: an anchor above the run, which may be cached, must not stand for the balance after `hi`.
      head: Number.POSITIVE_INFINITY,
    }),
    startsBeforeRun ? blocksAt(clickhouse, served, [run.start]) : null,
  ]);
  return {
    last: found?.balances[0] ?? null,
    moved,
    runSeconds: first?.get(run.start)?.timestamp ?? null,
  };
}

function rowsWithBalances(
  { last, moved, runSeconds }: HistoryInputs,
  { startsBeforeRun }: HistoryRange,
): Omit<History, 'token'> {
  if (last === null) return { rows: [], completeFrom: null };
  if (moved.length > HISTORY_ROWS) {
    const text = `The window holds more than ${HISTORY_ROWS.toLocaleString('en-US')} transfers of this pair; narrow it.`;
    throw invalidInput({ start_time: [text] });
  }
  const after = balancesBackward(
    last,
    moved.map(({ delta }) => delta),
  );
  const rows = after.flatMap((balance, i) => {
    const movement = moved[i];
    return movement === undefined ? [] : [{ ...movement, balance }];
  });
  // The events before the oldest of these sum to less than zero: the balance there is unknown.
  if (rows.length < moved.length) return { rows, completeFrom: rows.at(-1)?.timestamp ?? null };
  return { rows, completeFrom: startsBeforeRun ? runSeconds : undefined };
}

async function historyRangeOf(
  { clickhouse, served, coverage, now }: BalanceDeps,
  { start, end }: Window,
  isFresh = false,
): Promise<HistoryRange | Pick<History, 'completeFrom'>> {
  // A window that ends in the past mostly ends below the newest block; one that ends now never does.
  const isPast = end * 1000 < now() - HEAD_MARGIN_MS;
  const [covered, before, ended] = await Promise.all([
    coverage.read(clickhouse, served, isFresh),
    newestHeightAt(clickhouse, served, start - 1),
    isPast ? newestHeightAt(clickhouse, served, end) : undefined,
  ]);
  if (covered === null) return { completeFrom: null };
  const newest = covered.run;
  const upTo = async (): Promise<number | null> =>
    covered.head.timestamp <= end ? newest.end : await newestHeightAt(clickhouse, served, end);
  const hi = ended === undefined ? await upTo() : ended;
  const knownFrom = async (): Promise<Pick<History, 'completeFrom'>> => {
    const first = await blocksAt(clickhouse, served, [newest.start]);
    return { completeFrom: first.get(newest.start)?.timestamp ?? null };
  };
  if (hi === null) return newest.start === 0 ? { completeFrom: undefined } : await knownFrom();
  const lo = before === null ? 0 : before + 1;
  const isNewestRun = hi >= newest.start;
  if (!isNewestRun) {
    // The window may end in a gap of the index: the transfers at its end are unknown.
    const next = await blocksAt(clickhouse, served, [hi + 1]);
    if (!next.has(hi + 1)) return await knownFrom();
  }
  const runFrom = isNewestRun ? newest.start : await runStart(clickhouse, served, hi);
  if (runFrom === null) return { completeFrom: null };
  const run = { start: runFrom, end: isNewestRun ? Math.max(hi, newest.end) : hi };
  return {
    lo: Math.max(lo, run.start),
    hi,
    run,
    startsBeforeRun: run.start > lo,
    isNewestRun,
  };
}
