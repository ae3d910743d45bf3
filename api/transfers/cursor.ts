import type { TransferPosition } from '../../projections/transfers/queries.ts';
import { DIGEST_BYTES, digestOf } from '../http/cursor-digest.ts';
import type { RowCount } from '../http/envelope.ts';

export interface TransferCursor {
  /** The last transfer of the previous page. */
  readonly after: TransferPosition;
  /** The count of the first page, so that later pages need not count again. */
  readonly carried: RowCount | null;
}

/**
 * 28 bytes, base64url: version, block, position, item, digest of filters and order, kind of count, count. A cursor is
 * rejected for other filters or another order.
 */
const VERSION = 1;
const BYTES = 28;
const DIGEST_AT = 13;
const COUNT_KIND_AT = 21;
const MAX_COUNT = 2 ** 48 - 1;

export function encodeCursor(cursor: TransferCursor, search: string): string {
  const bytes = Buffer.alloc(BYTES);
  bytes.writeUInt8(VERSION, 0);
  bytes.writeUInt32BE(cursor.after.block, 1);
  bytes.writeUInt32BE(cursor.after.position, 5);
  bytes.writeUInt32BE(cursor.after.item, 9);
  digestOf(search).copy(bytes, DIGEST_AT);
  if (cursor.carried !== null) {
    bytes.writeUInt8(cursor.carried.isEstimate ? 2 : 1, COUNT_KIND_AT);
    bytes.writeUIntBE(Math.min(cursor.carried.count, MAX_COUNT), COUNT_KIND_AT + 1, 6);
  }
  return bytes.toString('base64url');
}

/** null unless `encodeCursor` created it for the same filters and order. */
export function decodeCursor(text: string, search: string): TransferCursor | null {
  if (!/^[A-Za-z0-9_-]{38}$/.test(text)) return null;
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.length !== BYTES || bytes.toString('base64url') !== text || bytes[0] !== VERSION) return null;
  if (!bytes.subarray(DIGEST_AT, DIGEST_AT + DIGEST_BYTES).equals(digestOf(search))) return null;
  const kind = bytes.readUInt8(COUNT_KIND_AT);
  const count = bytes.readUIntBE(COUNT_KIND_AT + 1, 6);
  if (kind > 2 || (kind === 0 && count !== 0)) return null;
  return {
    after: { block: bytes.readUInt32BE(1), position: bytes.readUInt32BE(5), item: bytes.readUInt32BE(9) },
    carried: kind === 0 ? null : { count, isEstimate: kind === 2 },
  };
}
