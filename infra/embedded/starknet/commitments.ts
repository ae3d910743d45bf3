import { blockHash } from '../../../schemas/commitment/block-hash.ts';
import { eventCommitment } from '../../../schemas/commitment/events.ts';
import { receiptCommitment, transactionCommitment } from '../../../schemas/commitment/transactions.ts';
import type { L1Message, TransactionDetails } from '../../../schemas/commitment/transactions.ts';
import { parseFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { CommittedTx } from './envelope.ts';
import { hexOf } from './hash.ts';

/** The commitments in a header to the transactions of the block. */
export type Commitments = {
  transaction_commitment: string;
  event_commitment: string;
  receipt_commitment: string;
};

type Price = { price_in_fri: string; price_in_wei: string };

/** The header of a block that its hash commits to, as it is served. */
export type HashedHeader = Commitments & {
  block_number: number;
  new_root: string;
  timestamp: number;
  sequencer_address: string;
  l1_gas_price: Price;
  l1_data_gas_price: Price;
  l2_gas_price: Price;
  l1_da_mode: 'BLOB';
  starknet_version: string;
  state_diff_commitment: string;
  state_diff_length: number;
  event_count: number;
  transaction_count: number;
};

export function commitmentsTo(version: string, txs: readonly CommittedTx[]): Commitments {
  const transactions = txs.map(({ hash, receipt, events }) => ({
    hash: felt(hash),
    fee: receipt.actual_fee.amount,
    execution_status: receipt.execution_status,
    events: events.map(({ from_address, keys, data }) => ({
      from_address: felt(from_address),
      keys: keys.map(felt),
      data: data.map(felt),
    })),
  }));
  const details = txs.map(detailsOf);
  return {
    transaction_commitment: unpadded(transactionCommitment(version, transactions, details)),
    event_commitment: unpadded(eventCommitment(transactions)),
    receipt_commitment: unpadded(receiptCommitment(transactions, details)),
  };
}

function detailsOf({ transaction, receipt }: CommittedTx): TransactionDetails {
  return {
    // Transactions of the L1 have none.
    signature: transaction.signature?.map(felt) ?? [],
    messages: receipt.messages_sent.map((message): L1Message => ({
      from_address: felt(message.from_address),
      to_address: felt(message.to_address),
      payload: message.payload.map(felt),
    })),
    revertReason: receipt.revert_reason ?? null,
    l1Gas: receipt.execution_resources.l1_gas,
    l1DataGas: receipt.execution_resources.l1_data_gas,
  };
}

export function hashOf(header: HashedHeader, parentHash: string): string {
  const { block_number, timestamp, sequencer_address, starknet_version } = header;
  const { transaction_count, event_count, new_root, state_diff_commitment } = header;
  const hash = blockHash({
    height: block_number,
    parent_hash: felt(parentHash),
    timestamp,
    sequencer_address: felt(sequencer_address),
    starknet_version,
    transaction_count,
    event_count,
    header: {
      ...header,
      new_root: felt(new_root),
      state_diff_commitment: felt(state_diff_commitment),
      transaction_commitment: felt(header.transaction_commitment),
      event_commitment: felt(header.event_commitment),
      receipt_commitment: felt(header.receipt_commitment),
    },
  });
  return unpadded(hash);
}

function felt(hex: string): Felt {
  const found = parseFelt(hex);
  if (found === null) throw new RangeError(`not a felt: ${hex}`);
  return found;
}

function unpadded(found: Felt | null): string {
  if (found === null) throw new RangeError('a block whose hash or commitments cannot be computed');
  return hexOf(BigInt(found));
}
