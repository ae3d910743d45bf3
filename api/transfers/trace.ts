import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { busyAccounts } from '../../projections/transfer-counts/queries.ts';
import { tracedOfAccounts, tracedOfBusyAccount, tracedOfToken } from '../../projections/transfers/queries.ts';
import type { TracedTransfer } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { eventIndex } from '../../schemas/decode/index.ts';
import { unavailable } from '../http/errors.ts';
import type { ServedBuilds } from '../http/route.ts';

/** Transfers followed of one counterparty, the newest. */
const MOST_OF_ACCOUNT = 10_000;
/** Accounts of one statement: their list goes into the request's line, which takes a megabyte. */
const ACCOUNTS_AT_ONCE = 1000;
/** A token of no more transfers is read whole, once: a walk by accounts reads some parts' granules for each of them. */
const WHOLE_TOKEN = 100_000;
/** What one answer may hold in memory. */
const MOST_TRANSFERS = 400_000;
const AGAIN_SECONDS = 60;

export interface TraceDeps {
  readonly clickhouse: ClickHouse;
  readonly tables: Pick<ServedBuilds, 'table'>;
  /** Unix milliseconds. */
  readonly now: () => number;
}

export interface Trace {
  readonly account: Felt;
  readonly token: Felt;
  /** Transfers of the token in all. */
  readonly transfers: number;
  /** Its transfers have legs in the ledger: its standard is known. */
  readonly hasLegs: boolean;
  /** Accounts that are not followed; what others have with them is shown. */
  readonly skipped: readonly Felt[];
  readonly budgetMs: number;
}

/**
 * Walks breadth first over the counterparties of an account in one token until none is new, and gives every transfer that
 * it met once, by (block, event_index). All accounts of a step are read together.
 *
 * Throws 503 when it takes longer than `budgetMs` or holds more than can be answered: an answer is never cut.
 */
export async function traceTransfers(deps: TraceDeps, trace: Trace): Promise<TracedTransfer[]> {
  const { account, skipped, budgetMs } = trace;
  const read = trace.transfers <= WHOLE_TOKEN ? await wholeToken(deps, trace) : byAccounts(deps, trace);
  const endsAt = deps.now() + budgetMs;
  const found = new Map<string, TracedTransfer>();
  const met = new Set<Felt>([account, ...skipped]);
  let frontier: Felt[] = [account];
  while (frontier.length > 0) {
    const next: Felt[] = [];
    for (const accounts of inGroups(frontier, ACCOUNTS_AT_ONCE)) {
      if (deps.now() > endsAt) {
        throw unavailable(
          'trace_too_long',
          `The trace takes longer than ${budgetMs / 1000} s: ${met.size} accounts and ${found.size} transfers so far.`,
          AGAIN_SECONDS,
        );
      }
      for (const transfer of await read(accounts)) {
        found.set(`${transfer.block}:${eventIndex(transfer.position, transfer.item)}`, transfer);
        for (const counterparty of [transfer.from, transfer.to]) {
          if (met.has(counterparty)) continue;
          met.add(counterparty);
          next.push(counterparty);
        }
      }
      if (found.size > MOST_TRANSFERS) {
        const most = MOST_TRANSFERS.toLocaleString('en');
        throw unavailable('trace_too_large', `The trace holds more than ${most} transfers.`, AGAIN_SECONDS);
      }
    }
    frontier = next;
  }
  return [...found.values()].toSorted(
    (a, b) => a.block - b.block || eventIndex(a.position, a.item) - eventIndex(b.position, b.item),
  );
}

/** What these accounts moved of the token; of a busy one the newest. */
type Read = (accounts: readonly Felt[]) => Promise<TracedTransfer[]>;

/** The whole token is in memory. */
async function wholeToken({ clickhouse, tables }: TraceDeps, { token }: Trace): Promise<Read> {
  const byAccount = new Map<Felt, TracedTransfer[]>();
  for (const transfer of await tracedOfToken(clickhouse, tables, token)) {
    for (const account of new Set([transfer.from, transfer.to])) {
      const own = byAccount.get(account);
      if (own === undefined) byAccount.set(account, [transfer]);
      else if (own.length < MOST_OF_ACCOUNT) own.push(transfer);
    }
  }
  return async (accounts) => accounts.flatMap((account) => byAccount.get(account) ?? []);
}

function byAccounts({ clickhouse, tables }: TraceDeps, { token, hasLegs }: Trace): Read {
  return async (accounts) => {
    const busy = await busyAccounts(clickhouse, tables, accounts, MOST_OF_ACCOUNT);
    const others = accounts.filter((account) => !busy.has(account));
    const rows =
      others.length === 0 ? [] : await tracedOfAccounts(clickhouse, tables, { token, accounts: others });
    for (const account of busy) {
      const asked = { token, account, most: MOST_OF_ACCOUNT, hasLegs };
      for (const row of await tracedOfBusyAccount(clickhouse, tables, asked)) rows.push(row);
    }
    return rows;
  };
}

function* inGroups<T>(items: readonly T[], size: number): Generator<T[]> {
  for (let at = 0; at < items.length; at += size) yield items.slice(at, at + size);
}
