import { ETH_TOKEN, STRK_TOKEN } from '../felt.ts';
import type { Felt } from '../felt.ts';
import type { BlockBody, BlockTransaction, ContractsMap, RawEvent } from '../messages/chain-blocks.ts';
import type { TokenStandard } from '../messages/common.ts';
import { isMalformed, isTokenShaped, readEvent } from './event.ts';

/** One item of one token event, in the same form whatever the layout was. */
export interface Transfer {
  token: Felt;
  kind: TokenStandard;
  from: Felt;
  to: Felt;
  /** erc20: the amount; erc721: 1; erc1155: the value; unknown: the raw number, of which nothing more can be told. */
  amount: bigint;
  /** null unless erc721 or erc1155. */
  tokenId: bigint | null;
  /** Of the event in the block, counting all events of all transactions. */
  position: number;
  /** Of this transfer in a batch event, else 0. */
  item: number;
  txIndex: number;
  eventInTx: number;
  txHash: Felt;
  /**
   * It pays the transaction's fee: the last event of its transaction, from the token the fee was paid in, of the actual fee,
   * to the block's sequencer; all of them, else false. Where the fee is 0 none was paid, so a transfer of 0 is not one.
   */
  isFee: boolean;
  executionStatus: BlockTransaction['execution_status'];
  /** Actual fee of the transaction, in `feeToken`. */
  fee: bigint;
  feeToken: Felt;
}

/** A token event that could not be read, and why. */
export interface MalformedEvent {
  position: number;
  txHash: Felt;
  event: RawEvent;
  reason: string;
}

/** Both lists are in the order of the chain. */
export interface DecodedBlock {
  transfers: Transfer[];
  malformed: MalformedEvent[];
}

/** Positions in a block are below it; a block of mainnet has some thousands of events. */
export const EVENT_INDEX_ITEM_FACTOR = 1_048_576;
/** 2^32 items of 2^20 positions stay within a safe integer. */
const MAX_ITEMS = 2 ** 32;

/** The public `event_index`: unique in its block, and the position itself but for the later items of a batch. */
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

/** Every transfer of a block, and every token event that could not be read. Pure, and never throws on what a contract emits. */
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
      const outcome = readEvent(event, contracts[token]?.standard ?? 'unknown');
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

/** The contracts whose standard must be known before a block can be decoded: those with an event of a token's shape. */
export function tokenContracts(block: BlockBody): Felt[] {
  const contracts = new Set<Felt>();
  for (const tx of block.transactions) {
    for (const event of tx.events) if (isTokenShaped(event)) contracts.add(event.from_address);
  }
  return [...contracts];
}
