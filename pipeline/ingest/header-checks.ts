import { blockHash } from '../../schemas/commitment/block-hash.ts';
import { eventCommitment } from '../../schemas/commitment/events.ts';
import { receiptCommitment, transactionCommitment } from '../../schemas/commitment/transactions.ts';
import { FIRST_WITH_COMMITMENTS, isOlderThan } from '../../schemas/commitment/versions.ts';
import { AppError } from '../../schemas/errors.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import type { CallOptions, FetchedBlock } from '../node/types.ts';
import { incomplete, mismatched } from './commitments.ts';
import type { CheckOutcome, CheckSettings, Commitment, Comparison } from './commitments.ts';
import type { IngestNode } from './ports.ts';

type Details = FetchedBlock['details'];
type HeaderCommitment = Exclude<Commitment, 'events'>;

/** Whether a block is not compared with a commitment. */
export type IsLeftOut = (
  block: Pick<BlockBody, 'height' | 'timestamp'>,
  commitment: Commitment,
  options?: CallOptions,
) => boolean;

interface HeaderCheckDeps extends CheckSettings {
  readonly isLeftOut: IsLeftOut;
  /** Blocks as the node returns them. */
  readonly fetch: IngestNode['getBlockWithReceipts'];
}

/** Before any block has matched, so many mismatches in a row have their neighbours compared. */
export const PROBED = 8;
/** Pairs of a commitment and a version that computes it in another way. */
const MAX_CONFIRMED = 100;

/**
 * Compares blocks with their hashes, and their transactions and receipts with the commitments in their headers, and adds the
 * outcomes to the comparisons of the block. Once a block of a Starknet version has matched, a block of that version that does
 * not match is refused. A chain with made-up hashes, or a version that computes them in another way, can be indexed. But once
 * another version has matched, a mismatch is accepted only if a neighbour of the same version does not match either, because
 * any block can name any version.
 */
export function createHeaderCheck({
  checks,
  mode,
  incomplete: policy,
  log,
  isLeftOut,
  fetch,
}: HeaderCheckDeps): (
  block: FetchedBlock,
  details: Details,
  comparisons: Comparison[],
  options: CallOptions | undefined,
) => Promise<FetchedBlock> {
  const confirmed = new Set<string>();
  /** Blocks that lacked data before any block had matched. A node may never return it. */
  let incompletes = 0;
  /** Whether the neighbours confirm that the version computes the commitment in another way. */
  const isConfirmed = async (
    commitment: HeaderCommitment,
    body: BlockBody,
    options: CallOptions | undefined,
  ): Promise<boolean> => {
    const { height, starknet_version: version } = body;
    const key = `${commitment} ${version}`;
    if (confirmed.has(key)) return true;
    if (!noneVerified(commitment, await neighboursOf(fetch, body, options))) return false;
    if (confirmed.size < MAX_CONFIRMED) confirmed.add(key);
    log.warn({ height, commitment, version }, 'commitment not enforced: no block of this version matches');
    return true;
  };
  const isRefused = async (
    commitment: HeaderCommitment,
    body: BlockBody,
    outcome: CheckOutcome,
    options: CallOptions | undefined,
  ): Promise<boolean> => {
    const isRefusable = outcome === 'mismatched' || (outcome === 'incomplete' && policy === 'refuse');
    if (!isRefusable || mode === 'record') return false;
    if (!(await checks.isEnforced(commitment, null))) {
      // Not enforced yet: a neighbour that matches shows that the chain does not make up its commitments.
      const failed = outcome === 'incomplete' ? ++incompletes : checks.mismatchesInARow(commitment) + 1;
      if (failed > PROBED) return false;
      return (await neighboursOf(fetch, body, options)).some((other) => isVerified(commitment, other));
    }
    if (await checks.isEnforced(commitment, body.starknet_version)) return true;
    // Also an incomplete block: any block can name an unknown version.
    return !(await isConfirmed(commitment, body, options));
  };
  return async (block, details, comparisons, options) => {
    const { body } = block;
    const settle = async (
      commitment: HeaderCommitment,
      outcome: CheckOutcome,
      isConclusive = true,
    ): Promise<void> => {
      if (await isRefused(commitment, body, outcome, options)) {
        await checks.refused(body, { commitment, isConclusive: true });
        throw outcome === 'mismatched' ? mismatched(body, commitment) : incomplete(body, commitment);
      }
      if (outcome === 'mismatched' && checks.mismatchesInARow(commitment) === 0)
        log.info({ height: body.height, hash: body.hash, commitment }, 'block commitment mismatch');
      comparisons.push({ commitment, outcome, isConclusive });
    };
    if (isOlderThan(body.starknet_version, FIRST_WITH_COMMITMENTS)) {
      if (mode === 'record' || !(await checks.isAboveVerified(body.height))) return block;
      await checks.refused(body, { commitment: 'block_hash', isConclusive: false });
      throw mismatched(body, 'version');
    }
    const whole = withCommitments(body, details);
    const outcome = hashOutcome(whole);
    await settle('block_hash', outcome);
    const compared = outcome === 'verified' ? whole : body;
    // A match is inconclusive if the hash does not cover the header, although other blocks of the chain have matching hashes.
    const isBound = outcome === 'verified' || !(await checks.isEnforced('block_hash', null));
    for (const commitment of ['transactions', 'receipts'] as const) {
      if (isLeftOut(body, commitment, options)) continue;
      const found = rootOutcome(commitment, compared, details);
      const checked = found === 'verified' && !isBound ? 'incomplete' : found;
      await settle(commitment, checked, body.transactions.length > 0);
    }
    const { header } = compared;
    const eventCommitment = header?.event_commitment ?? block.eventCommitment;
    return { ...block, body: compared, isBound, eventCommitment };
  };
}

/** The neighbours of a block that name the same version, as far as the node returns them. */
async function neighboursOf(
  fetch: HeaderCheckDeps['fetch'],
  { height, starknet_version: version }: BlockBody,
  options: CallOptions | undefined,
): Promise<FetchedBlock[]> {
  const fetchOther = async (other: number): Promise<FetchedBlock | null> =>
    other < 0 ? null : await fetch(other, options).catch(() => null);
  const neighbours = await Promise.all([fetchOther(height - 1), fetchOther(height + 1)]);
  return neighbours.filter((other) => other !== null).filter(({ body }) => body.starknet_version === version);
}

/** Whether at least one of these blocks can be compared, and none matches. */
function noneVerified(commitment: HeaderCommitment, blocks: readonly FetchedBlock[]): boolean {
  return blocks.some((one) => isWhole(commitment, one)) && !blocks.some((one) => isVerified(commitment, one));
}

/** Whether a block can be compared. */
function isWhole(commitment: HeaderCommitment, { body, details }: FetchedBlock): boolean {
  if (commitment === 'block_hash') return hashOutcome(withCommitments(body, details)) !== 'incomplete';
  return rootOutcome(commitment, body, details) !== 'incomplete';
}

/** Whether a block matches, and has the data that the commitment covers. */
function isVerified(commitment: HeaderCommitment, { body, details }: FetchedBlock): boolean {
  if (commitment === 'block_hash') return hashOutcome(withCommitments(body, details)) === 'verified';
  return body.transactions.length > 0 && rootOutcome(commitment, body, details) === 'verified';
}

function hashOutcome(body: BlockBody): CheckOutcome {
  const hash = blockHash(body);
  if (hash === body.hash) return 'verified';
  return hash !== null && !isIncomplete(body) ? 'mismatched' : 'incomplete';
}

function rootOutcome(
  commitment: keyof typeof COMMITMENT_FIELDS,
  body: BlockBody,
  details: Details,
): CheckOutcome {
  const given = body.header?.[COMMITMENT_FIELDS[commitment]];
  const isGiven = given !== undefined && (given !== ZERO_FELT || body.transactions.length === 0);
  const found = isGiven ? compute(commitment, body, details) : null;
  if (found === null) return 'incomplete';
  return found === given ? 'verified' : 'mismatched';
}

const COMMITMENT_FIELDS = { transactions: 'transaction_commitment', receipts: 'receipt_commitment' } as const;

function compute(commitment: keyof typeof COMMITMENT_FIELDS, body: BlockBody, details: Details): Felt | null {
  const given = detailsOf(details);
  if (given === null) return null;
  return commitment === 'transactions'
    ? transactionCommitment(body.starknet_version, body.transactions, given)
    : receiptCommitment(body.transactions, given);
}

/** null: the node does not return them, or not as specified, which is no reason to refuse its blocks. */
function detailsOf(details: Details): ReturnType<NonNullable<Details>> | null {
  try {
    return details?.() ?? null;
  } catch (error) {
    if (error instanceof AppError && error.code === 'NODE_ANSWER_INVALID') return null;
    throw error;
  }
}

/**
 * Nodes return zero for commitments that they do not know. These are computed from the block instead: if the header then hashes
 * to the hash of the block, they are right.
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

/** Whether the header still has zeroes that no true header has; a zero event commitment was computed. */
function isIncomplete({ header, transactions }: BlockBody): boolean {
  if (header === undefined || header.state_diff_commitment === ZERO_FELT) return true;
  const { transaction_commitment, receipt_commitment } = header;
  return transactions.length > 0 && [transaction_commitment, receipt_commitment].includes(ZERO_FELT);
}
