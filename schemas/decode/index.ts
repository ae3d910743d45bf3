import { ETH_TOKEN, STRK_TOKEN } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockBody, BlockTransaction, ContractsMap, RawEvent } from '../messages/chain-blocks.ts';
import type { TokenStandard } from '../messages/common.ts';
import { isMalformed, isTokenShaped, decodeEvent } from './event.ts';

/** One item of one token event, independent of the event's layout. */
export interface Transfer {
  token: Felt;
  kind: TokenStandard;
  from: Felt;
  to: Felt;
  /** erc20: the amount; erc721: 1; erc1155: the value; unknown: the raw number, which may be an amount or an id. */
  amount: bigint;
  /** null unless erc721 or erc1155. */
  tokenId: bigint | null;
  /** Position of the event in the block, over the events of all transactions. */
  position: number;
  /** Index of this transfer in a batch event, else 0. */
  item: number;
  txIndex: number;
  eventInTx: number;
  txHash: Felt;
  /**
   * Whether it pays the transaction's fee: the last event of the transaction, of the fee token, amount equal to the actual
   * fee, to the block's sequencer. All must hold. A fee of 0 is not paid, so a transfer of 0 is never a fee.
   */
  isFee: boolean;
  executionStatus: BlockTransaction['execution_status'];
  /** Actual fee of the transaction, in units of `feeToken`. */
  fee: bigint;
  feeToken: Felt;
}

/** A token event that could not be decoded, and why. */
export interface MalformedEvent {
  position: number;
  txHash: Felt;
  event: RawEvent;
  reason: string;
}

/** Both lists are in chain order. */
export interface DecodedBlock {
  transfers: Transfer[];
  malformed: MalformedEvent[];
}

/** Exclusive upper bound of positions; a mainnet block has some thousands of events. */
export const EVENT_INDEX_ITEM_FACTOR = 1_048_576;
/** 2^32 items of 2^20 positions fit in a safe integer. */
const MAX_ITEMS = 2 ** 32;

/** The public `event_index`: unique in its block; equals the position except for later items of a batch. */
export function eventIndex(position: number, item: number): number {
  if (!isIndex(position, EVENT_INDEX_ITEM_FACTOR) || !isIndex(item, MAX_ITEMS)) {
    throw new RangeError(`no event_index for item ${item} at position ${position}`);
  }
  return item * EVENT_INDEX_ITEM_FACTOR + position;
}

function isIndex(value: number, bound: number): boolean {
  return Number.isInteger(value) && value >= 0 && value < bound;
}

const feeTokens: Readonly<Record<BlockTransaction['fee_unit'], Felt>> = { WEI: ETH_TOKEN, FRI: STRK_TOKEN };

/** All transfers of a block, and all token events that could not be decoded. Never throws on events, whatever they contain. */
export function decodeBlock(block: BlockBody, contracts: ContractsMap): DecodedBlock {
  const transfers: Transfer[] = [];
  const malformed: MalformedEvent[] = [];
  let position = -1;
  for (const [txIndex, tx] of block.transactions.entries()) {
    const fee = BigInt(tx.fee);
    const feeToken = feeTokens[tx.fee_unit];
    for (const [eventInTx, event] of tx.events.entries()) {
      position += 1;
      const token = event.from_address;
      const outcome = decodeEvent(event, contracts[token]?.standard ?? 'unknown');
      if (outcome === null) continue;
      if (isMalformed(outcome) || position >= EVENT_INDEX_ITEM_FACTOR) {
        const reason = isMalformed(outcome) ? outcome.reason : `position ${position} has no event_index`;
        malformed.push({ position, txHash: tx.hash, event, reason });
        continue;
      }
      const { from, to, items } = outcome;
      const paysSequencer =
        fee > 0n &&
        eventInTx === tx.events.length - 1 &&
        token === feeToken &&
        to === block.sequencer_address;
      for (const [item, { kind, amount, tokenId }] of items.entries()) {
        transfers.push({
          token,
          kind,
          from,
          to,
          amount,
          tokenId,
          position,
          item,
          txIndex,
          eventInTx,
          txHash: tx.hash,
          isFee: paysSequencer && tokenId === null && amount === fee,
          executionStatus: tx.execution_status,
          fee,
          feeToken,
        });
      }
    }
  }
  return { transfers, malformed };
}

/** Contracts that must be classified before the block can be decoded: those with a token-shaped event. */
export function tokenContracts(block: BlockBody): Felt[] {
  const contracts = new Set<Felt>();
  for (const tx of block.transactions) {
    for (const event of tx.events) if (isTokenShaped(event)) contracts.add(event.from_address);
  }
  return [...contracts];
}
