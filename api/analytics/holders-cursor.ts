import type { Holder } from '../../projections/token-holders/queries.ts';
import { isFelt } from '../../schemas/felt.ts';
import { digestOf } from '../http/cursor-digest.ts';

/** The last holder of a page. */
export interface HoldersCursor {
  readonly after: Holder;
  readonly rank: number;
}

/** 79 bytes, base64url: version, rank, balance, account, digest of the query. A cursor is rejected for another query. */
const VERSION = 1;
const BYTES = 79;
const BALANCE_AT = 7;
const ACCOUNT_AT = 39;
const DIGEST_AT = 71;
const MAX_RANK = 2 ** 48 - 1;

/** @param query what the page belongs to, as text */
export function encodeHoldersCursor({ after, rank }: HoldersCursor, query: string): string {
  const bytes = Buffer.alloc(BYTES);
  bytes.writeUInt8(VERSION, 0);
  bytes.writeUIntBE(Math.min(rank, MAX_RANK), 1, 6);
  bytes.write(after.balance.toString(16).padStart(64, '0'), BALANCE_AT, 'hex');
  bytes.write(after.account.slice(2), ACCOUNT_AT, 'hex');
  digestOf(query).copy(bytes, DIGEST_AT);
  return bytes.toString('base64url');
}

/** null unless `encodeHoldersCursor` created it for the same query. */
export function decodeHoldersCursor(text: string, query: string): HoldersCursor | null {
  const bytes = Buffer.from(text, 'base64url');
  if (bytes.length !== BYTES || bytes.toString('base64url') !== text || bytes[0] !== VERSION) return null;
  if (!bytes.subarray(DIGEST_AT).equals(digestOf(query))) return null;
  const account = `0x${bytes.toString('hex', ACCOUNT_AT, DIGEST_AT)}`;
  if (!isFelt(account)) return null;
  const balance = BigInt(`0x${bytes.toString('hex', BALANCE_AT, ACCOUNT_AT)}`);
  return { after: { account, balance }, rank: bytes.readUIntBE(1, 6) };
}
