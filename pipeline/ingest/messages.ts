import { decodeBlock } from '../../schemas/decode/index.ts';
import type { MalformedEvent } from '../../schemas/decode/index.ts';
import type {
  BlockAccepted,
  BlockBody,
  BlockCause,
  BlockReverted,
  ChainBlocksMessage,
  ContractsMap,
} from '../../schemas/messages/chain-blocks.ts';
import type { QuarantineMessage } from '../../schemas/messages/quarantine.ts';
import { partitionOfHeight } from '../../schemas/topics.ts';

export interface Stamp {
  readonly seq: number;
  readonly cause: BlockCause;
  readonly chunk: string;
}

export function acceptedMessage(block: BlockBody, contracts: ContractsMap, stamp: Stamp): BlockAccepted {
  return { type: 'block.accepted', v: 1, ...stamp, block, contracts };
}

export function revertedMessage(block: BlockBody, contracts: ContractsMap, stamp: Stamp): BlockReverted {
  return { type: 'block.reverted', v: 1, ...stamp, block, contracts };
}

/** All messages about one height go to one partition, in the order they are sent. */
export function outgoing(message: ChainBlocksMessage) {
  const { height } = message.block;
  return { value: message, key: String(height), partition: partitionOfHeight(height) };
}

export function malformedEvents(block: BlockBody, contracts: ContractsMap): MalformedEvent[] {
  return decodeBlock(block, contracts).malformed;
}

export function quarantineId(block: BlockBody, event: MalformedEvent): string {
  return `${block.hash}:${event.position}`;
}

export function quarantined(block: BlockBody, event: MalformedEvent, now: number): QuarantineMessage {
  return {
    type: 'event.quarantined',
    v: 1,
    id: quarantineId(block, event),
    reason: event.reason,
    block: block.height,
    block_hash: block.hash,
    position: event.position,
    transaction_hash: event.txHash,
    event: event.event,
    quarantined_at: now,
  };
}
