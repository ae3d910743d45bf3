import { toFelt, ZERO_FELT } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockTransaction } from '../messages/chain-blocks.ts';
import { starknetKeccak } from './keccak.ts';
import { feltOf, hashFelts } from './poseidon.ts';
import type { Digest } from './poseidon.ts';
import { rootOf } from './tree.ts';
import { isOlderThan } from './versions.ts';

/** What a block commits to of a transaction and its receipt beside the log's fields; null where the node does not give it. */
export interface TransactionDetails {
  readonly signature: readonly Felt[] | null;
  readonly messages: readonly L1Message[] | null;
  readonly revertReason: string | null;
  readonly l1Gas: number | null;
  readonly l1DataGas: number | null;
}

export interface L1Message {
  readonly from_address: Felt;
  readonly to_address: Felt;
  readonly payload: readonly Felt[];
}

export type CommittedTransaction = Pick<BlockTransaction, 'hash' | 'fee' | 'execution_status'>;
type Leaf = (transaction: CommittedTransaction, details: TransactionDetails) => Digest | null;

/** From this version on, a transaction without a signature is hashed without one; before, with a zero. */
const FIRST_WITH_EMPTY_SIGNATURES = [0, 13, 4] as const;

/** The `transaction_commitment` of a block's header, from Starknet 0.13.2 on; null if a signature is missing. */
export function transactionCommitment(
  version: string,
  transactions: readonly CommittedTransaction[],
  details: readonly TransactionDetails[],
): Felt | null {
  const empty = isOlderThan(version, FIRST_WITH_EMPTY_SIGNATURES) ? [ZERO_FELT] : [];
  return commitmentOf(transactions, details, ({ hash }, { signature }) =>
    signature === null ? null : hashFelts([hash, ...(signature.length === 0 ? empty : signature)]),
  );
}

/** The `receipt_commitment` of a block's header, from Starknet 0.13.2 on; null if a part of a receipt is missing. */
export function receiptCommitment(
  transactions: readonly CommittedTransaction[],
  details: readonly TransactionDetails[],
): Felt | null {
  return commitmentOf(transactions, details, receiptLeaf);
}

function receiptLeaf(
  { hash, fee, execution_status }: CommittedTransaction,
  { messages, revertReason, l1Gas, l1DataGas }: TransactionDetails,
): Digest | null {
  const isReverted = execution_status === 'REVERTED';
  if (messages === null || l1Gas === null || l1DataGas === null) return null;
  if (isReverted && revertReason === null) return null;
  return hashFelts([
    hash,
    toFelt(BigInt(fee)),
    messagesHash(messages),
    isReverted ? starknetKeccak(revertReason ?? '') : ZERO_FELT,
    // The place of L2 gas, which no version commits to.
    ZERO_FELT,
    numberOf(l1Gas),
    numberOf(l1DataGas),
  ]);
}

function messagesHash(messages: readonly L1Message[]): Felt {
  return messages.length === 0
    ? NO_MESSAGES
    : feltOf(
        hashFelts([
          numberOf(messages.length),
          ...messages.flatMap(({ from_address, to_address, payload }) => [
            from_address,
            to_address,
            numberOf(payload.length),
            ...payload,
          ]),
        ]),
      );
}

const numberOf = (value: number): Felt => toFelt(BigInt(value));
/** Of nearly all transactions. */
const NO_MESSAGES = feltOf(hashFelts([ZERO_FELT]));

function commitmentOf(
  transactions: readonly CommittedTransaction[],
  details: readonly TransactionDetails[],
  leafOf: Leaf,
): Felt | null {
  const leaves: Digest[] = [];
  for (const [index, transaction] of transactions.entries()) {
    const detail = details[index];
    const leaf = detail === undefined ? null : leafOf(transaction, detail);
    if (leaf === null) return null;
    leaves.push(leaf);
  }
  return rootOf(leaves);
}
