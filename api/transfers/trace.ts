import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { busyAccounts } from '../../projections/transfer-counts/queries.ts';
import { newestTransfersBetween, transfersAmong } from '../../projections/transfers/queries.ts';
import type { TracedTransfer } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { eventIndex } from '../../schemas/decode/index.ts';
import { unavailable } from '../errors.ts';
import type { ServedBuilds } from '../route.ts';

/** Transfers followed of one counterparty, the newest. */
const MOST_OF_ACCOUNT = 10_000;
/** Accounts of one statement: their list goes into the request's line, which takes a megabyte. */
const ACCOUNTS_AT_ONCE = 1000;
/** What reading one account's transfers costs, in rows of its token: a granule in each of some parts. */
const ROWS_OF_ACCOUNT = 3000;
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
      for (const transfer of await transfersOf(deps, trace, accounts)) {
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
async function transfersOf(
  { clickhouse, tables }: TraceDeps,
  { token, transfers, hasLegs }: Trace,
  accounts: readonly Felt[],
): Promise<TracedTransfer[]> {
  const busy = await busyAccounts(clickhouse, tables, accounts, MOST_OF_ACCOUNT);
  const others = accounts.filter((account) => !busy.has(account));
  const by = transfers < others.length * ROWS_OF_ACCOUNT ? 'token' : 'accounts';
  const rows =
    others.length === 0 ? [] : await transfersAmong(clickhouse, tables, { token, accounts: others, by });
  for (const account of busy) {
    const asked = { token, account, most: MOST_OF_ACCOUNT, hasLegs };
    for (const row of await newestTransfersBetween(clickhouse, tables, asked)) rows.push(row);
  }
  return rows;
}

function* inGroups<T>(items: readonly T[], size: number): Generator<T[]> {
  for (let at = 0; at < items.length; at += size) yield items.slice(at, at + size);
}
