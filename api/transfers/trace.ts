import { chunksOf } from '../../infra/chunks.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { createYielding } from '../../infra/yielding.ts';
import { busyAccounts } from '../../projections/transfer-counts/queries.ts';
import {
  tracedOfAccounts,
  tracedOfBusyAccount,
  tracedOfToken,
  tracedRow,
} from '../../projections/transfers/queries.ts';
import type { OnTraced, TracedSearch, TracedTransfer } from '../../projections/transfers/queries.ts';
import type { Felt } from '../../schemas/felt.ts';
import { eventIndex } from '../../schemas/decode/index.ts';
import { AppError } from '../../schemas/errors.ts';
import { invalidInput, unavailable } from '../http/errors.ts';
import type { HttpError } from '../http/errors.ts';
import type { ServedTables } from '../../projections/served.ts';

/** Transfers followed per counterparty, newest first. */
export const MAX_TRANSFERS_PER_ACCOUNT = 10_000;
/** Accounts in one statement: the list is a query parameter, and a request line holds one megabyte. */
const ACCOUNTS_PER_READ = 1000;
/** Bounds the memory of one answer. */
export const MAX_TRANSFERS = 400_000;
/** Costs of a read by accounts, and of each account in it, in transfers of a read of the whole token. */
const TRANSFERS_PER_READ = 3000;
const TRANSFERS_PER_ACCOUNT = 40;
/** The same query would take as long again. */
const RETRY_AFTER_SECONDS = 60;

export interface TraceDeps {
  /** Its reads fail with `QUERY_TIMEOUT` once the budget is used up. */
  readonly clickhouse: ClickHouse;
  readonly tables: ServedTables;
  /** Unix milliseconds. */
  readonly now: () => number;
}

export interface Trace {
  readonly account: Felt;
  readonly token: Felt;
  /** The highest height. */
  readonly upTo: number;
  /** Number of transfers of the token up to it. */
  readonly transfers: number;
  /** All its transfers have ledger legs: none is of unknown standard. */
  readonly hasLegs: boolean;
  /** Accounts that are not followed; their transfers with followed accounts are included. */
  readonly skipped: readonly Felt[];
  readonly budgetMs: number;
}

/** The transfers that a trace came across, each once. */
export interface Found {
  /** By (block, event_index), lowest first. */
  inOrder(): Generator<TracedTransfer>;
}

/**
 * Walks breadth first over the counterparties of an account in one token until none is new. All accounts of a step are read
 * together.
 *
 * Throws 503 when it takes longer than `budgetMs`, and 400 when the result is too large: an answer is never truncated.
 */
export async function traceTransfers(deps: TraceDeps, trace: Trace): Promise<Found> {
  const endsAt = deps.now() + trace.budgetMs;
  const found = createFound();
  const visited = new Set<Felt>([trace.account, ...trace.skipped]);
  const tooLong = (): HttpError =>
    unavailable(
      'trace_too_long',
      `The trace takes longer than ${trace.budgetMs / 1000} s: ${visited.size} accounts and ${found.size()} transfers so far.`,
      RETRY_AFTER_SECONDS,
    );
  const yielding = createYielding();
  try {
    const read = createReader(deps, trace);
    let frontier: Felt[] = [trace.account];
    while (frontier.length > 0) {
      const next: Felt[] = [];
      const follow = (transfers: readonly TracedTransfer[]): void => {
        for (const transfer of transfers) {
          const { from, to } = found.add(transfer);
          for (const counterparty of [from, to]) {
            if (visited.has(counterparty)) continue;
            visited.add(counterparty);
            next.push(counterparty);
          }
        }
        if (found.size() > MAX_TRANSFERS) throw tooLarge();
      };
      let left = frontier.length;
      for (const accounts of chunksOf(frontier, ACCOUNTS_PER_READ)) {
        if (deps.now() > endsAt) throw tooLong();
        await read(accounts, left, follow, yielding);
        left -= accounts.length;
      }
      frontier = next;
    }
  } catch (error) {
    if (error instanceof AppError && error.code === 'QUERY_TIMEOUT') throw tooLong();
    throw error;
  }
  return found;
}

function tooLarge(): HttpError {
  const limit = MAX_TRANSFERS.toLocaleString('en');
  return invalidInput({ non_field_errors: [`The trace holds more than ${limit} transfers.`] });
}

function createFound(): Found & { add(transfer: TracedTransfer): TracedTransfer; size(): number } {
  /** By height and event index. */
  const blocks = new Map<number, Map<number, TracedTransfer>>();
  let size = 0;
  return {
    size: () => size,
    add(transfer) {
      const block = blocks.get(transfer.block) ?? new Map<number, TracedTransfer>();
      blocks.set(transfer.block, block);
      const index = eventIndex(transfer.position, transfer.item);
      const known = block.get(index);
      if (known !== undefined) return known;
      block.set(index, transfer);
      size += 1;
      return transfer;
    },
    *inOrder() {
      for (const height of Float64Array.from(blocks.keys()).sort()) {
        const block = blocks.get(height) ?? new Map<number, TracedTransfer>();
        for (const index of Float64Array.from(block.keys()).sort()) {
          const transfer = block.get(index);
          if (transfer !== undefined) yield transfer;
        }
      }
    },
  };
}

/** Reads the token's transfers of these accounts; the newest of an account with more than the limit. */
type ReadTransfers = (
  accounts: readonly Felt[],
  onTransfers: OnTraced,
  yielding: () => Promise<void>,
) => Promise<void>;

/**
 * Returns what reads the accounts of a step, of which `left` are not read yet: by accounts, of which each scans granules, until
 * reading the whole token is cheaper.
 */
function createReader(deps: TraceDeps, trace: Trace) {
  const { clickhouse, tables } = deps;
  const search: TracedSearch = { token: trace.token, upTo: trace.upTo, row: tracedRow() };
  const costOfToken = trace.transfers <= MAX_TRANSFERS ? trace.transfers : Infinity;
  let cost = 0;
  let whole: ReadTransfers | null = null;
  return async (
    accounts: readonly Felt[],
    left: number,
    onTransfers: OnTraced,
    yielding: () => Promise<void>,
  ): Promise<void> => {
    const ofStep = TRANSFERS_PER_READ * Math.ceil(left / ACCOUNTS_PER_READ) + TRANSFERS_PER_ACCOUNT * left;
    if (whole === null && cost + ofStep <= costOfToken) {
      const busy = await busyAccounts(clickhouse, tables, accounts, MAX_TRANSFERS_PER_ACCOUNT);
      const ofBusy = (TRANSFERS_PER_READ + MAX_TRANSFERS_PER_ACCOUNT) * busy.size;
      if (cost + ofStep + ofBusy <= costOfToken) {
        cost += TRANSFERS_PER_READ + TRANSFERS_PER_ACCOUNT * accounts.length + ofBusy;
        await readByAccounts(deps, { ...search, hasLegs: trace.hasLegs }, accounts, busy, onTransfers);
        return;
      }
    }
    whole ??= await readWholeToken(deps, search);
    await whole(accounts, onTransfers, yielding);
  };
}

/** Reads all of the token's transfers into memory. */
async function readWholeToken(
  { clickhouse, tables }: TraceDeps,
  search: TracedSearch,
): Promise<ReadTransfers> {
  const byAccount = new Map<Felt, TracedTransfer[]>();
  const add = (account: Felt, transfer: TracedTransfer): void => {
    const transfersOfAccount = byAccount.get(account);
    if (transfersOfAccount === undefined) byAccount.set(account, [transfer]);
    else if (transfersOfAccount.length < MAX_TRANSFERS_PER_ACCOUNT) transfersOfAccount.push(transfer);
  };
  await tracedOfToken(clickhouse, tables, search, (transfers) => {
    for (const transfer of transfers) {
      add(transfer.from, transfer);
      if (transfer.to !== transfer.from) add(transfer.to, transfer);
    }
  });
  return async (accounts, onTransfers, yielding) => {
    for (const account of accounts) {
      onTransfers(byAccount.get(account) ?? []);
      await yielding();
    }
  };
}

async function readByAccounts(
  { clickhouse, tables }: TraceDeps,
  search: TracedSearch & { readonly hasLegs: boolean },
  accounts: readonly Felt[],
  busy: ReadonlySet<Felt>,
  onTransfers: OnTraced,
): Promise<void> {
  const others = accounts.filter((account) => !busy.has(account));
  if (others.length > 0)
    await tracedOfAccounts(clickhouse, tables, { ...search, accounts: others }, onTransfers);
  for (const account of busy)
    await tracedOfBusyAccount(
      clickhouse,
      tables,
      { ...search, account, most: MAX_TRANSFERS_PER_ACCOUNT },
      onTransfers,
    );
}
