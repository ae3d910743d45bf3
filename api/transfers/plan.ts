import { transferPositionsOfPair } from '../../projections/account-ledger/queries.ts';
import { transfersInAndOut, transfersOfAccount } from '../../projections/account-feed/queries.ts';
import type { Subject } from '../../projections/transfer-counts/queries.ts';
import {
  transfersOfBlock,
  transfersOfSearchedToken,
  transfersOfSearchedTransaction,
  transfersOfToken,
  transfersOfTransaction,
} from '../../projections/transfers/queries.ts';
import { feltFilters } from '../../projections/transfers/queries.ts';
import type { FeltFilter, TransferSource } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedTables } from '../../projections/served.ts';

export type Felts = Readonly<Partial<Record<FeltFilter, Felt>>>;

/** Rows read by a key prefix. */
interface PlannedSource {
  readonly source: TransferSource;
  /** The token or account whose rows they are; null: they are of several, or of a transaction. */
  readonly subject: Subject | null;
  /** All rows of the subject, which are counted; by default those of `source`. */
  readonly whole?: TransferSource;
}

export interface Plan {
  /** Disjoint; several for a search only. */
  readonly sources: readonly PlannedSource[];
  /** The subject whose maintained counts equal those of the answer between any two heights; null: rows must be counted. */
  readonly exact: Subject | null;
  /** The subject whose rows contain the answer. */
  readonly subject: Subject | null;
  /** Where the rows are, if a narrow table has them in the order of the page: positions are read first, then those rows. */
  readonly positions: TransferSource | null;
  /** The answer mostly fits on the first page, so rows are counted only if that is full. */
  readonly isShort: boolean;
  /** The number of transfers of the whole answer; null: not known yet. */
  readonly count: number | null;
}

/** Of which nothing is known. */
const unknown = {
  subject: null,
  exact: null,
  positions: null,
  isShort: false,
  count: null,
} as const;

/** Matches no row. */
export const nothing: Plan = { ...unknown, sources: [], count: 0 };

/** Facts that the plan depends on besides the filters. */
export interface PlanFacts {
  total(subject: Subject): number;
  /** Rows of one filter that may be read to find those that match the others. */
  readonly scanRows: number;
  /** Whether `account_ledger` has the legs of every transfer of the token: it has none of those of unknown standard. */
  readonly hasLegs: boolean;
  /** Whether the searched felt is the hash of a transaction with transfers. */
  readonly searchIsHash: boolean;
  /** Transfers of the block, if it is the only filter; otherwise not used. */
  readonly ofBlock: number;
}

const token = (felt: Felt): Subject => ({ kind: 'token', felt });
const account = (felt: Felt): Subject => ({ kind: 'account', felt });

/** Filters that have a key prefix, with the subjects whose totals are their number of rows. */
export function candidatesOf(felts: Felts): { filter: Exclude<FeltFilter, 'txhash'>; subjects: Subject[] }[] {
  const named = [
    ['token', felts.token],
    ['account', felts.account],
    ['from', felts.from],
    ['to', felts.to],
    ['search', felts.search],
  ] as const;
  return named.flatMap(([filter, felt]) =>
    felt === undefined ? [] : [{ filter, subjects: subjectsOf(filter, felt) }],
  );
}

function subjectsOf(filter: Exclude<FeltFilter, 'txhash'>, felt: Felt): Subject[] {
  if (filter === 'search') return [account(felt), token(felt)];
  return [filter === 'token' ? token(felt) : account(felt)];
}

/** The side of a token and an account, if these are all that is asked for. */
export function pairSideOf(felts: Felts): 'account' | 'from' | 'to' | null {
  const [first, second, ...others] = feltFilters.filter((name) => felts[name] !== undefined);
  const isPair = second === 'token' && others.length === 0;
  return isPair && (first === 'account' || first === 'from' || first === 'to') ? first : null;
}

/** The totals that `planTransfers` needs: none if there is only one candidate. */
export function subjectsToCount(felts: Felts): Subject[] {
  if (felts.txhash !== undefined) return [];
  const candidates = candidatesOf(felts);
  return candidates.length > 1 || felts.search !== undefined
    ? candidates.flatMap(({ subjects }) => subjects)
    : [];
}

/**
 * Chooses the rows to read: a transaction's by its index, else those of the filter with the fewest rows (so that a hot
 * account with a rare token stays fast), else a block's. The other filters become conditions on those rows. A busy account
 * of a busy token may still have few transfers of it; its legs say where they are.
 */
export function planTransfers(
  tables: ServedTables,
  felts: Felts,
  block: number | null,
  facts: PlanFacts,
): Plan {
  if (felts.txhash !== undefined) return { ...single(transfersOfTransaction(tables)), isShort: true };
  const weighed = candidatesOf(felts).map((candidate) => ({
    ...candidate,
    rows: candidate.subjects.reduce((sum, subject) => sum + facts.total(subject), 0),
  }));
  const [best] = weighed.toSorted((a, b) => a.rows - b.rows);
  if (best === undefined) {
    const { ofBlock: count } = facts;
    return count === 0 ? nothing : { ...single(transfersOfBlock(tables, block ?? 0)), count };
  }
  const isOnly = weighed.length === 1;
  const [subject = null] = best.subjects;
  const side = pairSideOf(felts);
  const positions =
    side !== null && facts.hasLegs && best.rows > facts.scanRows
      ? transferPositionsOfPair(tables, side)
      : null;
  switch (best.filter) {
    case 'token':
    case 'account': {
      const source =
        best.filter === 'token' ? transfersOfToken(tables) : transfersOfAccount(tables, best.filter);
      const exact = isOnly ? subject : null;
      return { ...unknown, sources: [{ source, subject }], subject, exact, positions };
    }
    case 'from':
    case 'to': {
      const source = transfersOfAccount(tables, best.filter);
      const whole = transfersInAndOut(tables, best.filter);
      return { ...unknown, sources: [{ source, subject, whole }], subject, positions };
    }
    case 'search':
      return planSearch(tables, felts.search, facts, isOnly);
  }
}

/**
 * On Starknet an address and a hash look alike, so a search may be an account, a token or a transaction. The counts mostly
 * show which, and it then costs as much as that filter. An unknown one reads all three, which are empty.
 */
function planSearch(tables: ServedTables, felt: Felt | undefined, facts: PlanFacts, isOnly: boolean): Plan {
  if (felt === undefined) return nothing;
  const all = [
    {
      source: transfersOfAccount(tables, 'search'),
      subject: account(felt),
      hasRows: facts.total(account(felt)) > 0,
    },
    { source: transfersOfSearchedToken(tables), subject: token(felt), hasRows: facts.total(token(felt)) > 0 },
    { source: transfersOfSearchedTransaction(tables), subject: null, hasRows: facts.searchIsHash },
  ];
  const matching = all.filter(({ hasRows }) => hasRows);
  const sources = matching.length === 0 ? all : matching;
  const subject = sources.length === 1 ? (sources[0]?.subject ?? null) : null;
  return { ...unknown, sources, subject, exact: isOnly ? subject : null };
}

function single(source: TransferSource): Plan {
  return { ...unknown, sources: [{ source, subject: null }] };
}
