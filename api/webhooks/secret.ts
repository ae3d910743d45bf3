import { randomBytes } from 'node:crypto';

/** In the format of Standard Webhooks; the key of `X-Vendor-Signature` is the whole text. */
export function randomWebhookSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}
