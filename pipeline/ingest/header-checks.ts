import { blockHash } from '../../schemas/commitment/block-hash.ts';
import { eventCommitment } from '../../schemas/commitment/events.ts';
import { receiptCommitment, transactionCommitment } from '../../schemas/commitment/transactions.ts';
import { FIRST_WITH_COMMITMENTS, isOlderThan } from '../../schemas/commitment/versions.ts';
import { AppError } from '../../schemas/errors.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import type { FetchedBlock } from '../node/types.ts';
import { incomplete, mismatched } from './commitments.ts';
import type { CheckOutcome, CheckSettings, Commitment } from './commitments.ts';

type Details = FetchedBlock['details'];

/**
 * Compares blocks with their hashes, and their transactions and receipts with the commitments in their headers, each as far as
 * that is known to be computed in this way: from the first block of a Starknet version that matches, a block of the version that
 * does not is refused. A chain that makes up its hashes, or a version that computes them in another way, can be indexed.
 */
export function createHeaderCheck(
  { checks, mode, incomplete: policy, log }: CheckSettings,
  isLeftOut: (height: number, commitment: Commitment) => boolean,
): (block: FetchedBlock, details: Details) => Promise<FetchedBlock> {
  const settle = async (
    commitment: Commitment,
    body: BlockBody,
    outcome: CheckOutcome,
    proves = true,
  ): Promise<void> => {
    const isRefusable = outcome === 'mismatched' || (outcome === 'incomplete' && policy === 'refuse');
    if (isRefusable && mode !== 'record' && (await checks.holds(commitment, body.starknet_version))) {
      await checks.count(commitment, body, 'refused', true);
      throw outcome === 'mismatched' ? mismatched(body, commitment) : incomplete(body, commitment);
    }
    if (outcome === 'mismatched' && checks.strange(commitment) === 0)
      log.info({ height: body.height, hash: body.hash, commitment }, 'a block does not match');
    await checks.count(commitment, body, outcome, proves);
  };
  return async (block, details) => {
    const { body } = block;
    if (isOlderThan(body.starknet_version, FIRST_WITH_COMMITMENTS)) {
      if (mode === 'record' || !(await checks.isAboveVerified(body.height))) return block;
      await checks.count('block_hash', body, 'refused', false);
      throw mismatched(body, 'version');
    }
    const whole = withCommitments(body, details);
    const hash = blockHash(whole);
    const isWhole = hash !== null && !isIncomplete(whole);
    await settle('block_hash', body, hash === body.hash ? 'verified' : isWhole ? 'mismatched' : 'incomplete');
    const compared = hash === body.hash ? whole : body;
    for (const commitment of ['transactions', 'receipts'] as const) {
      if (isLeftOut(body.height, commitment)) continue;
      const given = compared.header?.[COMMITMENT_FIELDS[commitment]];
      const hasTransactions = body.transactions.length > 0;
      const isGiven = given !== undefined && (given !== ZERO_FELT || !hasTransactions);
      const found = isGiven ? compute(commitment, body, details) : null;
      const outcome = found === null ? 'incomplete' : found === given ? 'verified' : 'mismatched';
      await settle(commitment, body, outcome, hasTransactions);
    }
    const { header } = compared;
    return { ...block, body: compared, eventCommitment: header?.event_commitment ?? block.eventCommitment };
  };
}

const COMMITMENT_FIELDS = { transactions: 'transaction_commitment', receipts: 'receipt_commitment' } as const;

function compute(commitment: keyof typeof COMMITMENT_FIELDS, body: BlockBody, details: Details): Felt | null {
  const given = detailsOf(details);
  if (given === null) return null;
  return commitment === 'transactions'
    ? transactionCommitment(body.starknet_version, body.transactions, given)
    : receiptCommitment(body.transactions, given);
}

/** null: the node does not give them, or in another form than the specification's, which is no reason to refuse its blocks. */
function detailsOf(details: Details): ReturnType<NonNullable<Details>> | null {
  try {
    return details?.() ?? null;
  } catch (error) {
    if (error instanceof AppError && error.code === 'NODE_ANSWER_INVALID') return null;
    throw error;
  }
}

/**
 * Nodes show zero for commitments that they do not know. They are computed from the block instead: if the header then has the
 * hash of the block, they are the true ones, as only the true header has it.
 */
function withCommitments(body: BlockBody, details: Details): BlockBody {
  const { header, transactions } = body;
  if (header === undefined || transactions.length === 0) return body;
  // The hash could not be computed either way.
  if (header.state_diff_commitment === ZERO_FELT) return body;
  const changed = { ...header };
  if (header.event_commitment === ZERO_FELT) changed.event_commitment = eventCommitment(transactions);
  for (const commitment of ['transactions', 'receipts'] as const) {
    const field = COMMITMENT_FIELDS[commitment];
    if (header[field] === ZERO_FELT) changed[field] = compute(commitment, body, details) ?? ZERO_FELT;
  }
  return { ...body, header: changed };
}

/** Whether zeroes are left that no true header has; that of the events was computed. */
function isIncomplete({ header, transactions }: BlockBody): boolean {
  if (header === undefined || header.state_diff_commitment === ZERO_FELT) return true;
  const { transaction_commitment, receipt_commitment } = header;
  return transactions.length > 0 && [transaction_commitment, receipt_commitment].includes(ZERO_FELT);
}
