import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

import { HttpError } from '../http/errors.ts';

/** The signature headers of a sync call, as sent. */
export interface SignedCall {
  readonly timestamp: string;
  readonly signature: string;
}

/** Largest accepted difference between the clocks of client and server. */
const SKEW_SECONDS = 300;

/**
 * Reads the signature headers; throws 403 if one is missing or the timestamp is not current.
 *
 * @param now unix milliseconds
 */
export function readSignature(header: (name: string) => string, now: number): SignedCall {
  const [timestamp, signature] = [header('x-vendor-timestamp'), header('x-vendor-signature')];
  if (timestamp === '' || signature === '') throw forbidden('Missing signature or timestamp');
  const isNear =
    /^[0-9]{1,15}$/.test(timestamp) && Math.abs(Math.floor(now / 1000) - Number(timestamp)) <= SKEW_SECONDS;
  if (!isNear) throw forbidden('Request expired');
  return { timestamp, signature };
}

/** The signed content: `GET:<lookup_hash>:<timestamp>`; a PUT appends the SHA-256 of the blob. */
export type SignedContent =
  | { readonly method: 'GET'; readonly lookupHash: string }
  | { readonly method: 'PUT'; readonly lookupHash: string; readonly blob: string };

/** Throws 403 unless the signature matches content and key (hex); compares in constant time. */
export function checkSignature(
  { timestamp, signature }: SignedCall,
  content: SignedContent,
  authKey: string,
): void {
  const parts = [content.method, content.lookupHash, timestamp];
  if (content.method === 'PUT') parts.push(createHash('sha256').update(content.blob, 'utf8').digest('hex'));
  const right = createHmac('sha256', Buffer.from(authKey, 'hex')).update(parts.join(':')).digest('hex');
  const [sent, expected] = [Buffer.from(signature), Buffer.from(right)];
  if (sent.length !== expected.length || !timingSafeEqual(sent, expected))
    throw forbidden('Invalid signature');
}

function forbidden(text: string): HttpError {
  return new HttpError(403, 'permission_denied', text);
}
