import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

import { HttpError } from '../http/errors.ts';

/** The headers that every call of the sync carries, as they were sent. */
export interface SignedCall {
  readonly timestamp: string;
  readonly signature: string;
}

/** Both sides' clocks may be so far apart. */
const SKEW_SECONDS = 300;

/**
 * The first two checks of a signed call: both headers are there, and the time is now.
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

/** What is signed: `GET:<lookup_hash>:<timestamp>`, of a PUT with the SHA-256 of the blob's characters behind. */
export type SignedContent =
  | { readonly method: 'GET'; readonly lookupHash: string }
  | { readonly method: 'PUT'; readonly lookupHash: string; readonly blob: string };

/** Throws 403 unless the signature is that of this content under this key (hex). Takes as long for a wrong one. */
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
