import { createHmac } from 'node:crypto';

import fc from 'fast-check';
import { Webhook } from 'standardwebhooks';
import { describe, expect, it } from 'vitest';

import { eventCatalogue } from '../../../../schemas/webhooks/events.ts';
import { WebhookError, signatureHeaders, verify } from '../../../../schemas/webhooks/signature.ts';
import type { Signing } from '../../../../schemas/webhooks/signature.ts';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const OTHER = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const AT = 1_767_323_045;
const now = AT * 1000;
const event = eventCatalogue['transfer.created'].example;
const body = JSON.stringify(event);

const signed = (changes: Partial<Signing> = {}): Record<string, string> =>
  signatureHeaders({
    body,
    secret: SECRET,
    deliveryId: '0193d2c1-6f6e-7c4e-9c5b-0242ac120002',
    event: event.event,
    attempt: 1,
    timestampSeconds: AT,
    ...changes,
  });
const without = (headers: Record<string, string>, ...names: string[]): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !names.includes(name)));
const ofContract = (headers: Record<string, string>): Record<string, string> =>
  without(headers, 'webhook-id', 'webhook-timestamp', 'webhook-signature');
const ofStandard = (headers: Record<string, string>): Record<string, string> =>
  without(headers, 'X-Vendor-Event', 'X-Vendor-Delivery', 'X-Vendor-Signature', 'X-Vendor-Attempt');

/** Why `verify` rejects; null: it accepts. */
function refusal(...args: Parameters<typeof verify>): string | null {
  try {
    verify(...args);
    return null;
  } catch (error) {
    if (error instanceof WebhookError) return error.reason;
    throw error;
  }
}

const secret = fc
  .uint8Array({ minLength: 24, maxLength: 64 })
  .map((bytes) => `whsec_${Buffer.from(bytes).toString('base64')}`);
const delivery = fc.record({
  body: fc
    .record({
      event: fc.string({ unit: 'grapheme' }),
      created_at: fc.string(),
      data: fc.dictionary(fc.string(), fc.jsonValue()),
    })
    .map((value) => JSON.stringify(value)),
  secret,
  deliveryId: fc.uuid(),
  event: fc.constantFrom('transfer.created', 'ping'),
  attempt: fc.integer({ min: 1, max: 100 }),
  timestampSeconds: fc.integer({ min: 0, max: 4_000_000_000 }),
});

describe('signatureHeaders', () => {
  it('has the four headers of the contract and the three of Standard Webhooks', () => {
    expect(signed({ attempt: 3 })).toEqual({
      'X-Vendor-Event': 'transfer.created',
      'X-Vendor-Delivery': '0193d2c1-6f6e-7c4e-9c5b-0242ac120002',
      'X-Vendor-Signature': `sha256=${createHmac('sha256', Buffer.from(SECRET, 'utf8')).update(body).digest('hex')}`,
      'X-Vendor-Attempt': '3',
      'webhook-id': '0193d2c1-6f6e-7c4e-9c5b-0242ac120002',
      'webhook-timestamp': '1767323045',
      'webhook-signature': expect.stringMatching(/^v1,[A-Za-z0-9+/]{43}=$/),
    });
  });

  it('signs the example of the Standard Webhooks specification as published', () => {
    const headers = signed({
      body: '{"test": 2432232314}',
      deliveryId: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      timestampSeconds: 1_614_265_330,
    });
    expect(headers['webhook-signature']).toBe('v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=');
  });

  it('gives the same signature for a body as text and as bytes', () => {
    const text = '{"event":"ping","created_at":"","data":{"ü":"🙂"}}';
    expect(signed({ body: Buffer.from(text) })).toEqual(signed({ body: text }));
  });

  it('adds a signature by the previous secret after that of the new one', () => {
    const headers = signed({ secret: OTHER, previousSecret: SECRET });
    expect(headers['webhook-signature']).toBe(
      `${signed({ secret: OTHER })['webhook-signature']} ${signed()['webhook-signature']}`,
    );
    expect(ofContract(headers)).toEqual(ofContract(signed({ secret: OTHER })));
    expect(signed({ previousSecret: null })).toEqual(signed());
  });

  it.each(['', 'whsec_', 'whsec_%%%', SECRET.slice('whsec_'.length), 'whsec_c2hvcnQ='])(
    'throws for the invalid secret %j',
    (none) => {
      expect(() => signed({ secret: none })).toThrow(expect.objectContaining({ reason: 'secret' }));
      expect(() => signed({ previousSecret: none })).toThrow(expect.objectContaining({ reason: 'secret' }));
      expect(refusal(body, signed(), none, { now })).toBe('secret');
    },
  );
});

describe('the standardwebhooks library', () => {
  // The library only uses the machine's clock.
  const seconds = Math.floor(Date.now() / 1000);

  it('verifies our signatures, also by the previous secret', () => {
    fc.assert(
      fc.property(delivery, secret, (one, previousSecret) => {
        const headers = signatureHeaders({ ...one, previousSecret, timestampSeconds: seconds });
        expect(new Webhook(one.secret).verify(one.body, headers)).toEqual(JSON.parse(one.body));
        expect(new Webhook(previousSecret).verify(one.body, headers)).toEqual(JSON.parse(one.body));
        expect(() => new Webhook(OTHER).verify(one.body, headers)).toThrow('No matching signature');
      }),
    );
  });

  it('creates signatures that we verify', () => {
    fc.assert(
      fc.property(delivery, (one) => {
        const at = new Date(one.timestampSeconds * 1000);
        const headers = {
          'webhook-id': one.deliveryId,
          'webhook-timestamp': String(one.timestampSeconds),
          'webhook-signature': new Webhook(one.secret).sign(one.deliveryId, at, one.body),
        };
        const options = { now: at.getTime() };
        expect(verify(one.body, headers, one.secret, options)).toEqual(JSON.parse(one.body));
        expect(refusal(one.body, headers, OTHER, options)).toBe('signature');
      }),
    );
  });
});

describe('verify', () => {
  const sets = [
    ['both sets of headers', signed()],
    ["the contract's headers", ofContract(signed())],
    ["Standard Webhooks' headers", ofStandard(signed())],
  ] as const;

  it.each(sets)('returns the event by %s', (_name, headers) => {
    expect(verify(body, headers, SECRET, { now })).toEqual(event);
    expect(verify(Buffer.from(body), headers, SECRET, { now })).toEqual(event);
  });

  it.each(sets)('finds %s in any case, in arrays and in Headers', (_name, headers) => {
    const entries = Object.entries(headers);
    for (const recased of [
      Object.fromEntries(entries.map(([name, value]) => [name.toLowerCase(), value])),
      Object.fromEntries(entries.map(([name, value]) => [name.toUpperCase(), [value]])),
      { ...headers, host: undefined, 'set-cookie': ['a=1', 'b=2'] },
      new Headers(headers),
    ]) {
      expect(verify(body, recased, SECRET, { now })).toEqual(event);
    }
  });

  it('accepts the old and the new secret during a rotation', () => {
    const headers = signed({ secret: OTHER, previousSecret: SECRET });
    expect(verify(body, headers, SECRET, { now })).toEqual(event);
    expect(verify(body, headers, OTHER, { now })).toEqual(event);
    expect(refusal(body, signed({ secret: OTHER }), SECRET, { now })).toBe('signature');
    expect(refusal(body, ofContract(headers), SECRET, { now })).toBe('signature');
  });

  it('narrows the type of the event by its name', () => {
    const received = verify(body, signed(), SECRET, { now });
    if (received.event !== 'transfer.created') throw new Error('another event');
    expect(received.data.value).toBe('2500000000000000000');
  });

  it.each(sets)('rejects another body or secret, by %s', (_name, headers) => {
    fc.assert(
      fc.property(fc.nat(body.length - 1), fc.integer({ min: 1, max: 255 }), (at, flip) => {
        const changed = Buffer.from(body);
        changed[at] = changed[at]! ^ flip;
        expect(refusal(changed, headers, SECRET, { now })).toBe('signature');
      }),
    );
    expect(refusal(`${body} `, headers, SECRET, { now })).toBe('signature');
    // Different invalid UTF-8 decodes to the same text, but must not verify.
    const bytes = [0xfe, 0xff].map((byte) => Buffer.concat([Buffer.from('{"event":"'), Buffer.from([byte])]));
    const ofOne = signed({ body: bytes[0]! });
    expect(refusal(bytes[1]!, ofContract(ofOne), SECRET, { now })).toBe('signature');
    expect(refusal(bytes[1]!, ofStandard(ofOne), SECRET, { now })).toBe('signature');
    expect(refusal(body, headers, OTHER, { now })).toBe('signature');
  });

  it.each(['X-Vendor-Signature', 'webhook-signature', 'webhook-id', 'webhook-timestamp'])(
    'refuses a changed %s',
    (name) => {
      const set = name === 'X-Vendor-Signature' ? ofContract(signed()) : ofStandard(signed());
      const right = set[name]!;
      fc.assert(
        fc.property(fc.oneof(fc.string(), fc.nat(right.length - 1)), (wrong) => {
          const value =
            typeof wrong === 'string'
              ? wrong
              : `${right.slice(0, wrong)}${right[wrong] === '1' ? '2' : '1'}${right.slice(wrong + 1)}`;
          fc.pre(!value.split(' ').includes(right));
          expect(refusal(body, { ...set, [name]: value }, SECRET, { now })).toMatch(/^(signature|headers)$/);
        }),
      );
    },
  );

  it.each([
    ['no signature at all', {}],
    ['only names', without(ofContract(signed()), 'X-Vendor-Signature')],
    ['no id', without(signed(), 'webhook-id')],
    ['no timestamp', without(signed(), 'webhook-timestamp')],
    ['no signature of its set', without(signed(), 'webhook-signature')],
    ['two of one', { ...signed(), 'WEBHOOK-ID': 'other' }],
    ['two in an array', { ...signed(), 'webhook-signature': [signed()['webhook-signature']!, 'v1,'] }],
    ['a time that is none', { ...signed(), 'webhook-timestamp': '1767323045.0' }],
  ])('refuses headers with %s', (_name, headers) => {
    expect(refusal(body, headers, SECRET, { now })).toBe('headers');
  });

  it('rejects a signature without a time if a time is required', () => {
    const options = { now, isTimeRequired: true };
    expect(refusal(body, ofContract(signed()), SECRET, options)).toBe('headers');
    expect(refusal(body, ofStandard(signed()), SECRET, options)).toBeNull();
    expect(refusal(body, signed(), SECRET, options)).toBeNull();
  });

  it('rejects an id other than the signed one', () => {
    const headers = { ...signed(), 'X-Vendor-Delivery': '0193d2c1-6f6e-7c4e-9c5b-0242ac120003' };
    expect(refusal(body, headers, SECRET, { now })).toBe('signature');
  });

  it('rejects a signature of another version', () => {
    const [, base64] = signed()['webhook-signature']!.split(',');
    for (const other of [`v2,${base64}`, `v1a,${base64}`, base64!, `v1=${base64}`]) {
      expect(refusal(body, { ...signed(), 'webhook-signature': other }, SECRET, { now })).toBe('signature');
    }
    const several = `v1a,AAAA v2,${base64} v1,${base64}`;
    expect(refusal(body, { ...signed(), 'webhook-signature': several }, SECRET, { now })).toBeNull();
  });

  it.each([
    [-301, 300],
    [301, 300],
    [11, 10],
    [-1, 0],
    [1, Number.NaN],
  ])('refuses a signature %d s off with a tolerance of %d s', (offset, toleranceSeconds) => {
    expect(refusal(body, signed(), SECRET, { now: now + offset * 1000, toleranceSeconds })).toBe('timestamp');
  });

  it.each([
    [-300, 300],
    [300, 300],
    [0, 0],
    [86_400, Number.POSITIVE_INFINITY],
  ])('takes a signature %d s off with a tolerance of %d s', (offset, toleranceSeconds) => {
    expect(refusal(body, signed(), SECRET, { now: now + offset * 1000, toleranceSeconds })).toBeNull();
  });

  it("tolerates 300 s by default, on the machine's clock", () => {
    const seconds = Math.floor(Date.now() / 1000);
    expect(refusal(body, signed({ timestampSeconds: seconds }), SECRET)).toBeNull();
    expect(refusal(body, signed({ timestampSeconds: seconds - 400 }), SECRET)).toBe('timestamp');
    expect(refusal(body, signed({ timestampSeconds: seconds + 400 }), SECRET)).toBe('timestamp');
  });

  it.each(['', 'null', '[]', '"text"', '{', '{"event":"ping"}', '{"event":1,"created_at":"","data":{}}'])(
    'refuses the signed body %j, which is no event',
    (odd) => {
      expect(refusal(odd, signed({ body: odd }), SECRET, { now })).toBe('body');
      expect(refusal(odd, ofContract(signed({ body: odd })), SECRET, { now })).toBe('body');
    },
  );
});
