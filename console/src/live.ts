import type { StreamMessage } from 'token-data-service-client';

type BlockMessage = Extract<StreamMessage, { type: 'block' }>['data'];
type TransferMessage = Extract<StreamMessage, { type: 'transfer' }>['data'];

export interface Live {
  /** Newest first. */
  readonly transfers: readonly TransferMessage[];
  /** Newest first. */
  readonly blocks: readonly (BlockMessage & { readonly transfers: number })[];
  /** The highest height known to be accepted on L1; null: none was reported yet. */
  readonly final: number | null;
  readonly error: Error | null;
  /** Transfers of the block whose end has not been sent yet. */
  readonly unended: number;
}

const SHOWN_TRANSFERS = 50;
const SHOWN_BLOCKS = 60;
export const NOTHING: Live = { transfers: [], blocks: [], final: null, error: null, unended: 0 };

/** The state after a message; the blocks that an `undo` names are dropped with their transfers. */
export function applyMessage(live: Live, message: StreamMessage): Live {
  switch (message.type) {
    case 'transfer':
      return {
        ...live,
        transfers: [message.data, ...live.transfers].slice(0, SHOWN_TRANSFERS),
        unended: live.unended + 1,
      };
    case 'block': {
      const block = { ...message.data, transfers: live.unended };
      const blocks = [block, ...live.blocks].slice(0, SHOWN_BLOCKS);
      const isFinal = message.data.finality === 'ACCEPTED_ON_L1';
      const final = isFinal ? Math.max(live.final ?? 0, message.data.height) : live.final;
      return { ...live, blocks, final, unended: 0 };
    }
    case 'undo': {
      const top = message.data.last_valid?.height ?? -1;
      return {
        ...live,
        transfers: live.transfers.filter(({ block }) => block <= top),
        blocks: live.blocks.filter(({ height }) => height <= top),
        unended: 0,
      };
    }
    case 'final':
      return { ...live, final: Math.max(live.final ?? 0, message.data.height) };
  }
}

const RATE_BLOCKS = 20;

/** Transfers a second over the newest blocks; null with fewer than two. */
export function transferRate(blocks: Live['blocks']): number | null {
  const newest = blocks.slice(0, RATE_BLOCKS);
  const [last] = newest;
  const first = newest.at(-1);
  if (last === undefined || first === undefined || last === first) return null;
  const seconds = (Date.parse(last.timestamp) - Date.parse(first.timestamp)) / 1000;
  // Those of the first block came before its time.
  const count = newest.slice(0, -1).reduce((sum, { transfers }) => sum + transfers, 0);
  return seconds <= 0 ? null : count / seconds;
}
