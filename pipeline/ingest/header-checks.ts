import { blockHash } from '../../schemas/commitment/block-hash.ts';
import type { ComputeCommitment } from '../../schemas/commitment/compute.ts';
import type { TransactionDetails } from '../../schemas/commitment/transactions.ts';
import { FIRST_WITH_COMMITMENTS, isOlderThan } from '../../schemas/commitment/versions.ts';
import { AppError } from '../../schemas/errors.ts';
import { ZERO_FELT } from '../../schemas/felt.ts';
import type { Felt } from '../../schemas/felt.ts';
import type { BlockBody } from '../../schemas/messages/chain-blocks.ts';
import type { CallOptions, FetchedBlock } from '../node/types.ts';
import { incomplete, mismatched } from './commitments.ts';
import type { CheckOutcome, CheckSettings, Commitment, CommitmentComparison } from './commitments.ts';
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
export function createHeaderCheck(
  deps: HeaderCheckDeps,
): (
  block: FetchedBlock,
  details: Details,
  comparisons: CommitmentComparison[],
  options: CallOptions | undefined,
) => Promise<FetchedBlock> {
  const { checks, mode, incomplete: policy, log, isLeftOut, fetch } = deps;
  const { withCommitments, rootOutcome, compareAll } = createComparisons(deps.compute);
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
    const neighbours = await neighboursOf(fetch, body, options);
    const { isAnyWhole, isAnyVerified } = await compareAll(commitment, neighbours);
    if (isAnyVerified || !isAnyWhole) return false;
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
      return (await compareAll(commitment, await neighboursOf(fetch, body, options))).isAnyVerified;
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
    const whole = await withCommitments(body, details);
    const outcome = hashOutcome(whole);
    await settle('block_hash', outcome);
    const compared = outcome === 'verified' ? whole : body;
    // A match is inconclusive if the hash does not cover the header, although other blocks of the chain have matching hashes.
    const isBound = outcome === 'verified' || !(await checks.isEnforced('block_hash', null));
    for (const commitment of ['transactions', 'receipts'] as const) {
      if (isLeftOut(body, commitment, options)) continue;
      const found = await rootOutcome(commitment, compared, details);
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

/** Comparisons of a block with its hash, and with the commitments to its transactions and receipts. */
function createComparisons(computeCommitment: ComputeCommitment) {
  const compute = async (
    of: RootCommitment,
    { starknet_version: version, transactions }: BlockBody,
    given: Details,
  ): Promise<Felt | null> => {
    const details = detailsOf(given);
    if (details === null) return null;
    // Without the events, which are most of a block: the input is copied to a thread.
    const committed = transactions.map(({ hash, fee, execution_status }) => ({
      hash,
      fee,
      execution_status,
    }));
    return await computeCommitment({ of, version, transactions: committed, details });
  };

  const rootOutcome = async (
    commitment: RootCommitment,
    body: BlockBody,
    details: Details,
  ): Promise<CheckOutcome> => {
    const given = body.header?.[COMMITMENT_FIELDS[commitment]];
    const isGiven = given !== undefined && (given !== ZERO_FELT || body.transactions.length === 0);
    const found = isGiven ? await compute(commitment, body, details) : null;
    if (found === null) return 'incomplete';
    return found === given ? 'verified' : 'mismatched';
  };

  /**
   * Nodes return zero for commitments that they do not know. These are computed from the block instead: if the header then
   * hashes to the hash of the block, they are right.
   */
  const withCommitments = async (body: BlockBody, details: Details): Promise<BlockBody> => {
    const { header, transactions } = body;
    if (header === undefined || transactions.length === 0) return body;
    // The hash could not be computed either way.
    if (header.state_diff_commitment === ZERO_FELT) return body;
    const changed = { ...header };
    if (header.event_commitment === ZERO_FELT)
      changed.event_commitment = (await computeCommitment({ of: 'events', transactions })) ?? ZERO_FELT;
    for (const commitment of ['transactions', 'receipts'] as const) {
      const field = COMMITMENT_FIELDS[commitment];
      if (header[field] === ZERO_FELT)
        changed[field] = (await compute(commitment, body, details)) ?? ZERO_FELT;
    }
    return { ...body, header: changed };
  };

  /** The outcomes of several blocks for one commitment. */
  const compareAll = async (
    commitment: HeaderCommitment,
    blocks: readonly FetchedBlock[],
  ): Promise<{ readonly isAnyWhole: boolean; readonly isAnyVerified: boolean }> => {
    const compared = await Promise.all(
      blocks.map(async ({ body, details }) => {
        const outcome =
          commitment === 'block_hash'
            ? hashOutcome(await withCommitments(body, details))
            : await rootOutcome(commitment, body, details);
        // A block without transactions matches on any chain.
        const isConclusive = commitment === 'block_hash' || body.transactions.length > 0;
        return { isWhole: outcome !== 'incomplete', isVerified: outcome === 'verified' && isConclusive };
      }),
    );
    return {
      isAnyWhole: compared.some(({ isWhole }) => isWhole),
      isAnyVerified: compared.some(({ isVerified }) => isVerified),
    };
  };
  return { withCommitments, rootOutcome, compareAll };
}

type RootCommitment = keyof typeof COMMITMENT_FIELDS;

const COMMITMENT_FIELDS = { transactions: 'transaction_commitment', receipts: 'receipt_commitment' } as const;

function hashOutcome(body: BlockBody): CheckOutcome {
  const hash = blockHash(body);
  if (hash === body.hash) return 'verified';
  return hash !== null && !isIncomplete(body) ? 'mismatched' : 'incomplete';
}

/** null: the node does not return them, or not as specified, which is no reason to refuse its blocks. */
function detailsOf(details: Details): readonly TransactionDetails[] | null {
  try {
    return details?.() ?? null;
  } catch (error) {
    if (error instanceof AppError && error.code === 'NODE_ANSWER_INVALID') return null;
    throw error;
  }
}

/** Whether the header still has zeroes that no true header has; a zero event commitment was computed. */
function isIncomplete({ header, transactions }: BlockBody): boolean {
  if (header === undefined || header.state_diff_commitment === ZERO_FELT) return true;
  const { transaction_commitment, receipt_commitment } = header;
  return transactions.length > 0 && [transaction_commitment, receipt_commitment].includes(ZERO_FELT);
}
