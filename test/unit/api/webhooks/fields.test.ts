import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { HttpError } from '../../../../api/http/errors.ts';
import { parseInput } from '../../../../api/http/validation.ts';
import { changedWebhook, createdWebhook, rotation } from '../../../../api/webhooks/fields.ts';
import { commandsMessage } from '../../../../schemas/messages/commands.ts';

/** What is parsed, or the errors by field. */
function parsed(schema: Parameters<typeof parseInput>[0], input: unknown): unknown {
  try {
    return parseInput(schema, input);
  } catch (error) {
    if (!(error instanceof HttpError)) throw error;
    expect(error.status).toBe(400);
    return { errors: error.errors };
  }
}
const good = { name: 'n', url: 'https://a.test/', events: ['transfer.created'] };
const none = { token: '', address: '', price_above: '', price_below: '' };
const create = (rest: Record<string, unknown>): unknown => parsed(createdWebhook, { ...good, ...rest });
const PADDED = `0x${'0'.repeat(63)}a`;

describe('a new webhook', () => {
  it('requires a name, a URL and events; subscriptions are optional', () => {
    expect(create({})).toEqual({ ...good, subscriptions: [] });
    const required = ['This field is required.'];
    expect(parsed(createdWebhook, {})).toEqual({
      errors: { name: required, url: required, events: required },
    });
    expect(create({ nobody: 1 })).toEqual(create({}));
  });

  it.each([
    ['name', '', 'This field may not be blank.'],
    ['name', 'x'.repeat(101), 'Ensure this field has no more than 100 characters.'],
    ['name', 5, 'Not a valid string.'],
    ['name', 'a\0', 'Null characters are not allowed.'],
    ['events', [], 'This list may not be empty.'],
    ['events', 'transfer.created', 'Expected a list of items but got type "str".'],
    ['events', ['transfer.created', 'ping'], '1: "ping" is not a valid choice.'],
    ['events', ['*'], '0: "*" is not a valid choice.'],
    ['events', ['token.launched', 'token.launched'], 'List each event once.'],
    ['events', Array(6).fill(1), 'Ensure this field has no more than 5 elements.'],
    ['subscriptions', {}, 'Expected a list of items but got type "dict".'],
    ['subscriptions', 'x'.repeat(1001), 'Expected a list of items but got type "str".'],
    ['subscriptions', null, 'This field may not be null.'],
    ['subscriptions', [5], '0: Invalid data. Expected a dictionary, but got int.'],
    ['subscriptions', [{ token: 5 }], '0.token: Not a valid string.'],
    ['subscriptions', [{ token: '0xg' }], '0.token: Enter a valid address (0x and up to 64 hex digits).'],
    [
      'subscriptions',
      [{}, { address: ' ' }],
      '1.address: Enter a valid address (0x and up to 64 hex digits).',
    ],
    ['subscriptions', [{ token: '0x1', price_above: 5 }], '0.price_above: Not a valid string.'],
    ['subscriptions', [{ price_above: '1' }], '0.token: A threshold needs a token.'],
    ['subscriptions', [{ address: '0x1', price_below: '1' }], '0.token: A threshold needs a token.'],
    ['subscriptions', Array(1001).fill({}), 'Ensure this field has no more than 1000 elements.'],
  ])('%s %j is refused', (field, value, text) => {
    expect(create({ [field]: value })).toEqual({ errors: { [field]: [text] } });
  });

  it.each([
    'http://a.test',
    'HTTPS://A.test:8443/path?query=1&x=%20',
    'http://127.0.0.1:9/',
    'https://[2606:4700::1111]/hook',
    'https://bücher.example/ü',
    `https://a.test/${'x'.repeat(2033)}`,
  ])('URL %s is taken as it is', (url) => {
    expect(create({ url })).toMatchObject({ url });
  });

  it.each([
    'a.test/hook',
    '//a.test',
    'ftp://a.test/',
    'javascript:alert(1)',
    'file:///etc/passwd',
    'https:a.test',
    'https:/a.test',
    'https:\\\\a.test',
    'https://a.test\\@b.test',
    'https://',
    'https://a b.test',
    'https://a.test/a b',
    'https://a.test/\nx',
    'https://a.te\tst/',
    'https://a.test/\u0085x',
    'https://a.test:99999/',
    'https://a.test:0/',
    'https://user@a.test/',
    'https://user:pw@a.test/',
    'https://:@a.test/#x',
    'https://a.test/#',
    'https://a.test/#x',
    `https://a.test/${'x'.repeat(2034)}`,
    5,
    null,
  ])('URL %j is refused', (url) => {
    expect(create({ url })).toEqual({ errors: { url: [expect.any(String)] } });
  });

  it('normalizes addresses', () => {
    const subscriptions = [{ token: '0xA', address: '0X00a' }, {}, { ...none, token: PADDED }];
    expect(create({ subscriptions })).toMatchObject({
      subscriptions: [{ ...none, token: PADDED, address: PADDED }, none, { ...none, token: PADDED }],
    });
  });

  it('accepts thresholds that the log can hold, unchanged, and rejects all others', () => {
    const digits = (max: number) => fc.stringMatching(new RegExp(`^[0-9]{0,${max}}$`));
    const decimal = fc.tuple(digits(18), fc.constantFrom('', '.'), digits(45)).map((parts) => parts.join(''));
    const threshold = fc.oneof(
      decimal,
      fc.constantFrom('-1', '+1', '1e3', 'NaN', '1,5', ' 1', '١', '0x1', '1.'),
    );
    fc.assert(
      fc.property(threshold, (text) => {
        const [whole = '', part] = text.split('.');
        const isDecimal = /^[0-9]*(\.[0-9]*)?$/.test(text) && whole !== '' && part !== '';
        const isGood =
          text === '' ||
          (isDecimal &&
            (whole === '0' || !whole.startsWith('0')) &&
            whole.length <= 15 &&
            (part ?? '').length <= 41);
        const result = create({ subscriptions: [{ token: '0xa', price_above: text }] });
        expect(JSON.stringify(result).includes('errors'), text).toBe(!isGood);
        if (!isGood) return;
        const body = { ...Object(result), user_id: 1, secret: 's', from_block: -1, most: 1 };
        const envelope = { v: 1, id: 'c', issued_at: 1, actor: 'user:1', request_hash: null };
        const command = commandsMessage.parse({ ...envelope, type: 'webhook.create', body });
        expect(command.body).toMatchObject({
          subscriptions: [{ ...none, token: PADDED, price_above: text }],
        });
      }),
      { numRuns: 500 },
    );
  });
});

describe('a change', () => {
  it('contains only the fields that it changes', () => {
    expect(parsed(changedWebhook, {})).toEqual({});
    const all = { ...good, status: 'paused', subscriptions: [none] };
    expect(parsed(changedWebhook, all)).toEqual(all);
  });

  it.each([
    ['status', 'enabled'],
    ['status', null],
    ['status', ''],
    ['url', null],
    ['url', 'x'],
    ['events', []],
    ['name', ''],
    ['subscriptions', null],
    ['subscriptions', [{ price_below: '1' }]],
  ])('of %s to %j is refused', (field, value) => {
    expect(parsed(changedWebhook, { [field]: value })).toEqual({ errors: { [field]: [expect.any(String)] } });
  });
});

it('accepts a grace period of up to a week', () => {
  expect(parsed(rotation, {})).toEqual({ grace_period_seconds: 0 });
  for (const seconds of [0, 1, 604_800]) {
    expect(parsed(rotation, { grace_period_seconds: seconds })).toEqual({ grace_period_seconds: seconds });
  }
  for (const wrong of [-1, 604_801, 1.5, '60', null, true]) {
    expect(parsed(rotation, { grace_period_seconds: wrong })).toEqual({
      errors: { grace_period_seconds: [expect.any(String)] },
    });
  }
});
