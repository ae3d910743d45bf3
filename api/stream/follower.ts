import { digestOf } from '../http/cursor-digest.ts';
import { readBlocks } from './blocks.ts';
import type { BlockReading, StreamedBlock, Wanted } from './blocks.ts';
import { NEWEST_POSITION, endCursor, encodeCursor } from './cursor.ts';
import type { StreamPosition } from './cursor.ts';
import { messagesOf, sharedMessagesOf } from './messages.ts';
import type { Given, Message } from './messages.ts';
import type { EndReason, OpenStream } from './open-streams.ts';
import type { Tail, TailView } from './tail.ts';
import type { BlockPoint, Undo } from './undo.ts';

/** Where a stream begins. `null`: with what comes after the newest block. */
export type StreamStart = StreamPosition | null;

export interface Follower {
  /** The next messages if they follow from the newest blocks, which are in memory; null: they must be read. */
  held(): readonly Message[] | null;
  /** The next messages; none: nothing is new. */
  read(): Promise<readonly Message[]>;
  /** A cursor before the first message; while nothing is indexed, before the first new one. */
  start(): string;
  /** Resolves when there may be new messages, or after `ms`, or when the signal fires. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
  /** The last message of a stream that the service ends, after the one with this cursor; null: none was sent. */
  end(reason: EndReason, cursor: string | null): Message;
}

export interface FollowerOptions extends Wanted {
  readonly tail: Tail;
  readonly stream: Pick<OpenStream, 'enterHistory' | 'leaveHistory'>;
  /** For one read of history. */
  readonly reading: () => Promise<BlockReading>;
  /** Only what is accepted on L1. */
  readonly isFinal: boolean;
  /** The client takes all there is: history is read ahead. */
  readonly isEndless: boolean;
  /** Digest of filters and finality. */
  readonly digest: Buffer;
  readonly start: StreamStart;
}

const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 5000;

/** Heights that are read at a time: more while they hold few transfers. */
const FIRST_HEIGHTS = 64;
const MIN_HEIGHTS = 16;
const MAX_HEIGHTS = 4096;
const FEW_TRANSFERS = 1500;
const MANY_TRANSFERS = 6000;

/**
 * Follows the chain for one client, height by height: history from the tables, the newest blocks from the tail. Every block is
 * the child of the last one that the client has; where that was reverted, an `undo` is sent first.
 */
export function createFollower(options: FollowerOptions): Follower {
  const { tail, stream, isFinal, digest } = options;
  let position: StreamPosition | null = options.start;
  /** Where the first read began; null: none has. */
  let begun: StreamPosition | null = options.start;
  let version = 0;
  /** How long to wait for a block that the view has and that could not be read, because it is being reverted. */
  let backoffMs = MIN_BACKOFF_MS;
  let isBehind = false;
  const readFrom = createBlockReader(options);

  const undone = async (before: StreamPosition): Promise<Message | null> => {
    if (isFinal || before.last === null) return null;
    const undo = await tail.undoOf(before.last);
    if (undo === null || undo === 'unknown') return null;
    const { lastValid, from, to, hashes, seq } = undo;
    position = afterUndo(undo, before);
    const cursor = encodeCursor(position, digest, 'block', seq);
    const data = { last_valid: lastValid, last_valid_cursor: cursor, from, to, hashes };
    return {
      type: 'undo',
      // The blocks of one reorg may be undone in parts, all with its version.
      cursor: encodeCursor(position, digest, 'undo', digestOf(`${seq} ${from} ${to}`).readUIntBE(0, 6)),
      data: JSON.stringify(data),
    };
  };

  const give = ({ messages, position: behind }: Given): readonly Message[] => {
    position = behind;
    return messages;
  };
  return {
    held() {
      const view = tail.newest();
      if (view === null || position === null || position.last === null || isBehind) return null;
      if (isGone(view, position.last)) return null;
      const top = topOf(view, isFinal);
      const held = position.next > top ? [] : heldBlocks(view, position.next, top);
      if (held === null || !isLinked(position, held[0])) return null;
      version = view.version;
      stream.leaveHistory();
      return give(sharedMessagesOf(position, { view, held, filter: options.filter }, digest));
    },
    async read() {
      const view = await tail.view();
      version = view.version;
      position = startIn(view, position ?? newestPosition(view, isFinal));
      if (position === null) return [];
      begun ??= position;
      const { last, next } = position;
      const undo = isGone(view, last) ? await undone(position) : null;
      if (undo !== null) return [undo];
      const top = topOf(view, isFinal);
      const held = next > top ? null : heldBlocks(view, next, top);
      const isHistory = held === null && next <= top;
      if (isHistory) await stream.enterHistory();
      else stream.leaveHistory();
      const found = isHistory ? await readFrom(view, next, top) : held;
      isBehind = found?.length === 0;
      if (!isLinked(position, found?.[0])) {
        const late = await undone(position);
        isBehind = late === null;
        return late === null ? [] : [late];
      }
      return give(
        held === null
          ? messagesOf(position, found ?? [], view.l1Height, digest)
          : sharedMessagesOf(position, { view, held, filter: options.filter }, digest),
      );
    },
    async wait(ms, signal) {
      await tail.changed(version, isBehind ? Math.min(ms, backoffMs) : ms, signal);
      backoffMs = isBehind ? Math.min(2 * backoffMs, MAX_BACKOFF_MS) : MIN_BACKOFF_MS;
    },
    start: () => startCursor(begun, digest),
    end(reason, cursor) {
      stream.leaveHistory();
      return {
        type: 'end',
        // After the last message that was sent; where none was, it begins where the stream began.
        cursor: cursor === null ? startCursor(begun, digest) : endCursor(cursor),
        data: JSON.stringify({ reason }),
      };
    },
  };
}

const startCursor = (begun: StreamPosition | null, digest: Buffer): string =>
  encodeCursor(begun ?? NEWEST_POSITION, digest, 'end', 0);

/** Reads the next blocks from a height on, up to `top` at most; empty if they cannot be read yet. */
type BlockReader = (view: TailView, next: number, top: number) => Promise<readonly StreamedBlock[]>;

function createBlockReader(
  options: Pick<FollowerOptions, 'reading' | 'filter' | 'source' | 'isEndless'>,
): BlockReader {
  let span = FIRST_HEIGHTS;
  /** What comes after the blocks returned last: read while the client takes those. */
  let ahead: { readonly from: number; readonly blocks: Promise<readonly StreamedBlock[]> } | null = null;
  const read = async (from: number, top: number): Promise<readonly StreamedBlock[]> => {
    const heights = { from, to: Math.min(top, from + span - 1) };
    const reading = await options.reading();
    const blocks = await readBlocks(reading, options, heights).catch((error: unknown) => {
      // So many heights may be more than ClickHouse reads within its limits.
      span = Math.max(1, span >> 2);
      throw error;
    });
    const transfers = blocks.reduce((sum, one) => sum + one.transfers.length, 0);
    if (transfers > MANY_TRANSFERS) span = Math.max(MIN_HEIGHTS, span >> 1);
    else if (transfers < FEW_TRANSFERS) span = Math.min(MAX_HEIGHTS, span << 1);
    return blocks;
  };
  return async (view, next, top) => {
    const reading = ahead?.from === next ? ahead.blocks : read(next, top);
    ahead = null;
    const blocks = await reading;
    const from = next + blocks.length;
    // Not what may still be reverted soon.
    const end = Math.min(top, (view.blocks[0]?.block.height ?? 0) - 1);
    if (options.isEndless && blocks.length > 0 && from <= end) {
      ahead = { from, blocks: read(from, end) };
      // An error is thrown where the blocks are awaited.
      ahead.blocks.catch(() => {});
    }
    return blocks;
  };
}

function afterUndo({ lastValid, from }: Undo, { final, floor }: StreamPosition): StreamPosition {
  const next = lastValid === null ? from : lastValid.height + 1;
  // A reorg deeper than where the client began gives it nothing from below.
  if (next < floor) return { last: null, within: null, next: floor, final, floor };
  return { last: lastValid, within: null, next, final, floor };
}

/** Behind the newest block; of an empty index, before its first one; null: nothing is known of it yet. */
function newestPosition({ blocks, l1Height, first }: TailView, isFinal: boolean): StreamPosition | null {
  const none = { last: null, within: null, final: null, floor: 0 };
  if (isFinal) return l1Height === null ? null : { ...none, next: l1Height + 1 };
  const head = blocks.at(-1)?.block;
  if (head === undefined) return first === null ? null : { ...none, next: first };
  return { ...none, last: { height: head.height, hash: head.hash }, next: head.height + 1 };
}

/** A position without a block begins with the index at the earliest. */
function startIn({ first }: TailView, position: StreamPosition | null): StreamPosition | null {
  if (position === null || position.last !== null || first === null) return position;
  return { ...position, next: Math.max(first, position.next) };
}

/** Whether the newest blocks show that the chain no longer has a block. */
function isGone({ blocks }: TailView, last: BlockPoint | null): boolean {
  const [lowest, highest] = [blocks[0]?.block, blocks.at(-1)?.block];
  if (last === null || lowest === undefined || highest === undefined) return false;
  if (last.height > highest.height) return true;
  return last.height >= lowest.height && blocks[last.height - lowest.height]?.block.hash !== last.hash;
}

/** Whether a block comes next after what the client has. */
function isLinked({ last, within }: StreamPosition, next: StreamedBlock | undefined): boolean {
  if (last === null || next === undefined) return true;
  return within === null ? next.block.parent === last.hash : next.block.hash === last.hash;
}

/** The highest height that a stream may have now; -1: none. */
function topOf({ blocks, l1Height }: TailView, isFinal: boolean): number {
  return (isFinal ? l1Height : blocks.at(-1)?.block.height) ?? -1;
}

/** The blocks from a height up to `top`, if the view has all their transfers; null: it has not. */
function heldBlocks({ blocks }: TailView, next: number, top: number): readonly StreamedBlock[] | null {
  const lowest = blocks[0]?.block.height ?? Infinity;
  if (next < lowest) return null;
  const held = blocks.slice(next - lowest, top - lowest + 1).flatMap(({ whole }) => whole ?? []);
  return held.length === top - next + 1 ? held : null;
}
