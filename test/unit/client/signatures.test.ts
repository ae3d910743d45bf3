import { randomBytes } from 'node:crypto';

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { checkSignature, readSignature } from '../../../api/sync/signature.ts';
import { syncHeaders, verifyWebhook } from '../../../client/src/signatures.ts';
import { signatureHeaders } from '../../../schemas/webhooks/signature.ts';

const NOW = 1_800_000_000;
const body = JSON.stringify({ event: 'ping', created_at: '2027-01-15T08:00:00Z', data: { message: 'é' } });
const newSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`;
const signed = (secret: string, more: { previousSecret?: string } = {}): Record<string, string> =>
  signatureHeaders({
    body,
    secret,
    ...more,
    deliveryId: 'd1',
    event: 'ping',
    attempt: 1,
    timestampSeconds: NOW,
  });
const now = NOW * 1000;

describe('verifyWebhook', () => {
  it('accepts what the service signs, also during a rotation', async () => {
    const [secret, next] = [newSecret(), newSecret()];
    for (const headers of [signed(secret), signed(next, { previousSecret: secret })]) {
      expect(await verifyWebhook(body, headers, secret, { now })).toEqual(JSON.parse(body));
      expect(await verifyWebhook(body, new Headers(headers), secret, { now })).toEqual(JSON.parse(body));
    }
  });

  it.each([
    ['another secret', 'signature', {}, { secret: newSecret() }],
    ['another body', 'signature', {}, { body: body.replace('é', 'e') }],
    ['another id', 'signature', { 'webhook-id': 'd2' }, {}],
    ['another id of the contract', 'signature', { 'X-Vendor-Delivery': 'd2' }, {}],
    ['another time', 'signature', { 'webhook-timestamp': String(NOW + 1) }, {}],
    ['no time', 'headers', { 'webhook-timestamp': '' }, {}],
    ['a time that is no number', 'headers', { 'webhook-timestamp': '1e9' }, {}],
    ['an empty secret', 'secret', {}, { secret: 'whsec_' }],
    ['a secret that was cut off', 'secret', {}, { secret: newSecret().slice(0, -3) }],
    ['an old delivery', 'timestamp', {}, { now: now + 301_000 }],
  ] as const)('refuses %s', async (_, reason, changed, given) => {
    const secret = newSecret();
    const headers = { ...signed(secret), ...changed };
    const asked = { body, secret, now, ...given };
    const refused = verifyWebhook(asked.body, headers, asked.secret, { now: asked.now });
    await expect(refused).rejects.toMatchObject({ reason });
  });
});

describe('syncHeaders', () => {
  it('signs as the service checks', async () => {
    const hex = fc
      .uint8Array({ minLength: 1, maxLength: 64 })
      .map((bytes) => Buffer.from(bytes).toString('hex'));
    await fc.assert(
      fc.asyncProperty(hex, hex, fc.option(fc.string({ unit: 'binary' })), async (key, lookupHash, blob) => {
        const headers: Readonly<Record<string, string>> = await syncHeaders(key, lookupHash, blob, now);
        const byName = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
        const call = readSignature((name) => byName.get(name) ?? '', now);
        checkSignature(
          call,
          blob === null ? { method: 'GET', lookupHash } : { method: 'PUT', lookupHash, blob },
          key,
        );
      }),
    );
  });
});
