/** Signatures by Web Crypto, which browsers, Node, Deno and Bun have. */

export interface VerifyOptions {
  /** Largest difference between the time of signing and `now`; default 300. */
  readonly toleranceSeconds?: number;
  /** Unix milliseconds. */
  readonly now?: number;
}

/** The body of a delivery. */
export interface WebhookEvent {
  readonly event: string;
  readonly created_at: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export class WebhookError extends Error {
  readonly reason: 'secret' | 'headers' | 'signature' | 'timestamp' | 'body';

  constructor(reason: WebhookError['reason'], message: string) {
    super(message);
    this.name = 'WebhookError';
    this.reason = reason;
  }
}

/**
 * Verifies a delivery by its Standard Webhooks headers, and returns its event. A delivery may arrive more than once, with the
 * same `webhook-id`.
 *
 * @param body the raw text, before any parsing
 * @param secret of the webhook, whole (`whsec_…`)
 * @throws WebhookError
 */
export async function verifyWebhook(
  body: string,
  headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>,
  secret: string,
  { toleranceSeconds = 300, now = Date.now() }: VerifyOptions = {},
): Promise<WebhookEvent> {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers);
  const valuesOf = (name: string): string[] =>
    entries.flatMap(([key, value]) => (key.toLowerCase() === name ? (value ?? []) : []));
  const header = (name: string): string => {
    const values = valuesOf(name);
    if (values.length !== 1) throw new WebhookError('headers', `Expected one header ${name}.`);
    return values[0] ?? '';
  };
  const [id, timestamp, sent] = [
    header('webhook-id'),
    header('webhook-timestamp'),
    header('webhook-signature'),
  ];
  if (!/^[0-9]{1,12}$/.test(timestamp))
    throw new WebhookError('headers', 'webhook-timestamp is no Unix time.');
  const [, base64] = /^whsec_([A-Za-z0-9+/]{22,})={0,2}$/.exec(secret) ?? [];
  // `atob` takes no rest of one character.
  if (base64 === undefined || base64.length % 4 === 1)
    throw new WebhookError('secret', 'The secret must be whsec_ followed by base64.');
  const key = await hmacKey(
    Uint8Array.from(atob(base64), (char) => char.charCodeAt(0)),
    'verify',
  );
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${body}`);
  const matches = await Promise.all(sent.split(' ').map(async (one) => await isSignature(key, one, signed)));
  if (!matches.includes(true)) throw new WebhookError('signature', 'The signature does not match.');
  if (valuesOf('x-vendor-delivery').some((one) => one !== id))
    throw new WebhookError('signature', 'X-Vendor-Delivery differs from the signed webhook-id.');
  // After the signature: an unsigned time means nothing.
  if (!(Math.abs(now / 1000 - Number(timestamp)) <= toleranceSeconds))
    throw new WebhookError('timestamp', 'webhook-timestamp is outside the tolerance.');
  return eventOf(body);
}

/** Web Crypto compares in constant time. */
async function isSignature(key: HmacKey, sent: string, signed: Uint8Array<ArrayBuffer>): Promise<boolean> {
  const [, base64] = /^v1,([A-Za-z0-9+/]{43}=)$/.exec(sent) ?? [];
  if (base64 === undefined) return false;
  const signature = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  return await crypto.subtle.verify('HMAC', key, signature, signed);
}

function eventOf(body: string): WebhookEvent {
  let event: Partial<WebhookEvent> | null;
  try {
    event = JSON.parse(body) as Partial<WebhookEvent> | null;
  } catch {
    throw new WebhookError('body', 'The body is not JSON.');
  }
  const { event: name, created_at: at, data } = event ?? {};
  if (typeof name !== 'string' || typeof at !== 'string' || typeof data !== 'object' || data === null)
    throw new WebhookError('body', 'The body is not an event.');
  return { event: name, created_at: at, data };
}

/**
 * The headers of a call to the encrypted sync.
 *
 * @param authKey the key of the blob, in hexadecimal
 * @param blob of a PUT; null: a GET
 * @param now Unix milliseconds
 */
export async function syncHeaders(
  authKey: string,
  lookupHash: string,
  blob: string | null,
  now = Date.now(),
): Promise<{ 'X-Vendor-Timestamp': string; 'X-Vendor-Signature': string }> {
  const encoder = new TextEncoder();
  const timestamp = String(Math.floor(now / 1000));
  const parts = [blob === null ? 'GET' : 'PUT', lookupHash, timestamp];
  if (blob !== null) parts.push(hex(await crypto.subtle.digest('SHA-256', encoder.encode(blob))));
  const pairs = authKey.match(/^(?:[0-9a-fA-F]{2})+$/) === null ? null : authKey.match(/../g);
  if (pairs === null) throw new RangeError('The key must be hexadecimal.');
  const key = await hmacKey(
    Uint8Array.from(pairs, (pair) => Number.parseInt(pair, 16)),
    'sign',
  );
  const signature = await crypto.subtle.sign('HMAC', key, encoder.encode(parts.join(':')));
  return { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': hex(signature) };
}

type HmacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

async function hmacKey(bytes: Uint8Array<ArrayBuffer>, use: 'sign' | 'verify'): Promise<HmacKey> {
  return await crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, [use]);
}

function hex(bytes: ArrayBuffer): string {
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
