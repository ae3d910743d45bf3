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
  /** Blocks as the node gives them. */
  readonly fetch: IngestNode['getBlockWithReceipts'];
}

/** Mismatches in a row for which the blocks beside them are compared, before any block has matched. */
export const PROBED = 8;
/** Versions that are known to compute a commitment in another way, each for one commitment. */
const MAX_CONFIRMED = 100;

/**
 * Compares blocks with their hashes, and their transactions and receipts with the commitments in their headers, each as far as
 * that is known to be computed in this way, and adds the comparisons to those of the block: from the first block of a Starknet version that matches, a block of the version that
 * does not is refused. A chain that makes up its hashes, or a version that computes them in another way, can be indexed; but where
 * another version has matched, only once a block beside it names the same version and does not match either: any block can name
 * any version.
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
  /** Blocks that lacked something before any block had matched. A node may never give it. */
  let lacking = 0;
  /** A version that computes a commitment in another way does so in each block that has what the commitment is made of. */
  const isConfirmed = async (
    commitment: HeaderCommitment,
    body: BlockBody,
    options: CallOptions | undefined,
  ): Promise<boolean> => {
    const { height, starknet_version: version } = body;
    const key = `${commitment} ${version}`;
    if (confirmed.has(key)) return true;
    const same = await blocksBeside(fetch, body, options);
    if (!isNeverProved(commitment, same)) return false;
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
    if (!(await checks.holds(commitment, null))) {
      // Nothing is known yet: the first blocks are told from those of a chain that makes up its commitments by the ones beside them.
      if (outcome === 'incomplete' ? ++lacking > PROBED : checks.strange(commitment) >= PROBED) return false;
      return (await blocksBeside(fetch, body, options)).some((other) => isProved(commitment, other));
    }
    if (await checks.holds(commitment, body.starknet_version)) return true;
    // Also a block that lacks something: any block can name a version that nobody has seen.
    return !(await isConfirmed(commitment, body, options));
  };
  return async (block, details, comparisons, options) => {
    const { body } = block;
    const settle = async (
      commitment: HeaderCommitment,
      outcome: CheckOutcome,
      proves = true,
    ): Promise<void> => {
      if (await isRefused(commitment, body, outcome, options)) {
        await checks.refused(body, { commitment, proves: true });
        throw outcome === 'mismatched' ? mismatched(body, commitment) : incomplete(body, commitment);
      }
      if (outcome === 'mismatched' && checks.strange(commitment) === 0)
        log.info({ height: body.height, hash: body.hash, commitment }, 'block commitment mismatch');
      comparisons.push({ commitment, outcome, proves });
    };
    if (isOlderThan(body.starknet_version, FIRST_WITH_COMMITMENTS)) {
      if (mode === 'record' || !(await checks.isAboveVerified(body.height))) return block;
      await checks.refused(body, { commitment: 'block_hash', proves: false });
      throw mismatched(body, 'version');
    }
    const whole = withCommitments(body, details);
    const outcome = hashOutcome(whole);
    await settle('block_hash', outcome);
    const compared = outcome === 'verified' ? whole : body;
    // A match with a header that no hash binds says nothing where the hashes of other blocks bind theirs.
    const isBound = outcome === 'verified' || !(await checks.holds('block_hash', null));
    for (const commitment of ['transactions', 'receipts'] as const) {
      if (isLeftOut(body, commitment, options)) continue;
      const found = rootOutcome(commitment, compared, details);
      const proved = found === 'verified' && !isBound ? 'incomplete' : found;
      await settle(commitment, proved, body.transactions.length > 0);
    }
    const { header } = compared;
    const eventCommitment = header?.event_commitment ?? block.eventCommitment;
    return { ...block, body: compared, isBound, eventCommitment };
  };
}

/** The blocks beside one that name the same version, as far as the node gives them. */
async function blocksBeside(
  fetch: HeaderCheckDeps['fetch'],
  { height, starknet_version: version }: BlockBody,
  options: CallOptions | undefined,
): Promise<FetchedBlock[]> {
  const fetchBeside = async (other: number): Promise<FetchedBlock | null> =>
    other < 0 ? null : await fetch(other, options).catch(() => null);
  const beside = await Promise.all([fetchBeside(height - 1), fetchBeside(height + 1)]);
  return beside.filter((other) => other !== null).filter(({ body }) => body.starknet_version === version);
}

/** Whether a block of these can be compared, and none matches. */
function isNeverProved(commitment: HeaderCommitment, blocks: readonly FetchedBlock[]): boolean {
  return blocks.some((one) => isWhole(commitment, one)) && !blocks.some((one) => isProved(commitment, one));
}

/** Whether a block can be compared. */
function isWhole(commitment: HeaderCommitment, { body, details }: FetchedBlock): boolean {
  if (commitment === 'block_hash') return hashOutcome(withCommitments(body, details)) !== 'incomplete';
  return rootOutcome(commitment, body, details) !== 'incomplete';
}

/** Whether a block matches, and has what the commitment is made of. */
function isProved(commitment: HeaderCommitment, { body, details }: FetchedBlock): boolean {
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
