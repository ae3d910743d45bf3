import type { StreamMessage } from 'token-data-service-client';

type BlockMessage = Extract<StreamMessage, { type: 'block' }>['data'];
type TransferMessage = Extract<StreamMessage, { type: 'transfer' }>['data'];
type TransferKey = Pick<TransferMessage, 'block' | 'event_index' | 'txhash'>;

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
  /** Blocks above this height were reverted since the stream began; Infinity: none was. */
  readonly lastValid: number;
  /** No block has come for some seconds, not even the one with which the stream begins. */
  readonly isSilent: boolean;
}

/** A list under them is reloaded when there are more, which closes the further pages that a reader has opened. */
const KEPT_TRANSFERS = 500;
const KEPT_BLOCKS = 60;
export const NOTHING: Live = {
  transfers: [],
  blocks: [],
  final: null,
  error: null,
  unended: 0,
  lastValid: Infinity,
  isSilent: false,
};

/** The state after a message; the blocks that an `undo` names are dropped with their transfers. */
export function applyMessage(live: Live, message: StreamMessage): Live {
  switch (message.type) {
    case 'transfer':
      return {
        ...live,
        transfers: [message.data, ...live.transfers].slice(0, KEPT_TRANSFERS),
        unended: live.unended + 1,
      };
    case 'block': {
      const block = { ...message.data, transfers: live.unended };
      const blocks = [block, ...live.blocks].slice(0, KEPT_BLOCKS);
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
        lastValid: Math.min(live.lastValid, top),
      };
    }
    case 'final':
      return { ...live, final: Math.max(live.final ?? 0, message.data.height) };
  }
}

/** A stream has a message for every block, also of a token that nobody has transferred for a million blocks. */
const MAX_BLOCKS_BEFORE = 1000;
const BLOCKS_BEFORE = 16;

/** The height at which the stream of a token begins: that of its newest transfer, which is listed, or near the head. */
export const streamStart = (newest: number, head: number): number =>
  newest < head - MAX_BLOCKS_BEFORE ? head - BLOCKS_BEFORE : newest;

export const isSame = (a: TransferKey, b: TransferKey): boolean =>
  a.block === b.block && a.event_index === b.event_index && a.txhash === b.txhash;

/**
 * The live transfers newer than a list, if the stream began at `streamStart` of the newest one listed.
 *
 * @param newest undefined: the list is empty
 * @param start where the stream began
 * @returns `isOutdated`: the list must be reloaded, because its newest transfer was reverted or newer ones were not kept
 */
export function newerThan(
  { transfers, blocks, lastValid }: Live,
  newest: TransferKey | undefined,
  start = newest?.block ?? 0,
): { readonly newer: Live['transfers']; readonly isOutdated: boolean } {
  if (newest === undefined) return { newer: transfers, isOutdated: transfers.length > 0 };
  const { block } = newest;
  const at = transfers.findIndex((row) => isSame(row, newest));
  return {
    newer: at < 0 ? transfers.filter((row) => row.block > block) : transfers.slice(0, at),
    isOutdated:
      lastValid < block ||
      (start > block
        ? transfers.length === KEPT_TRANSFERS
        : // Before the end of its block, the newest transfer may still arrive.
          at < 0 && blocks.length > 0),
  };
}

/** The transfers with their state at the newest height accepted on L1, which may have risen since they were read. */
export const withFinality = <T extends Pick<TransferMessage, 'block' | 'status'>>(
  rows: readonly T[],
  final: Live['final'],
): T[] => rows.map((row) => (row.block <= (final ?? -1) ? { ...row, status: 'ACCEPTED_ON_L1' } : row));

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
