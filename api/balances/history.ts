import { movedWithin, movements } from '../../projections/account-ledger/queries.ts';
import type { Movement } from '../../projections/account-ledger/queries.ts';
import { chainReads } from '../../projections/balances/queries.ts';
import type { Anchor, ChainReads, Pair } from '../../projections/balances/queries.ts';
import { newestHeightAt, runStart } from '../../projections/indexed-blocks/queries.ts';
import type { IndexedBlock } from '../../projections/indexed-blocks/queries.ts';
import { tokensByAddress } from '../../projections/tokens/queries.ts';
import type { TokenRow } from '../../projections/tokens/queries.ts';
import { invalidInput } from '../http/errors.ts';
import { NOTHING_MOVED, blocksReadAt, factsOf, hasCome, requestOf } from './current.ts';
import type { BalanceDeps } from './current.ts';
import {
  balanceAt,
  chooseBasis,
  hasDeltas,
  isReadable,
  legsBetween,
  balancesBackward,
} from '../../schemas/balance.ts';
import type { Basis, IndexedRange } from '../../schemas/balance.ts';

/** Rows of one answer: a hot account has some tens of thousands a day. A wider window is refused, never cut. */
export const HISTORY_ROWS = 100_000;

/** Blocks of the last moments may not be indexed yet, and clocks differ. */
const A_WHILE_MS = 60_000;

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
  /** Unix seconds from which on the balance is known; null: it is not known at all; undefined: it is from the start. */
  readonly completeFrom: number | null | undefined;
}

/** The heights of a window that one balance can be followed through, and the run of indexed blocks they lie in. */
interface Reach {
  readonly lo: number;
  readonly hi: number;
  readonly run: IndexedRange;
  /** The first height of the window is not in the run. */
  readonly isCut: boolean;
  /** Its balance can still be read from the chain. */
  readonly isNow: boolean;
}

/** Every transfer that touches a pair in a window, with the balance after it, going backward from what is known nearest. */
export async function balanceHistory(deps: BalanceDeps, pair: Pair, window: Window): Promise<History> {
  const { clickhouse, pool, served, coverage, refreshes, signal } = deps;
  const [tokens, found, known] = await Promise.all([
    tokensByAddress(pool, served.schema('tokens'), [pair.token]),
    reachOf(deps, window),
    readsAndBlocks(deps, pair),
  ]);
  const token = tokens.get(pair.token);
  const facts = factsOf(pair, token);
  if (!hasDeltas(facts)) return { token, rows: [], completeFrom: null };
  if (!('run' in found)) return { token, rows: [], completeFrom: found.completeFrom };

  const look = async (reach: Reach, { reads, blocks }: ReadsAndBlocks) =>
    await Promise.all([
      balanceAfter(deps, pair, token, reach, reads, blocks),
      movements(clickhouse, served, { ...pair, lo: reach.lo, hi: reach.hi }, HISTORY_ROWS + 1),
      reach.isCut ? coverage.blocks(clickhouse, served, [reach.run.start]) : null,
    ]);
  let reach = found;
  let [last, moved, first] = await look(reach, known);
  if (last === null && reach.isNow && isReadable(facts)) {
    const request = requestOf(pair);
    const schema = served.schema('balances');
    await refreshes.refresh(
      [request],
      async (requestedAt) =>
        hasCome((await chainReads(pool, schema, [pair]))(pair), requestedAt(request)) ? true : null,
      signal,
    );
    const again = await reachOf(deps, window, true);
    if (!('run' in again)) return { token, rows: [], completeFrom: again.completeFrom };
    reach = again;
    [last, moved, first] = await look(reach, await readsAndBlocks(deps, pair));
  }
  if (last === null) return { token, rows: [], completeFrom: null };
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
  // Before the oldest of these the events make less than nothing: what was there is not known.
  if (rows.length < moved.length) return { token, rows, completeFrom: rows.at(-1)?.timestamp ?? null };
  if (first === null) return { token, rows, completeFrom: undefined };
  return { token, rows, completeFrom: first.get(reach.run.start)?.timestamp ?? null };
}

/** What was read from the chain of a pair, and the blocks that are indexed where it was read. */
interface ReadsAndBlocks {
  readonly reads: ChainReads;
  readonly blocks: ReadonlyMap<number, IndexedBlock>;
}

async function readsAndBlocks(deps: BalanceDeps, pair: Pair): Promise<ReadsAndBlocks> {
  const readsOf = await chainReads(deps.pool, deps.served.schema('balances'), [pair]);
  return { reads: readsOf(pair), blocks: await blocksReadAt(deps, [pair], readsOf) };
}

async function reachOf(
  { clickhouse, served, coverage, now }: BalanceDeps,
  { start, end }: Window,
  isFresh = false,
): Promise<Reach | Pick<History, 'completeFrom'>> {
  // A window that ends in the past most likely ends below the newest block; one that ends now, never.
  const isPast = end * 1000 < now() - A_WHILE_MS;
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
    const first = await coverage.blocks(clickhouse, served, [newest.start]);
    return { completeFrom: first.get(newest.start)?.timestamp ?? null };
  };
  if (hi === null) return newest.start === 0 ? { completeFrom: undefined } : await knownFrom();
  const lo = before === null ? 0 : before + 1;
  const isNow = hi >= newest.start;
  if (!isNow) {
    // The window may end among blocks that are not indexed: what happened at its end is not known.
    const next = await coverage.blocks(clickhouse, served, [hi + 1]);
    if (!next.has(hi + 1)) return await knownFrom();
  }
  const runFrom = isNow ? newest.start : await runStart(clickhouse, served, hi);
  if (runFrom === null) return { completeFrom: null };
  const run = { start: runFrom, end: isNow ? Math.max(hi, newest.end) : hi };
  return { lo: Math.max(lo, run.start), hi, run, isCut: run.start > lo, isNow };
}

/** The balance after the last block of what is looked at. */
async function balanceAfter(
  { clickhouse, served }: BalanceDeps,
  pair: Pair,
  token: TokenRow | undefined,
  { hi, run }: Reach,
  { anchors }: ChainReads,
  blocks: ReadonlyMap<number, IndexedBlock>,
): Promise<bigint | null> {
  const basis: Basis<Anchor> = chooseBasis(
    factsOf(pair, token),
    anchors,
    (height) => blocks.get(height)?.hash,
    run,
    hi,
  );
  const [moved = NOTHING_MOVED] = await movedWithin(clickhouse, served, [
    { ...pair, ...legsBetween(basis, hi) },
  ]);
  return balanceAt(basis, factsOf(pair, token), hi, moved);
}
