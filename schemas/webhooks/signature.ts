import { createHmac, timingSafeEqual } from 'node:crypto';

import type { WebhookBody } from './events.ts';

/**
 * How a delivery is signed, and how a receiver makes sure of it. Two sets of headers are sent: this service's own
 * (`X-Vendor-…`) and those of Standard Webhooks 1.0.0 (`webhook-…`), whose signature covers id and time as well.
 * A receiver may copy this file: at run time it needs nothing but Node.
 */

/** What one attempt of a delivery is signed by. */
export interface Signing {
  /** Exactly what is sent. */
  readonly body: string | Buffer;
  /** `whsec_` and base64. */
  readonly secret: string;
  /** Still good beside `secret` for a while after a rotation; only `webhook-signature` is made by it too. */
  readonly previousSecret?: string | null;
  readonly deliveryId: string;
  readonly event: string;
  /** 1 for the first try. */
  readonly attempt: number;
  /** When this attempt is made, Unix seconds. */
  readonly timestampSeconds: number;
}

/** The seven headers of one attempt. Throws `WebhookError` (`secret`) when a secret is none. */
export function signatureHeaders(signing: Signing): Record<string, string> {
  const { body, secret, previousSecret, deliveryId, event, attempt, timestampSeconds } = signing;
  const secrets = [secret, previousSecret ?? null].filter((one) => one !== null);
  const timestamp = String(timestampSeconds);
  return {
    'X-Vendor-Event': event,
    'X-Vendor-Delivery': deliveryId,
    'X-Vendor-Signature': ownSignature(secret, body),
    'X-Vendor-Attempt': String(attempt),
    'webhook-id': deliveryId,
    'webhook-timestamp': timestamp,
    'webhook-signature': secrets.map((one) => standardSignature(one, deliveryId, timestamp, body)).join(' '),
  };
}

/**
 * Why a request is not taken for a delivery.
 *
 * - `secret`: what was given to `verify` is no secret of a webhook
 * - `headers`: a signature, or what belongs to it, is missing, there twice, or not of the right form
 * - `signature`: it was made by another secret, or of another body, id or time
 * - `timestamp`: it was signed too long ago, or in the future
 * - `body`: it is signed well and is no event
 */
export type WebhookErrorReason = 'secret' | 'headers' | 'signature' | 'timestamp' | 'body';

export class WebhookError extends Error {
  readonly reason: WebhookErrorReason;

  constructor(reason: WebhookErrorReason, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'WebhookError';
    this.reason = reason;
  }
}

export interface VerifyOptions {
  /** How far the clocks of sender and receiver, and the way between them, may be apart. */
  readonly toleranceSeconds?: number;
  /** Unix milliseconds. */
  readonly now?: number;
  /**
   * Refuses what only `X-Vendor-Signature` signs. That one covers neither time nor id, so whoever got hold of a
   * delivery could send it again, under another id. This service always sends both.
   */
  readonly isTimeRequired?: boolean;
}

/** As Node's `request.headers`, or fetch's `Headers`. */
export type ReceivedHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * The event that a request delivers, once its signature is found right; throws `WebhookError`.
 * The headers of Standard Webhooks decide where there are any; else `X-Vendor-Signature` does. An event may come more than once: its delivery id (`X-Vendor-Delivery`) says which it is.
 *
 * @param body the bytes as they came, before anything parses them
 * @param secret of the webhook, whole (`whsec_…`)
 */
export function verify(
  body: string | Buffer,
  headers: ReceivedHeaders,
  secret: string,
  { toleranceSeconds = 300, now = Date.now(), isTimeRequired = false }: VerifyOptions = {},
): WebhookBody {
  const header = headerReader(headers);
  const names = ['webhook-id', 'webhook-timestamp', 'webhook-signature'] as const;
  const [id, timestamp, signatures] = names.map(header);
  const own = header('x-vendor-signature');
  if (id !== undefined && timestamp !== undefined && signatures !== undefined) {
    if (!/^[0-9]{1,12}$/.test(timestamp)) throw new WebhookError('headers', 'webhook-timestamp is no time.');
    const right = standardSignature(secret, id, timestamp, body);
    if (!signatures.split(' ').some((sent) => isSame(sent, right))) throw wrongSignature();
    if ((header('x-vendor-delivery') ?? id) !== id) {
      throw new WebhookError('signature', 'X-Vendor-Delivery is not the id that was signed.');
    }
    // Only a signed time is worth telling the sender about.
    if (!(Math.abs(now / 1000 - Number(timestamp)) <= toleranceSeconds)) {
      throw new WebhookError('timestamp', 'The delivery was signed at another time.');
    }
  } else if (isTimeRequired || id !== undefined || timestamp !== undefined || signatures !== undefined) {
    throw new WebhookError('headers', `Not all of ${names.join(', ')} are there.`);
  } else if (own !== undefined) {
    if (!isSame(own, ownSignature(secret, body))) throw wrongSignature();
  } else {
    throw new WebhookError('headers', 'The request is not signed.');
  }
  return parseBody(body);
}

/** The contract's: HMAC-SHA256 of the body, keyed by the secret as text. */
function ownSignature(secret: string, body: string | Buffer): string {
  keyOf(secret);
  return `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
}

/** Standard Webhooks': HMAC-SHA256 of `id.timestamp.body`, keyed by the bytes that the secret stands for. */
function standardSignature(secret: string, id: string, timestamp: string, body: string | Buffer): string {
  const hmac = createHmac('sha256', keyOf(secret)).update(`${id}.${timestamp}.`).update(body);
  return `v1,${hmac.digest('base64')}`;
}

/** An empty key would be everyone's. */
function keyOf(secret: string): Buffer {
  const [, base64] = /^whsec_([A-Za-z0-9+/]{22,}={0,2})$/.exec(secret) ?? [];
  if (base64 === undefined) throw new WebhookError('secret', 'The secret is not whsec_ and base64.');
  return Buffer.from(base64, 'base64');
}

/** Takes as long for a wrong signature as for the right one. */
function isSame(sent: string, right: string): boolean {
  const [a, b] = [Buffer.from(sent), Buffer.from(right)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function wrongSignature(): WebhookError {
  return new WebhookError('signature', 'The signature is not that of this body under this secret.');
}

/** Headers by name in any case. One that is there twice says nothing. */
function headerReader(headers: ReceivedHeaders): (name: string) => string | undefined {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers);
  return (wanted) => {
    const values = entries.flatMap(([name, value]) => (name.toLowerCase() === wanted ? (value ?? []) : []));
    if (values.length > 1) throw new WebhookError('headers', `${wanted} is there twice.`);
    return values[0];
  };
}

function parseBody(body: string | Buffer): WebhookBody {
  let event: unknown;
  try {
    event = JSON.parse(body.toString());
  } catch (cause) {
    throw new WebhookError('body', 'The body is not JSON.', { cause });
  }
  if (!isEvent(event)) throw new WebhookError('body', 'The body is no event.');
  return event;
}

/** Whoever holds the secret made it: what stands in `data` is taken at its word. */
function isEvent(value: unknown): value is WebhookBody {
  if (typeof value !== 'object' || value === null) return false;
  const { event, created_at, data } = value as Partial<Record<string, unknown>>;
  return (
    typeof event === 'string' && typeof created_at === 'string' && typeof data === 'object' && data !== null
  );
}
