import { setImmediate as turn } from 'node:timers/promises';

import type { Ledger } from '../../../infra/embedded/starknet/ledger.ts';
import type { TrueTransfer } from '../../../infra/embedded/starknet/render.ts';

/** Counts of the transfers that the simulated chain intended, independent of its events. Addresses are `0x` and 64 digits. */
export type Truth = {
  from: number;
  to: number;
  blocks: number;
  transactions: number;
  events: number;
  transfers: number;
  fees: number;
  malformed: number;
  byToken: Record<string, number>;
  /** Transfers that an account sent or received; a transfer to itself counts once. */
  byAccount: Record<string, number>;
  /** Transfers in each 1,000 heights, by the first of them. */
  byRange: Record<string, number>;
};

export const padded = (value: bigint) => `0x${value.toString(16).padStart(64, '0')}`;

export function emptyTruth(from: number): Truth {
  return {
    from,
    to: from - 1,
    blocks: 0,
    transactions: 0,
    events: 0,
    transfers: 0,
    fees: 0,
    malformed: 0,
    byToken: {},
    byAccount: {},
    byRange: {},
  };
}

export function countBlock(truth: Truth, ledger: Ledger, height: number): void {
  const block = ledger.at(height);
  truth.to = height;
  if (block === null) return;
  truth.blocks++;
  truth.transactions += block.txs.length;
  truth.malformed += block.malformed.length;
  for (const { events } of block.txs) truth.events += events.length;
  const add = (counts: Record<string, number>, key: string) => {
    counts[key] = (counts[key] ?? 0) + 1;
  };
  for (const transfer of block.transfers) {
    truth.transfers++;
    if (transfer.isFee) truth.fees++;
    add(truth.byToken, padded(transfer.token));
    add(truth.byAccount, padded(transfer.from));
    if (transfer.to !== transfer.from) add(truth.byAccount, padded(transfer.to));
    add(truth.byRange, String(Math.floor(height / 1000) * 1000));
  }
}

/** Counts a range, yielding to other work now and then. */
export async function countRange(ledger: Ledger, from: number, to: number): Promise<Truth> {
  const truth = emptyTruth(from);
  for (let height = from; height <= to; height++) {
    countBlock(truth, ledger, height);
    if (height % 64 === 0) await turn();
  }
  return truth;
}

/** A transfer as JSON: addresses padded, numbers decimal. */
export function transferJson(transfer: TrueTransfer): Record<string, unknown> {
  const { token, from, to, tokenId, amount, fee, feeToken, ...rest } = transfer;
  return {
    ...rest,
    token: padded(token),
    from: padded(from),
    to: padded(to),
    tokenId: tokenId === null ? null : tokenId.toString(),
    amount: amount.toString(),
    fee: fee.toString(),
    feeToken: padded(feeToken),
  };
}
