import type { RowReader } from '../infra/clickhouse/client.ts';
import { createYielding } from '../infra/yielding.ts';
import { balanceAt, chooseBasis, hasDeltas, legsBetween } from '../schemas/balance.ts';
import type { Basis, IndexedRange, PairFacts } from '../schemas/balance.ts';
import type { Felt } from '../schemas/felt.ts';
import { movedInSteps, movedWithin } from './account-ledger/queries.ts';
import type { Moved, Span } from './account-ledger/queries.ts';
import type { Anchor } from './balances/queries.ts';
import { blocksAt } from './indexed-blocks/queries.ts';
import type { IndexedBlock } from './indexed-blocks/queries.ts';
import type { ServedTables } from './served.ts';

/** A pair, and its balances that were read from the chain. */
export interface BalanceSubject extends PairFacts {
  readonly token: Felt;
  readonly anchors: readonly Anchor[];
}

/** An indexed height, and the run of indexed blocks that it lies in. */
export interface Point {
  readonly height: number;
  readonly run: IndexedRange;
}

/** The balances of one subject, in the order of the points. */
export interface SubjectBalances {
  readonly bases: readonly Basis<Anchor>[];
  /** null: unknown. */
  readonly balances: readonly (bigint | null)[];
}

export interface BalanceReads {
  readonly clickhouse: RowReader;
  /** The indexed blocks at these heights; a query by default. */
  readonly blocksAt?: (heights: readonly number[]) => Promise<ReadonlyMap<number, IndexedBlock>>;
  /** Sums of ledger legs; read pair by pair by default. Read again if a reorg removes an anchor meanwhile. */
  readonly ledger?: LedgerSums;
}

/** Sum of a subject's legs above one height, up to another. */
type MovedOf = (subject: BalanceSubject, span: Span) => Moved;

/** Reads the sums of all the spans that `balancesAt` needs, in a bounded number of statements. */
export interface LedgerSums {
  read(spans: Iterable<readonly [BalanceSubject, Span]>): Promise<MovedOf>;
}

const NOTHING = { from: 'nothing' } as const;
const NOTHING_MOVED: Moved = { delta: 0n, legs: 0 };

/**
 * The balances of these subjects at each of these points, in their order. A token whose balances change without transfers
 * has a balance at the head only: the last that was read from the chain.
 *
 * @param head the newest indexed height
 */
export async function balancesAt(
  { clickhouse, blocksAt: findBlocks, ledger }: BalanceReads,
  served: ServedTables,
  subjects: readonly BalanceSubject[],
  { points, head }: { readonly points: readonly Point[]; readonly head: number },
): Promise<SubjectBalances[]> {
  const checkAnchors = async (anchors: readonly Anchor[]): Promise<IsIndexed> => {
    const heights = anchors.map(({ block }) => block);
    const blocks = await (findBlocks?.(heights) ?? blocksAt(clickhouse, served, heights));
    return ({ block, hash }) => blocks.get(block)?.hash === hash;
  };
  const sums = ledger ?? pairSums(clickhouse, served);
  const anchors = subjects.flatMap((subject) => subject.anchors);
  // Most anchors are at blocks that are still indexed: for one point, none is checked before the ledger is read.
  let isIndexed: IsIndexed = points.length === 1 ? () => true : await checkAnchors(anchors);
  let bases: Bases[];
  let movedOf: MovedOf;
  for (;;) {
    bases = await basesOf(subjects, points, head, isIndexed);
    const chosen = await anchorsOf(bases);
    // The writer removes a reverted block in an insert of its own, before the one that removes its legs, so a block that is
    // indexed at about the time of the other read has all of them. After it, the check would take as long again.
    const [moved, isIndexedNow] = await Promise.all([
      sums.read(spansOf(subjects, points, bases, head)),
      checkAnchors(chosen),
    ]);
    movedOf = moved;
    if (chosen.every(isIndexedNow)) break;
    isIndexed = await checkAnchors(anchors);
  }

  const found: SubjectBalances[] = [];
  const yielding = createYielding();
  for (const [i, subject] of subjects.entries()) {
    const own = bases[i] ?? [];
    const balances = points.map(({ height }, at): bigint | null => {
      const basis = own[at] ?? NOTHING;
      const span = spanOf(subject, basis, height, head);
      return balanceAt(basis, subject, height, span === null ? NOTHING_MOVED : movedOf(subject, span));
    });
    found.push({ bases: own, balances });
    await yielding();
  }
  return found;
}

type Bases = readonly Basis<Anchor>[];
type IsIndexed = (anchor: Anchor) => boolean;

/** By subject, the basis of its balance at each point. */
async function basesOf(
  subjects: readonly BalanceSubject[],
  points: readonly Point[],
  head: number,
  isIndexed: IsIndexed,
): Promise<Bases[]> {
  const found: Bases[] = [];
  const yielding = createYielding();
  for (const subject of subjects) {
    // The head was read before the anchors, so an anchor may be newer: it counts, without any leg.
    const newest = Math.max(head, ...subject.anchors.map(({ block }) => block));
    found.push(
      points.map(({ height, run }): Basis<Anchor> => {
        const isHead = height === head;
        if (height < run.start || (!isHead && !hasDeltas(subject))) return NOTHING;
        const reach = isHead ? { start: run.start, end: newest } : run;
        return chooseBasis(subject, subject.anchors, isIndexed, reach, height);
      }),
    );
    await yielding();
  }
  return found;
}

/** The legs between a basis and a height; null where no leg counts. */
function spanOf(subject: BalanceSubject, basis: Basis<Anchor>, height: number, head: number): Span | null {
  if (basis.from === 'nothing' || !hasDeltas(subject)) return null;
  const { after, upTo } = legsBetween(basis, height);
  const span = { after: Math.min(after, head), upTo: Math.min(upTo, head) };
  return span.after < span.upTo || basis.from === 'first block' ? span : null;
}

function* spansOf(
  subjects: readonly BalanceSubject[],
  points: readonly Point[],
  bases: readonly Bases[],
  head: number,
): Generator<readonly [BalanceSubject, Span]> {
  for (const [i, subject] of subjects.entries()) {
    for (const [at, { height }] of points.entries()) {
      const span = spanOf(subject, bases[i]?.[at] ?? NOTHING, height, head);
      if (span !== null) yield [subject, span];
    }
  }
}

async function anchorsOf(bases: readonly Bases[]): Promise<Anchor[]> {
  const found = new Set<Anchor>();
  const yielding = createYielding();
  for (const own of bases) {
    for (const basis of own) if (basis.from === 'anchor') found.add(basis.anchor);
    await yielding();
  }
  return [...found];
}

/** Sums of some pairs; reads the legs of these pairs only. */
export function pairSums(clickhouse: BalanceReads['clickhouse'], served: ServedTables): LedgerSums {
  const keyOf = ({ account, token }: BalanceSubject, { after, upTo }: Span): string =>
    `${account} ${token} ${after} ${upTo}`;
  return {
    async read(spans) {
      const wanted = new Map([...spans].map((one) => [keyOf(...one), one]));
      const moved = await movedWithin(
        clickhouse,
        served,
        [...wanted.values()].map(([{ account, token }, span]) => ({ account, token, ...span })),
      );
      const byKey = new Map([...wanted.keys()].map((key, i) => [key, moved[i] ?? NOTHING_MOVED]));
      return (subject, span) => byKey.get(keyOf(subject, span)) ?? NOTHING_MOVED;
    },
  };
}

/**
 * Sums of all tokens of an account in one statement, for any number of tokens and heights; without a statement where the
 * totals suffice.
 *
 * @param totals by token, the legs up to the head; subjects of other tokens have none
 */
export function accountSums(
  clickhouse: BalanceReads['clickhouse'],
  served: ServedTables,
  { account, head, totals }: { account: Felt; head: number; totals: ReadonlyMap<Felt, Moved> },
): LedgerSums {
  return {
    async read(spans) {
      const needed = new Set<number>();
      for (const [, { after, upTo }] of spans) {
        needed.add(upTo);
        if (after >= 0) needed.add(after);
      }
      const heights = [...needed].toSorted((a, b) => a - b);
      const isTotal = heights.every((height) => height === head);
      const steps = isTotal ? null : await movedInSteps(clickhouse, served, { account, heights });
      const indexOf = new Map(heights.map((height, i) => [height, i]));
      const sumsOf = (token: Felt): bigint[] => {
        const ofToken = steps === null ? new Map([[head, totals.get(token)?.delta ?? 0n]]) : steps.get(token);
        let sum = 0n;
        return heights.map((height) => (sum += ofToken?.get(height) ?? 0n));
      };
      let current: { readonly token: Felt; readonly sums: readonly bigint[] } | null = null;
      return ({ token }, { after, upTo }) => {
        if (current?.token !== token) current = { token, sums: sumsOf(token) };
        const at = (height: number): bigint => current?.sums[indexOf.get(height) ?? -1] ?? 0n;
        return { delta: at(upTo) - at(after), legs: totals.get(token)?.legs ?? 0 };
      };
    },
  };
}
