import { chunksOf } from '../../infra/chunks.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { createYielding } from '../../infra/yielding.ts';
import { busyAccounts } from '../../projections/transfer-counts/queries.ts';
import { tracedOfAccounts, tracedOfBusyAccount, tracedOfToken } from '../../projections/transfers/queries.ts';
import type { OnTraced, TracedTransfer } from '../../projections/transfers/queries.ts';
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
/** Up to this many transfers, reading the whole token once is cheaper: each read by accounts scans granules per account. */
const MAX_TRANSFERS_OF_WHOLE_TOKEN = 100_000;
/** Bounds the memory of one answer. */
export const MAX_TRANSFERS = 400_000;
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
    const read =
      trace.transfers <= MAX_TRANSFERS_OF_WHOLE_TOKEN
        ? await readWholeToken(deps, trace)
        : readByAccounts(deps, trace);
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
      for (const accounts of chunksOf(frontier, ACCOUNTS_PER_READ)) {
        if (deps.now() > endsAt) throw tooLong();
        await read(accounts, follow, yielding);
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

/** An account or a transaction is in many transfers: its text is held once. */
function createFound(): Found & { add(transfer: TracedTransfer): TracedTransfer; size(): number } {
  /** By height and event index. */
  const blocks = new Map<number, Map<number, TracedTransfer>>();
  const texts = new Map<string, string>();
  let size = 0;
  const shared = <T extends string>(text: T): T => {
    const known = texts.get(text);
    if (known !== undefined) return known as T;
    texts.set(text, text);
    return text;
  };
  return {
    size: () => size,
    add(transfer) {
      const block = blocks.get(transfer.block) ?? new Map<number, TracedTransfer>();
      blocks.set(transfer.block, block);
      const index = eventIndex(transfer.position, transfer.item);
      const known = block.get(index);
      if (known !== undefined) return known;
      const { from, to, txhash, fee } = transfer;
      const stored = {
        ...transfer,
        from: shared(from),
        to: shared(to),
        txhash: shared(txhash),
        fee: shared(fee),
      };
      block.set(index, stored);
      size += 1;
      return stored;
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

/** Reads all of the token's transfers into memory. */
async function readWholeToken(
  { clickhouse, tables }: TraceDeps,
  { token, upTo }: Trace,
): Promise<ReadTransfers> {
  const byAccount = new Map<Felt, TracedTransfer[]>();
  await tracedOfToken(clickhouse, tables, { token, upTo }, (transfers) => {
    for (const transfer of transfers) {
      for (const account of new Set([transfer.from, transfer.to])) {
        const transfersOfAccount = byAccount.get(account);
        if (transfersOfAccount === undefined) byAccount.set(account, [transfer]);
        else if (transfersOfAccount.length < MAX_TRANSFERS_PER_ACCOUNT) transfersOfAccount.push(transfer);
      }
    }
  });
  return async (accounts, onTransfers, yielding) => {
    for (const account of accounts) {
      onTransfers(byAccount.get(account) ?? []);
      await yielding();
    }
  };
}

function readByAccounts({ clickhouse, tables }: TraceDeps, { token, upTo, hasLegs }: Trace): ReadTransfers {
  return async (accounts, onTransfers) => {
    const busy = await busyAccounts(clickhouse, tables, accounts, MAX_TRANSFERS_PER_ACCOUNT);
    const others = accounts.filter((account) => !busy.has(account));
    if (others.length > 0)
      await tracedOfAccounts(clickhouse, tables, { token, upTo, accounts: others }, onTransfers);
    for (const account of busy) {
      const search = { token, upTo, account, most: MAX_TRANSFERS_PER_ACCOUNT, hasLegs };
      await tracedOfBusyAccount(clickhouse, tables, search, onTransfers);
    }
  };
}
