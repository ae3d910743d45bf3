import { createHmac, timingSafeEqual } from 'node:crypto';

import type { WebhookBody } from './events.ts';

/**
 * Signs deliveries, and verifies them on the receiver's side. Two sets of headers are sent: this service's own
 * (`X-Vendor-…`) and those of Standard Webhooks 1.0.0 (`webhook-…`), whose signature also covers id and time.
 * A receiver may copy this file: at run time it needs only Node.
 */

/** The input of the signatures of one attempt. */
export interface Signing {
  /** Exactly as sent. */
  readonly body: string | Buffer;
  /** `whsec_` and base64. */
  readonly secret: string;
  /** Valid besides `secret` during the grace period of a rotation; signs only `webhook-signature`. */
  readonly previousSecret?: string | null;
  readonly deliveryId: string;
  readonly event: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** Time of this attempt, Unix seconds. */
  readonly timestampSeconds: number;
}

/** The seven headers of one attempt. Throws `WebhookError` (`secret`) for an invalid secret. */
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
 * Why a request is rejected.
 *
 * - `secret`: the secret given to `verify` is invalid
 * - `headers`: a header of the signature is missing, duplicated or malformed
 * - `signature`: it does not match the secret, body, id and time
 * - `timestamp`: it was signed too long ago, or in the future
 * - `body`: the signature matches, but the body is no event
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
  /** Largest difference between the time of signing and `now`: clock skew and transport. */
  readonly toleranceSeconds?: number;
  /** Unix milliseconds. */
  readonly now?: number;
  /**
   * Rejects requests with only `X-Vendor-Signature`. That one covers neither time nor id, so a captured delivery could be
   * replayed under another id. This service always sends both.
   */
  readonly isTimeRequired?: boolean;
}

/** Node's `request.headers`, or fetch's `Headers`. */
export type ReceivedHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * Verifies the signature of a request and returns its event; throws `WebhookError`. The headers of Standard Webhooks are
 * used if there are any, else `X-Vendor-Signature`. An event may arrive more than once, with the same `X-Vendor-Delivery`.
 *
 * @param body the raw bytes, before any parsing
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
    if (!/^[0-9]{1,12}$/.test(timestamp))
      throw new WebhookError('headers', 'webhook-timestamp is not a Unix time in seconds.');
    const expected = standardSignature(secret, id, timestamp, body);
    if (!signatures.split(' ').some((sent) => isEqual(sent, expected))) throw wrongSignature();
    if ((header('x-vendor-delivery') ?? id) !== id) {
      throw new WebhookError('signature', 'X-Vendor-Delivery differs from the signed webhook-id.');
    }
    // After the signature: an unsigned time means nothing.
    if (!(Math.abs(now / 1000 - Number(timestamp)) <= toleranceSeconds)) {
      throw new WebhookError('timestamp', 'webhook-timestamp is outside the tolerance.');
    }
  } else if (isTimeRequired || id !== undefined || timestamp !== undefined || signatures !== undefined) {
    throw new WebhookError('headers', `Expected all of ${names.join(', ')}.`);
  } else if (own !== undefined) {
    if (!isEqual(own, ownSignature(secret, body))) throw wrongSignature();
  } else {
    throw new WebhookError('headers', 'The request is not signed.');
  }
  return parseBody(body);
}

/** `X-Vendor-Signature`: HMAC-SHA256 of the body, keyed by the secret as text. */
function ownSignature(secret: string, body: string | Buffer): string {
  keyOf(secret);
  return `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`;
}

/** Standard Webhooks: HMAC-SHA256 of `id.timestamp.body`, keyed by the decoded secret. */
function standardSignature(secret: string, id: string, timestamp: string, body: string | Buffer): string {
  const hmac = createHmac('sha256', keyOf(secret)).update(`${id}.${timestamp}.`).update(body);
  return `v1,${hmac.digest('base64')}`;
}

/** Rejects an empty key, under which anybody could sign. */
function keyOf(secret: string): Buffer {
  const [, base64] = /^whsec_([A-Za-z0-9+/]{22,}={0,2})$/.exec(secret) ?? [];
  if (base64 === undefined) throw new WebhookError('secret', 'The secret must be whsec_ followed by base64.');
  return Buffer.from(base64, 'base64');
}

/** In constant time. */
function isEqual(sent: string, expected: string): boolean {
  const [a, b] = [Buffer.from(sent), Buffer.from(expected)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function wrongSignature(): WebhookError {
  return new WebhookError('signature', 'The signature does not match.');
}

/** Looks up headers case-insensitively; a duplicate is an error. */
function headerReader(headers: ReceivedHeaders): (name: string) => string | undefined {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers);
  return (wantedName) => {
    const values = entries.flatMap(([name, value]) =>
      name.toLowerCase() === wantedName ? (value ?? []) : [],
    );
    if (values.length > 1) throw new WebhookError('headers', `Duplicate header ${wantedName}.`);
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
  if (!isEvent(event)) throw new WebhookError('body', 'The body is not an event.');
  return event;
}

/** Shallow: the sender holds the secret, so `data` is trusted. */
function isEvent(value: unknown): value is WebhookBody {
  if (typeof value !== 'object' || value === null) return false;
  const { event, created_at, data } = value as Partial<Record<string, unknown>>;
  return (
    typeof event === 'string' && typeof created_at === 'string' && typeof data === 'object' && data !== null
  );
}
