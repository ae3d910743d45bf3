import { ZERO_FELT, isFelt } from '../../schemas/felt.ts';
import { DIGEST_BYTES, digestOf } from '../http/cursor-digest.ts';
import type { StreamFilter } from './blocks.ts';
import type { BlockPoint } from './undo.ts';

/** The place of a transfer in its block. */
export interface PlaceInBlock {
  readonly position: number;
  readonly item: number;
}

/** The position of a client in a stream. */
export interface StreamPosition {
  /** The newest block of which the client has a message; null: none, it begins with the block at `next`. */
  readonly last: BlockPoint | null;
  /** The last transfer of `last` that the client has; null: it has all of that block. */
  readonly within: PlaceInBlock | null;
  /** The height whose messages come next, or the rest of them. */
  readonly next: number;
  /** The newest `final` that the client has; null: none. */
  readonly final: number | null;
  /** The lowest height that the client asked for: a reorg that goes deeper sends it no block below. */
  readonly floor: number;
}

export type MessageType = 'transfer' | 'block' | 'undo' | 'final' | 'end';

const typeCodes: Readonly<Record<MessageType, number>> = { transfer: 1, block: 2, undo: 3, final: 4, end: 5 };

/**
 * 70 bytes, base64url: version, type of the message, digest of the filters, newest `final`, next height, hash of the newest
 * block (zeros: none), position and item of the last transfer (both the largest number: the whole block), mark, floor. The type
 * and the mark only make cursors of different messages differ.
 */
const VERSION = 2;
const BYTES = 70;
const NONE = 0xffff_ffff;
const at = {
  type: 1,
  digest: 2,
  final: 10,
  next: 14,
  hash: 18,
  position: 50,
  item: 54,
  mark: 58,
  floor: 66,
} as const;
/** A cursor of the previous version ends here: it has no floor. */
const UNFLOORED = { version: 1, bytes: at.floor } as const;

/** Every message has a cursor: a buffer for each would take longer than its text. */
const scratch = Buffer.alloc(BYTES);

/** Of an answer: a cursor before the first message of a stream, or behind the last transfer of an export. */
export const CURSOR_HEADER = 'X-Stream-Cursor';

/** Behind the newest block, whichever that is: of a stream that ends before it has seen one. */
export const NEWEST_POSITION: StreamPosition = {
  last: null,
  within: null,
  next: NONE,
  final: null,
  floor: 0,
};

/**
 * @param filters text that identifies the filters; `decodeCursor` takes the cursor with the same ones only
 * @param mark distinguishes messages with the same position: a block that was reverted may come again
 */
export function encodeCursor(
  { last, within, next, final, floor }: StreamPosition,
  filters: Buffer,
  type: MessageType,
  mark: number,
): string {
  const bytes = scratch.fill(0);
  bytes.writeUInt8(VERSION);
  bytes.writeUInt8(typeCodes[type], at.type);
  filters.copy(bytes, at.digest);
  bytes.writeUInt32BE(final ?? NONE, at.final);
  bytes.writeUInt32BE(next, at.next);
  if (last !== null) bytes.write(last.hash.slice(2), at.hash, 'hex');
  bytes.writeUInt32BE(within?.position ?? NONE, at.position);
  bytes.writeUInt32BE(within?.item ?? NONE, at.item);
  bytes.writeDoubleBE(mark, at.mark);
  bytes.writeUInt32BE(floor, at.floor);
  return bytes.toString('base64url');
}

/** The cursor of an `end` message with the same position. */
export function endCursor(cursor: string): string {
  const bytes = Buffer.from(cursor, 'base64url');
  bytes.writeUInt8(typeCodes.end, at.type);
  return bytes.toString('base64url');
}

/** null unless `encodeCursor` made it with these filters. */
export function decodeCursor(text: string, filters: Buffer): StreamPosition | null {
  if (!/^[A-Za-z0-9_-]{88}([A-Za-z0-9_-]{6})?$/.test(text)) return null;
  const bytes = Buffer.from(text, 'base64url');
  const isUnfloored = bytes[0] === UNFLOORED.version && bytes.length === UNFLOORED.bytes;
  const isOurs =
    (isUnfloored || (bytes[0] === VERSION && bytes.length === BYTES)) &&
    Object.values(typeCodes).includes(bytes[at.type] ?? 0) &&
    bytes.subarray(at.digest, at.digest + DIGEST_BYTES).equals(filters);
  if (!isOurs) return null;
  const final = bytes.readUInt32BE(at.final);
  const next = bytes.readUInt32BE(at.next);
  const hash = `0x${bytes.toString('hex', at.hash, at.position)}`;
  const [position, item] = [bytes.readUInt32BE(at.position), bytes.readUInt32BE(at.item)];
  const within = position === NONE && item === NONE ? null : { position, item };
  const height = within === null ? next - 1 : next;
  const isStart = hash === ZERO_FELT;
  if (!isFelt(hash) || (isStart ? within !== null : height < 0)) return null;
  return {
    last: isStart ? null : { height, hash },
    within,
    next,
    final: final === NONE ? null : final,
    floor: isUnfloored ? 0 : bytes.readUInt32BE(at.floor),
  };
}

/** Of the filters of a stream and whether it has only final blocks: its cursors are bound to them. */
export function streamDigest(filter: StreamFilter, isFinal: boolean): Buffer {
  return digestOf(JSON.stringify([Object.entries(filter), isFinal]));
}
