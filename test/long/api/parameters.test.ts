import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { aClassHash, aDapp, anAd, importRecords } from '../../support/catalogue.ts';
import { openApiChecker } from '../../support/openapi.ts';
import type { Complaints } from '../../support/openapi.ts';
import {
  isGiven,
  isLookedUp,
  kindOf,
  kinds,
  made,
  operationsOf,
  statusOf,
  urlOf,
  urlWith,
  valueOf,
} from '../../support/parameters.ts';
import type { Operation, Parameter, Sent } from '../../support/parameters.ts';
import { BOB, COIN, NFT, writeObserved, writeSmallChain } from '../../support/small-chain.ts';

/**
 * Every parameter of every route that the API's own document names, in every form that a client may send: absent, empty,
 * of the wrong type, out of range, spelt otherwise, repeated, huge, with bytes that are no text. A route or a kind of
 * parameter that nobody has said a good value of here fails.
 */

let world: ApiWorld;
let complaints: Complaints;
let apiKey = '';
let operations: Operation[] = [];
const aWebhook = { name: 'hook', url: 'https://93.184.215.14/hook', events: ['transfer.created'] };
let session = '';

beforeAll(async () => {
  world = await apiWorld({ TRUSTED_PROXIES: '127.0.0.0/8' });
  ({ apiKey } = await writeSmallChain(world));
  ({ token: session } = await world.makeUser('asker', 'asker@example.org', { isAdmin: true }));
  complaints = await openApiChecker(world);
  operations = operationsOf((await world.call('GET', '/api/openapi.json')).json);
  const { json: webhook } = await world.call('POST', '/api/webhooks/', { token: session, json: aWebhook });
  made.set('/api/webhooks/{id}/deliveries/', { id: String(webhook.id) });
  await importRecords(world, {
    categories: [{ slug: 'one', name: 'One', icon: '' }],
    dapps: [aDapp('one', { category: 'one', tags: ['one'], is_featured: true })],
    ads: [anAd('one', { placement: 'one' })],
    class_hashes: [aClassHash(1n, { account_type: 'one' })],
  });
  made.set('/api/dapps/account-class-hashes/{id}/', { id: '1' });
  await writeObserved(world);
});
afterAll(async () => {
  await world?.close();
});

let addresses = 0;
/** From another address each time, so that no throttle of addresses is met. */
const elsewhere = (): string => `100.64.${Math.floor((addresses += 1) / 250) % 250}.${addresses % 250}`;

async function ask(operation: Operation, url: string, body?: string | Buffer): Promise<Answer> {
  const isByKey = operation.takesKey;
  const answer = await world.call(operation.method, url, {
    headers: {
      'X-Forwarded-For': elsewhere(),
      ...(isByKey ? { 'api-key': apiKey } : {}),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(isByKey ? {} : { token: session }),
    ...(body === undefined ? {} : { body }),
  });
  const shown = `${operation.method} ${url.slice(0, 300)} ${String(body ?? '').slice(0, 300)}`;
  expect(answer.status, `${shown}: ${answer.text.slice(0, 300)}`).toBeLessThan(500);
  if (operation.path === new URL(url, world.url).pathname) {
    expect(complaints(operation.method, url, answer), `${shown} is not as described`).toEqual([]);
  }
  return answer;
}

/** Some at a time: the machine has two cores. */
async function forEach<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  for (let i = 0; i < items.length; i += 8) await Promise.all(items.slice(i, i + 8).map(work));
}

/** An answer without what changes from one call to the next. */
const comparable = ({ status, json }: Answer): unknown => ({
  status,
  json: { ...json, request_id: null, checked_at: null, expires_at: null },
});

/** Runs `work` over every parameter of a URL that the document names. */
async function everyParameter(
  work: (operation: Operation, parameter: Parameter, kind: (typeof kinds)[string]) => Promise<void>,
): Promise<void> {
  let count = 0;
  for (const operation of operations) {
    for (const parameter of operation.parameters) {
      if (parameter.in === 'header') continue;
      const kind = kinds[kindOf(parameter)];
      if (kind === undefined) throw new Error(`${operation.path}: nothing is known of ${parameter.name}`);
      await work(operation, parameter, kind);
      count += 1;
    }
  }
  expect(count).toBeGreaterThan(50);
}

const name = (operation: Operation, parameter: Parameter, what: string): string =>
  `${operation.path} ${parameter.name}: ${what}`;

async function expectRefused(
  operation: Operation,
  parameter: Parameter,
  sent: readonly Sent[],
): Promise<void> {
  const { status, json } = await ask(operation, urlWith(operation, parameter, sent));
  const what = name(operation, parameter, JSON.stringify(sent).slice(0, 200));
  expect(status, what).toBe(400);
  expect(Object.keys(json.errors ?? {}), what).toEqual([parameter.name]);
  expect(json.detail, what).toContain(parameter.name);
}

describe('a parameter of a URL', () => {
  it('that is valid is accepted', async () => {
    await everyParameter(async (operation, parameter) => {
      const value = valueOf(operation.path, parameter.name);
      const { status, text } = await ask(operation, urlWith(operation, parameter, [value]));
      expect(status, name(operation, parameter, text.slice(0, 300))).toBe(statusOf(operation.path));
    });
  });

  it('may be absent or empty unless required', async () => {
    await everyParameter(async (operation, parameter) => {
      if (parameter.in !== 'query') return;
      const answers = await Promise.all(
        [null, [''], ['', '']].map((sent) => ask(operation, urlWith(operation, parameter, sent))),
      );
      // Nothing else is asked for.
      const isOnly = isGiven(operation, parameter) || parameter.name === 'txhash';
      for (const { status, json } of answers) {
        const what = name(operation, parameter, String(JSON.stringify(json)).slice(0, 200));
        if (parameter.required === true) {
          expect(status, what).toBe(400);
          expect(json.errors, what).toEqual({ [parameter.name]: ['This field is required.'] });
        } else if (isOnly && operation.path === '/api/transfers/') {
          expect(status, what).toBe(400);
          expect(json.allowed_filters, what).toContain(parameter.name);
        } else if (isOnly && operation.path === '/api/events/') {
          expect(status, what).toBe(400);
          expect(json.errors, what).toEqual({ non_field_errors: ['Give either block or txhash.'] });
        } else {
          expect(status, what).toBe(statusOf(operation.path));
        }
      }
    });
  });

  it('means the same in every spelling', async () => {
    await everyParameter(async (operation, parameter, { same }) => {
      const value = valueOf(operation.path, parameter.name);
      const expected = comparable(await ask(operation, urlWith(operation, parameter, [value])));
      await forEach(same(value), async (sent) => {
        const found = comparable(await ask(operation, urlWith(operation, parameter, [sent])));
        const isPage = typeof found === 'object' && JSON.stringify(found).includes('"links"');
        const what = name(operation, parameter, JSON.stringify(sent));
        // Links of a page repeat the query as it was sent.
        if (isPage) expect(withoutLinks(found), what).toEqual(withoutLinks(expected));
        else expect(found, what).toEqual(expected);
      });
    });
  });

  it('that is invalid is rejected by name', async () => {
    await everyParameter(async (operation, parameter, { bad }) => {
      await forEach(bad(parameter.schema), async (sent) => {
        // A path that cannot be decoded, or has no such part, is none of this route.
        if (parameter.in === 'path') {
          const { status } = await ask(operation, urlWith(operation, parameter, [sent]));
          expect([400, 404], name(operation, parameter, urlOf(sent).slice(0, 100))).toContain(status);
        } else await expectRefused(operation, parameter, [sent]);
      });
    });
  });

  it('that is repeated counts with its last value', async () => {
    await everyParameter(async (operation, parameter, { bad }) => {
      const [wrong] = bad(parameter.schema);
      const value = valueOf(operation.path, parameter.name);
      if (parameter.in !== 'query' || wrong === undefined || value === '') return;
      await expectRefused(operation, parameter, [value, wrong]);
      const { status } = await ask(operation, urlWith(operation, parameter, [wrong, value]));
      expect(status, name(operation, parameter, 'several')).toBe(statusOf(operation.path));
    });
  });

  it('is parsed leniently where Django REST framework is', async () => {
    await everyParameter(async (operation, parameter, { lenient = [], noPage = [] }) => {
      const isBounded = parameter.schema.maximum !== undefined && kindOf(parameter) === 'integer';
      await forEach(isBounded ? [] : lenient, async (sent) => {
        const { status, text } = await ask(operation, urlWith(operation, parameter, [sent]));
        const isCross = status === 400 && text.includes('Ensure this value is');
        const isShort = status === 400 && parameter.schema.minLength !== undefined;
        // The blocks of this chain have no header, so their events are not kept.
        const isGood = status === (operation.path === '/api/events/' ? statusOf(operation.path) : 200);
        const isUnknown = status === 404 && isLookedUp(operation, parameter);
        expect(
          isGood || isCross || isShort || isUnknown,
          name(operation, parameter, `${urlOf(sent).slice(0, 80)} ${text}`),
        ).toBe(true);
      });
      await forEach(noPage, async (sent) => {
        const { status, json } = await ask(operation, urlWith(operation, parameter, [sent]));
        if (operation.path === '/api/events/' && status === 409) return;
        expect(status, name(operation, parameter, urlOf(sent).slice(0, 80))).toBe(404);
        expect(json.detail).toBe('Invalid page.');
      });
    });
  });

  it('of arbitrary bytes is answered at most 4xx', async () => {
    const byte = fc.integer({ min: 0, max: 255 }).map((n) => `%${n.toString(16).padStart(2, '0')}`);
    const anyBytes = fc.array(byte, { minLength: 1, maxLength: 12 }).map((parts) => parts.join(''));
    const all = operations.flatMap((operation) =>
      operation.parameters
        // Nobody observes: what has to be fetched is waited for.
        .filter(({ in: place, name: own }) => place !== 'header' && own !== 'force_refresh')
        .filter(() => operation.path !== '/api/nft/metadata/')
        .map((parameter) => ({ operation, parameter })),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...all), anyBytes, async ({ operation, parameter }, raw) => {
        await ask(operation, urlWith(operation, parameter, [{ raw }]));
      }),
      { numRuns: 300 },
    );
  });

  it('that is unknown is ignored', async () => {
    for (const operation of operations.filter(({ method }) => method === 'GET')) {
      const url = urlWith(operation, null, null);
      const odd = '&nobody=1&__proto__=1&constructor=1&toString[]=2&%00=%00&%FF=%FF&=&';
      expect((await ask(operation, url + odd)).status, url).toBe((await ask(operation, url)).status);
    }
  });

  it('may not exceed the maximum URL length', async () => {
    for (const operation of operations.filter(({ method }) => method === 'GET'))
      expect((await ask(operation, `${urlWith(operation, null, null)}&x=${'a'.repeat(20_000)}`)).status).toBe(
        431,
      );
  });
});

function withoutLinks(answer: unknown): unknown {
  return JSON.parse(JSON.stringify(answer, (key, value: unknown) => (key === 'links' ? null : value)));
}

describe('a field of a body', () => {
  /** A good body of each route. */
  const bodies: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
    '/api/users/auth/login/': { username: 'asker', password: 'wrong' },
    '/api/users/auth/create-api-key/': { name: 'made' },
    '/api/users/auth/api-keys/delete/': { key_id: 999_999 },
    '/api/users/auth/api-keys/{id}/': { name: 'other' },
    '/api/balances/': {
      balances: [{ account_address: BOB, token_address: NFT }],
      max_age: 4_000_000_000,
    },
    '/api/prices/': { token_addresses: [COIN] },
    '/api/dapps/vendor-wallets/': { wallet_address: BOB, network: 'mainnet', wallet_type: 'braavos' },
    '/api/dapps/vendor-wallets/{id}/update_activity/': {
      transaction_count: 1,
      last_activity_at: '2026-01-01T00:00:00Z',
    },
    '/api/dapps/domain-reports/': {
      domain: 'evil.example',
      category: 'phishing',
      reason: 'asks for the seed',
      evidence: 'https://example.org/shot.png',
    },
    '/api/webhooks/': aWebhook,
    '/api/webhooks/{id}/': { name: 'other' },
    '/api/webhooks/{id}/deliveries/retry/': {
      start_time: '2026-01-01T00:00:00Z',
      end_time: '2026-01-02T00:00:00Z',
    },
    '/api/webhooks/{id}/rotate-secret/': { grace_period_seconds: 60 },
    '/api/admin/projections/{name}/rebuild/': { swap: true },
  };
  const scalars = [
    null,
    true,
    false,
    0,
    1,
    -1,
    1.5,
    1e300,
    '',
    ' ',
    'x',
    '1',
    'true',
    '\0',
    'a\0b',
    '\ud800',
  ];
  const nested = [[], [null], [1], ['x'], ['\0'], [[]], [{}], {}, { a: 1 }];
  const large = ['é'.repeat(70_000), Array.from({ length: 1000 }, () => 'x')];
  const values: readonly unknown[] = [...scalars, ...nested, ...large, undefined];
  /** Nobody observes: to want a new read is to wait for it. */
  const isWaitedFor = ({ field, value }: { field: string; value: unknown }): boolean =>
    (field === 'force_refresh' && value === true) || (field === 'max_age' && (value === 0 || value === 1));
  const withBody = (): Operation[] => operations.filter(({ body }) => body !== null);
  const bodyOf = ({ path }: Operation): Readonly<Record<string, unknown>> => {
    const body = bodies[path];
    if (body === undefined) throw new Error(`no good body of ${path} is known here`);
    return body;
  };

  it('that the document does not allow is rejected by name, at most 4xx', async () => {
    const { json: document } = await world.call('GET', '/api/openapi.json');
    const ajv = new Ajv2020({ strict: false });
    addFormats.default(ajv);
    let refused = 0;
    for (const operation of withBody()) {
      const { body } = operation;
      const isValid = ajv.compile({ ...body, components: document.components });
      const fields = Object.keys(Object(body?.['properties']));
      const forms = fields
        .flatMap((field) => values.map((value) => ({ field, value })))
        .filter((form) => !isWaitedFor(form));
      await forEach(forms, async ({ field, value }) => {
        const sent = { ...bodyOf(operation), [field]: value };
        const { status, json } = await ask(operation, urlWith(operation, null, null), JSON.stringify(sent));
        if (isValid(JSON.parse(JSON.stringify(sent)))) return;
        refused += 1;
        const what = `${operation.path} ${field}: ${JSON.stringify(value)?.slice(0, 100)}`;
        expect(status, what).toBe(400);
        expect(Object.keys(json.errors ?? {}), what).toEqual([field]);
      });
    }
    expect(refused).toBeGreaterThan(100);
  });

  it('is read from a JSON object only', async () => {
    const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`;
    // Read as an object without any field that is known: nothing is wrong where none is required.
    const empty = ['', Buffer.from('7b22ff223a317d', 'hex')];
    const broken = [
      '{',
      'nothing',
      '{"a":1',
      "{'a':1}",
      '\0',
      '{"a":\0}',
      '[]',
      '[1]',
      '"x"',
      '1',
      'null',
      '{"__proto__":{}}', // refused by the parser
      deep,
    ];
    for (const operation of withBody()) {
      const url = urlWith(operation, null, null);
      const isAnyRequired = operation.body?.['required'] !== undefined;
      for (const body of [...broken, Buffer.from([0xff, 0xfe, 0x7b]), ...(isAnyRequired ? empty : [])]) {
        const { status } = await ask(operation, url, body);
        expect(status, `${operation.path} ${String(body).slice(0, 50)}`).toBe(400);
      }
      const tooLarge = JSON.stringify({ ...bodyOf(operation), more: 'x'.repeat(1_100_000) });
      expect((await ask(operation, url, tooLarge)).status, operation.path).toBe(413);
    }
  });

  it('that is unknown is ignored', async () => {
    for (const operation of withBody()) {
      const body = JSON.stringify(bodyOf(operation));
      const more = `${body.slice(0, -1)},"nobody":1,"constructor":null,"toString":[],"":2}`;
      const url = urlWith(operation, null, null);
      const { status } = await ask(operation, url, body);
      expect((await ask(operation, url, more)).status, operation.path).toBe(status);
    }
  });
});
