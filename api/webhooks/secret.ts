import { randomBytes } from 'node:crypto';

/** As Standard Webhooks writes them; the contract's signature takes the whole text for its key. */
export function randomWebhookSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}
