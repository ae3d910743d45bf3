import { transfersOfAccount } from '../../projections/account-feed/queries.ts';
import type { Subject } from '../../projections/transfer-counts/queries.ts';
import {
  transfersOfBlock,
  transfersOfSearchedToken,
  transfersOfSearchedTransaction,
  transfersOfToken,
  transfersOfTransaction,
} from '../../projections/transfers/queries.ts';
import type { FeltFilter, TransferSource } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { ServedBuilds } from '../http/route.ts';

type Tables = Pick<ServedBuilds, 'table'>;
type Felts = Readonly<Partial<Record<FeltFilter, Felt>>>;

/** Rows read by a prefix of a key, and whose rows they are, when they are all those of one token or account. */
interface PlannedSource {
  readonly source: TransferSource;
  readonly subject: Subject | null;
}

export interface Plan {
  /** They share no row. Several for a search only. */
  readonly sources: readonly PlannedSource[];
  /** The one subject whose counts are the counts of the answer, between any two heights; `null`: rows must be looked at. */
  readonly exact: Subject | null;
  /** The one subject among whose rows the answer is found. */
  readonly subject: Subject | null;
  /** Mostly all of it is on its first page: only where that is full are the rows worth counting. */
  readonly isShort: boolean;
}

/** No row can match. */
export const nothing: Plan = { sources: [], subject: null, exact: null, isShort: false };

/** What the plan rests on besides the filters. */
export interface Knowledge {
  total(subject: Subject): number;
  /** Whether the searched felt is the hash of a transaction with transfers. */
  readonly searchIsHash: boolean;
}

const token = (felt: Felt): Subject => ({ kind: 'token', felt });
const account = (felt: Felt): Subject => ({ kind: 'account', felt });

/** Filters that lead to rows of their own, with the subjects whose totals say how many. */
function candidatesOf(felts: Felts): { filter: FeltFilter; subjects: Subject[] }[] {
  const named = [
    ['token', felts.token],
    ['account', felts.account],
    ['from', felts.from],
    ['to', felts.to],
    ['search', felts.search],
  ] as const;
  return named.flatMap(([filter, felt]) => {
    if (felt === undefined) return [];
    const subjects = { token: [token(felt)], search: [account(felt), token(felt)] };
    return [
      { filter, subjects: filter === 'token' || filter === 'search' ? subjects[filter] : [account(felt)] },
    ];
  });
}

/** Which totals `planTransfers` will ask for: none where only one way leads to the rows. */
export function subjectsToCount(felts: Felts): Subject[] {
  if (felts.txhash !== undefined) return [];
  const candidates = candidatesOf(felts);
  return candidates.length > 1 || felts.search !== undefined
    ? candidates.flatMap(({ subjects }) => subjects)
    : [];
}

/**
 * Chooses the rows to read: a transaction's by its index, else those of the filter with the fewest rows (so that a hot
 * account with a rare token stays fast), else a block's. The other filters are conditions on those rows.
 */
export function planTransfers(tables: Tables, felts: Felts, block: number | null, known: Knowledge): Plan {
  if (felts.txhash !== undefined) return { ...alone(transfersOfTransaction(tables)), isShort: true };
  const weighed = candidatesOf(felts).map((candidate) => ({
    ...candidate,
    rows:
      subjectsToCount(felts).length === 0
        ? 0
        : candidate.subjects.reduce((sum, subject) => sum + known.total(subject), 0),
  }));
  const [best] = weighed.toSorted((a, b) => a.rows - b.rows);
  if (best === undefined) return alone(transfersOfBlock(tables, block ?? 0));
  const isOnly = weighed.length === 1;
  const [subject = null] = best.subjects;
  switch (best.filter) {
    case 'token':
      return {
        sources: [{ source: transfersOfToken(tables), subject }],
        subject,
        exact: isOnly ? subject : null,
        isShort: false,
      };
    case 'account':
    case 'from':
    case 'to':
      return {
        sources: [{ source: transfersOfAccount(tables, best.filter), subject }],
        subject,
        exact: isOnly && best.filter === 'account' ? subject : null,
        isShort: false,
      };
    case 'search':
      return planSearch(tables, felts.search, known, isOnly);
    case 'txhash':
      return alone(transfersOfTransaction(tables));
  }
}

/**
 * On Starknet an address cannot be told from a hash, so a search may be any of three things. Mostly it is one, known by
 * the counts, and then as good as that filter. An unknown one reads all three, which hold nothing.
 */
function planSearch(tables: Tables, felt: Felt | undefined, known: Knowledge, isOnly: boolean): Plan {
  if (felt === undefined) return nothing;
  const all = [
    {
      source: transfersOfAccount(tables, 'search'),
      subject: account(felt),
      holds: known.total(account(felt)) > 0,
    },
    { source: transfersOfSearchedToken(tables), subject: token(felt), holds: known.total(token(felt)) > 0 },
    { source: transfersOfSearchedTransaction(tables), subject: null, holds: known.searchIsHash },
  ];
  const holding = all.filter(({ holds }) => holds);
  const sources = holding.length === 0 ? all : holding;
  const subject = sources.length === 1 ? (sources[0]?.subject ?? null) : null;
  return { sources, subject, exact: isOnly ? subject : null, isShort: false };
}

function alone(source: TransferSource): Plan {
  return { ...nothing, sources: [{ source, subject: null }] };
}
