import { createHash, randomUUID } from 'node:crypto';

import { afterAll, beforeAll, beforeEach, describe, expect, it, test } from 'vitest';
import { z } from 'zod';

import { createSealing } from '../../../infra/sealing.ts';
import { secretOf } from '../../../projections/webhooks/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { openApiChecker } from '../../support/openapi.ts';
import type { Complaints } from '../../support/openapi.ts';
import { logOf } from '../../support/topic.ts';

/** Webhooks through HTTP, on the real log, projector and stores. What the dispatcher writes down is put there by hand. */

const WEBHOOKS = '/api/webhooks/';
const of = (id: number, rest = ''): string => `${WEBHOOKS}${id}/${rest}`;
/** Public, and called by nobody: a URL is looked at when a webhook is made, not called. */
const PUBLIC = 'https://93.184.215.14/hook';
const TOKEN = `0x${'0'.repeat(61)}abc`;
const ACCOUNT = `0x${'0'.repeat(63)}7`;

let world: ApiWorld;
let complaints: Complaints;
let schema: string;
let alice: { token: string; id: number };
let mallory: { token: string; id: number };
/** Everything that must appear in no topic, table, log line or error. */
const secrets = new Set<string>();
const errors: string[] = [];
/** Answers that show no secret. */
const others: string[] = [];

beforeAll(async () => {
  // A busy machine is no reason for a 503.
  world = await apiWorld({ WEBHOOK_ALLOW_NETWORKS: '127.0.0.2/32', COMMAND_TIMEOUT_MS: '30000' });
  complaints = await openApiChecker(world);
  schema = (await servedBuilds(world.pool)).schema('webhooks');
  mallory = await world.makeUser('mallory');
});
afterAll(async () => {
  await world.close();
});
let users = 0;
beforeEach(async () => {
  alice = await world.makeUser(`alice-${(users += 1)}`);
});

interface Options {
  readonly token?: string;
  readonly key?: string;
}

/** A call whose answer must be as the OpenAPI document says. */
async function call(method: string, path: string, json?: unknown, options: Options = {}): Promise<Answer> {
  const answer = await world.call(method, path, {
    token: options.token ?? alice.token,
    ...(json === undefined ? {} : { json }),
    ...(options.key === undefined ? {} : { headers: { 'Idempotency-Key': options.key } }),
  });
  expect(complaints(method, path, answer)).toEqual([]);
  if (answer.json?.secret !== undefined) secrets.add(answer.json.secret);
  else others.push(answer.text);
  if (answer.status >= 400) errors.push(answer.text);
  return answer;
}
const good = { name: 'mine', url: PUBLIC, events: ['transfer.created'] };
async function make(rest: Record<string, unknown> = {}, options: Options = {}): Promise<Answer['json']> {
  const answer = await call('POST', WEBHOOKS, { ...good, ...rest }, options);
  expect([answer.status, answer.json.errors]).toEqual([201, undefined]);
  return answer.json;
}
const read = async (id: number): Promise<Answer['json']> => (await call('GET', of(id))).json;

async function rowOf(id: number): Promise<Record<string, unknown>> {
  const { rows } = await world.pool.query(`SELECT * FROM ${schema}.webhooks WHERE id = $1`, [id]);
  return rows[0] ?? {};
}
async function requestsOf(id: number): Promise<unknown[]> {
  const { rows } = await world.pool.query(
    `SELECT kind, delivery_id FROM ${schema}.webhook_requests WHERE webhook_id = $1 ORDER BY command_offset`,
    [id],
  );
  return rows;
}

/** As the dispatcher writes a delivery down. */
async function deliver(
  webhookId: number,
  { event = 'transfer.created', ...columns }: Record<string, unknown> & { readonly event?: string } = {},
): Promise<string> {
  const id = randomUUID();
  const row: Record<string, unknown> = {
    id,
    webhook_id: webhookId,
    event,
    body: JSON.stringify({ event, created_at: '2026-01-02T03:04:05.678Z', data: { block: 7 } }),
    created_at: 1_767_323_045_678,
    ...columns,
  };
  const names = Object.keys(row);
  await world.pool.query(
    `INSERT INTO tds.webhook_deliveries (${names.join(', ')}) VALUES (${names.map((_, i) => `$${i + 1}`).join(', ')})`,
    Object.values(row),
  );
  return id;
}

const unsubscribed = { token: '', address: '', price_above: '', price_below: '' };

describe('a webhook', () => {
  it('that was created is found at its Location', async () => {
    const { status, headers, json } = await call('POST', WEBHOOKS, good);
    expect([status, headers.get('location')]).toEqual([201, of(json.id)]);
    expect((await call('GET', headers.get('location') ?? '')).json.id).toBe(json.id);
    expect((await call('DELETE', of(json.id))).status).toBe(204);
  });

  it('is created, shown and listed as the contract says, with its secret shown once', async () => {
    const before = Date.now();
    const made = await make({
      name: ' My hook ',
      url: `${PUBLIC}?q=1`,
      events: ['price.threshold', 'transfer.created'],
      subscriptions: [
        { token: '0xABC', price_above: '1.50' },
        { address: '0x07', token: '' },
      ],
    });
    const record = {
      id: expect.any(Number),
      name: 'My hook',
      url: `${PUBLIC}?q=1`,
      events: ['price.threshold', 'transfer.created'],
      status: 'active',
      subscriptions: [
        { ...unsubscribed, id: made.id * 1000, token: TOKEN, price_above: '1.50' },
        { ...unsubscribed, id: made.id * 1000 + 1, address: ACCOUNT },
      ],
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      updated_at: made.created_at,
      disabled_at: null,
      disabled_reason: null,
      consecutive_dead: 0,
      last_delivery_at: null,
    };
    expect(made).toEqual({ ...record, secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/) });
    expect(Date.parse(made.created_at)).toBeGreaterThanOrEqual(before);
    const { secret: _secret, ...shown } = made;
    expect(await read(made.id)).toEqual(shown);
    const other = await make();
    expect(other.subscriptions).toEqual([]);
    expect(other.secret).not.toBe(made.secret);
    const { status, json } = await call('GET', WEBHOOKS);
    expect([status, json]).toEqual([200, [shown, await read(other.id)]]);
    // What the dispatcher opens is what was shown.
    const sealing = createSealing(Buffer.from(world.env['SECRET_KEY'] ?? '', 'hex'));
    expect(sealing.open(String((await rowOf(made.id))['secret']), secretOf(alice.id))).toBe(made.secret);
  });

  it('is rejected with a URL that may not be called, on creation and on change', async () => {
    expect((await make({ url: 'http://127.0.0.2:9/hook' })).url).toBe('http://127.0.0.2:9/hook');
    const { id } = await make();
    const refused = [
      'http://127.0.0.1/',
      'https://127.1/',
      'https://10.0.0.1/',
      'https://169.254.169.254/latest/',
      'https://[::1]/',
      'http://93.184.215.14/',
      'ftp://93.184.215.14/',
    ];
    for (const url of refused) {
      for (const [method, path] of [
        ['POST', WEBHOOKS],
        ['PATCH', of(id)],
      ] as const) {
        const { status, json } = await call(method, path, { ...good, url });
        expect([url, status, Object.keys(json.errors)]).toEqual([url, 400, ['url']]);
      }
    }
    expect((await read(id)).url).toBe(PUBLIC);
    expect((await call('GET', WEBHOOKS)).json).toHaveLength(2);
  });

  it('stores the head at the time of its request as the height that it starts above', async () => {
    const status = `${(await servedBuilds(world.pool)).schema('chain-status')}.status`;
    expect((await rowOf((await make()).id))['from_block']).toBe(-1);
    await world.pool.query(`UPDATE ${status} SET head_height = 123`);
    expect((await rowOf((await make()).id))['from_block']).toBe(123);
    await world.pool.query(`UPDATE ${status} SET head_height = NULL`);
  });

  it('changes only the fields in the body', async () => {
    const { secret: _secret, ...made } = await make({ subscriptions: [{ token: TOKEN }] });
    const named = await call('PATCH', of(made.id), { name: 'other', nobody: 1 });
    expect([named.status, named.json]).toEqual([
      200,
      { ...made, name: 'other', updated_at: named.json.updated_at },
    ]);
    expect(named.json.updated_at > made.updated_at).toBe(true);
    expect(await read(made.id)).toEqual(named.json);

    const url = 'https://93.184.215.14/elsewhere';
    const several = await call('PATCH', of(made.id), { url, events: ['token.launched', 'balance.changed'] });
    expect(several.json).toMatchObject({
      name: 'other',
      url,
      events: ['token.launched', 'balance.changed'],
      subscriptions: made.subscriptions,
    });

    const replaced = await call('PATCH', of(made.id), { subscriptions: [{ address: '0x7' }, {}] });
    expect(replaced.json.subscriptions).toEqual([
      { ...unsubscribed, id: expect.any(Number), address: ACCOUNT },
      { ...unsubscribed, id: expect.any(Number) },
    ]);
    const ids = [...made.subscriptions, ...replaced.json.subscriptions].map(({ id }) => id);
    expect(new Set(ids).size).toBe(3);
    expect((await call('PATCH', of(made.id), { subscriptions: [] })).json.subscriptions).toEqual([]);
    expect((await read(made.id)).subscriptions).toEqual([]);
    // Nothing at all is a change, too.
    expect((await call('PATCH', of(made.id), {})).status).toBe(200);
    expect((await call('PATCH', of(made.id))).status).toBe(200);
  });

  it('is paused, disabled and activated by its owner', async () => {
    const { id } = await make();
    const to = async (status: unknown): Promise<Answer> => await call('PATCH', of(id), { status });
    expect((await to('paused')).json).toMatchObject({ status: 'paused', disabled_at: null });
    const disabled = (await to('disabled')).json;
    expect(disabled).toMatchObject({
      status: 'disabled',
      disabled_at: disabled.updated_at,
      disabled_reason: 'Disabled by its owner.',
    });
    expect((await to('disabled')).json.disabled_at).toBe(disabled.disabled_at);
    const active = { status: 'active', disabled_at: null, disabled_reason: null };
    expect((await to('active')).json).toMatchObject(active);
    expect(await read(id)).toMatchObject(active);
    for (const wrong of ['enabled', 'Active', '', null, 1]) {
      const { status, json } = await to(wrong);
      expect([wrong, status, Object.keys(json.errors)]).toEqual([wrong, 400, ['status']]);
    }
  });

  it('is disabled by the dispatcher, unless its owner was faster; activation resets the count', async () => {
    const { id } = await make();
    const activation = async (): Promise<number> => Number((await rowOf(id))['activation']);
    const disable = async (of: number) =>
      await world.commands.submit({
        type: 'webhook.disable',
        actor: 'system',
        body: { webhook_id: id, activation: of, reason: '10 deliveries in a row failed for good.' },
      });
    const died = async (count: number): Promise<void> => {
      await world.pool.query(
        `INSERT INTO tds.webhook_endpoints (webhook_id, activation, consecutive_dead, last_delivery_at)
         VALUES ($1, $2, $3, 1767323045678)
         ON CONFLICT (webhook_id) DO UPDATE SET activation = $2, consecutive_dead = $3`,
        [id, await activation(), count],
      );
    };
    const first = await activation();
    await died(9);
    const streak = { consecutive_dead: 9, last_delivery_at: '2026-01-02T03:04:05.678Z' };
    expect(await read(id)).toMatchObject(streak);
    expect((await call('GET', WEBHOOKS)).json[0]).toMatchObject(streak);
    expect((await call('PATCH', of(id), { name: 'n' })).json).toMatchObject(streak);
    await died(10);
    expect((await disable(first)).accepted).toBe(true);
    expect(await read(id)).toMatchObject({
      status: 'disabled',
      disabled_at: expect.any(String),
      disabled_reason: '10 deliveries in a row failed for good.',
      consecutive_dead: 10,
    });
    const enabled = { status: 'active', disabled_at: null, consecutive_dead: 0 };
    const { json } = await call('PATCH', of(id), { status: 'active' });
    expect(json).toMatchObject({ ...enabled, last_delivery_at: '2026-01-02T03:04:05.678Z' });
    expect((await disable(first)).accepted).toBe(false);
    expect(await read(id)).toMatchObject(enabled);
    // While it is active, too.
    await died(4);
    expect((await read(id)).consecutive_dead).toBe(4);
    expect((await call('PATCH', of(id), { status: 'active' })).json.consecutive_dead).toBe(0);
  });

  it('is deleted with its subscriptions, and its deletion is requested of the dispatcher', async () => {
    const { id } = await make({ subscriptions: [{ token: TOKEN }] });
    const { status, text } = await call('DELETE', of(id));
    expect([status, text]).toEqual([204, '']);
    expect(await requestsOf(id)).toEqual([{ kind: 'delete', delivery_id: null }]);
    const { rowCount } = await world.pool.query(
      `SELECT 1 FROM ${schema}.webhook_subscriptions WHERE webhook_id = $1`,
      [id],
    );
    expect(rowCount).toBe(0);
    for (const [method, path, json] of everyRoute(id, await deliver(id))) {
      expect([method, path, (await call(method, path, json)).status]).toEqual([method, path, 404]);
    }
  });

  it('is one of at most 100, also when created concurrently', async () => {
    const answers = await Promise.all(
      Array.from({ length: 104 }, (_, i) => call('POST', WEBHOOKS, { ...good, name: `hook ${i}` })),
    );
    const made = answers.filter(({ status }) => status === 201);
    expect(made).toHaveLength(100);
    expect(new Set(made.map(({ json }) => json.id)).size).toBe(100);
    for (const { status, json } of answers.filter((answer) => answer.status !== 201)) {
      expect([status, json.code, json.detail]).toEqual([
        409,
        'conflict',
        expect.stringContaining('100 webhooks'),
      ]);
    }
    const [first] = made;
    expect((await call('DELETE', of(first?.json.id))).status).toBe(204);
    await make();
    // Of others' webhooks none counts.
    await make({}, { token: mallory.token });
  });

  it('accepts a thousand subscriptions, and returns them in order', async () => {
    const subscriptions = Array.from({ length: 1000 }, (_, i) => ({ token: `0x${(i + 1).toString(16)}` }));
    const made = await make({ subscriptions });
    const tokens = made.subscriptions.map(({ token }: { token: string }) => Number(token));
    expect(tokens).toEqual(Array.from({ length: 1000 }, (_, i) => i + 1));
    expect((await read(made.id)).subscriptions).toEqual(made.subscriptions);
    const { status } = await call('PATCH', of(made.id), { subscriptions: [...subscriptions, {}] });
    expect(status).toBe(400);
  });
});

test('concurrent changes are each applied whole, and the last one stays', async () => {
  const { id } = await make();
  const changes = await Promise.all(
    Array.from({ length: 12 }, (_, i) =>
      call('PATCH', of(id), {
        name: `name ${i}`,
        subscriptions: Array.from({ length: i + 1 }, () => ({ token: `0x${i + 1}` })),
      }),
    ),
  );
  for (const [i, { status, json }] of changes.entries()) {
    expect([status, json.name, json.subscriptions.length]).toEqual([200, `name ${i}`, i + 1]);
  }
  const last = changes
    .map(({ json }) => json)
    .toSorted((a, b) => b.subscriptions[0].id - a.subscriptions[0].id)[0];
  expect(await read(id)).toEqual(last);
  // A deletion among them: what came before was done, what came after is not found.
  const mixed = await Promise.all([
    ...Array.from({ length: 6 }, (_, i) => call('PATCH', of(id), { name: `late ${i}` })),
    call('DELETE', of(id)),
    ...Array.from({ length: 6 }, () => call('POST', of(id, 'rotate-secret/'))),
  ]);
  expect(mixed[6]?.status).toBe(204);
  expect(mixed.every(({ status }) => [200, 204, 404].includes(status))).toBe(true);
  expect((await call('GET', of(id))).status).toBe(404);
});

/** Every route of one webhook. */
const everyRoute = (id: number, deliveryId: string): [string, string, unknown?][] => [
  ['GET', of(id)],
  ['PATCH', of(id), { name: 'stolen' }],
  ['PATCH', of(id), { url: PUBLIC }],
  ['PATCH', of(id), { url: 'http://127.0.0.1/' }],
  ['PATCH', of(id), { status: 'active' }],
  ['POST', of(id, 'test/')],
  ['POST', of(id, 'rotate-secret/')],
  ['POST', of(id, 'rotate-secret/'), { grace_period_seconds: 60 }],
  ['GET', of(id, 'deliveries/')],
  ['GET', of(id, 'deliveries/?page=7')],
  ['GET', of(id, 'stats/')],
  ['POST', of(id, `deliveries/${deliveryId}/retry/`)],
  ['POST', of(id, 'deliveries/retry/'), { start_time: '2026-01-01', end_time: '2026-02-01' }],
  ['DELETE', of(id)],
];

test('answers 404 for the webhook of another user on every route', async () => {
  const made = await make({ subscriptions: [{ token: TOKEN }] });
  const deliveryId = await deliver(made.id);
  const before = await rowOf(made.id);
  for (const id of [made.id, 0, 999_999_999, Number.MAX_SAFE_INTEGER]) {
    for (const [method, path, json] of everyRoute(id, deliveryId)) {
      const answer = await call(method, path, json, { token: mallory.token });
      const { request_id: _id, ...body } = answer.json;
      expect([method, path, answer.status, body]).toEqual([
        method,
        path,
        404,
        { detail: 'Not found.', code: 'not_found', status: 404 },
      ]);
    }
  }
  expect(await rowOf(made.id)).toEqual(before);
  expect(await requestsOf(made.id)).toEqual([]);
  expect((await call('GET', WEBHOOKS, undefined, { token: mallory.token })).text).not.toContain(
    made.created_at,
  );
  // A delivery of another webhook of the same user is none of this one.
  const mine = await make();
  expect((await call('POST', of(mine.id, `deliveries/${deliveryId}/retry/`))).status).toBe(404);
});

test('rejects requests without a session', async () => {
  for (const [method, path, json] of [
    ...everyRoute(1, randomUUID()),
    ['GET', WEBHOOKS],
    ['POST', WEBHOOKS, good],
    ['GET', `${WEBHOOKS}events/`],
  ] as [string, string, unknown?][]) {
    const answer = await world.call(method, path, json === undefined ? {} : { json });
    expect([path, answer.status, answer.headers.get('www-authenticate')]).toEqual([path, 401, 'Bearer']);
  }
});

describe('Idempotency-Key', () => {
  it('returns the same webhook and secret on a retry, and creates one only', async () => {
    const body = { ...good, name: 'once', subscriptions: [{ token: TOKEN }] };
    const [first, ...repeats] = await Promise.all(
      [1, 2, 3, 4].map(() => call('POST', WEBHOOKS, body, { key: 'make' })),
    );
    await call('PATCH', of(first?.json.id), { name: 'changed since' });
    repeats.push(await call('POST', WEBHOOKS, { ...body, name: ' once' }, { key: 'make' }));
    for (const { status, json } of repeats) expect([status, json]).toEqual([201, first?.json]);
    expect((await call('GET', WEBHOOKS)).json).toHaveLength(1);
    const reused = await call('POST', WEBHOOKS, good, { key: 'make' });
    expect([reused.status, reused.json.code]).toEqual([422, 'idempotency_key_reused']);
    const theirs = await call('POST', WEBHOOKS, body, { key: 'make', token: mallory.token });
    expect(theirs.json.id).not.toBe(first?.json.id);
    expect(theirs.json.secret).not.toBe(first?.json.secret);
  });

  it('rotates, tests, changes and deletes once', async () => {
    const { id, secret } = await make();
    const rotate = async (key: string): Promise<Answer> =>
      await call('POST', of(id, 'rotate-secret/'), undefined, { key });
    const [once, again] = [await rotate('rotate'), await rotate('rotate')];
    expect([again.status, again.json]).toEqual([200, once.json]);
    const other = await rotate('rotate more');
    expect(new Set([secret, once.json.secret, other.json.secret]).size).toBe(3);

    const test = async (webhook: number): Promise<Answer> =>
      await call('POST', of(webhook, 'test/'), undefined, { key: 'test' });
    expect((await test(id)).json).toEqual((await test(id)).json);
    expect(await requestsOf(id)).toHaveLength(1);
    expect((await test((await make()).id)).status).toBe(422);

    const change = async (): Promise<Answer> => await call('PATCH', of(id), { name: 'n' }, { key: 'change' });
    expect((await change()).json).toEqual((await change()).json);
    const remove = async (): Promise<number> =>
      (await call('DELETE', of(id), undefined, { key: 'remove' })).status;
    expect([await remove(), await remove()]).toEqual([204, 204]);
    expect((await call('DELETE', of(id))).status).toBe(404);
  });

  it('answers 404 for a webhook that was deleted since, and creates no other', async () => {
    const create = async (): Promise<Answer> => await call('POST', WEBHOOKS, good, { key: 'gone' });
    const { id } = (await create()).json;
    const rotate = async (): Promise<Answer> =>
      await call('POST', of(id, 'rotate-secret/'), undefined, { key: 'gone' });
    expect((await rotate()).status).toBe(200);
    await call('DELETE', of(id));
    for (const { status, json } of [await create(), await rotate()]) {
      expect([status, json.detail]).toEqual([404, 'The webhook was deleted.']);
    }
    expect((await call('GET', WEBHOOKS)).json).toEqual([]);
    const { rows } = await world.pool.query(
      `SELECT type, result FROM ${schema}.command_outcomes WHERE result::text ~ $1`,
      [`\\y${id}\\y`],
    );
    expect(rows).toEqual([{ type: 'webhook.delete', result: { id } }]);
  });

  it('returns the first answer also where the URL could not be called any more', async () => {
    const strict = await world.anotherApi({ env: { WEBHOOK_ALLOW_NETWORKS: '127.0.0.9/32' } });
    const body = { ...good, url: 'http://127.0.0.2/hook' };
    const headers = { 'Idempotency-Key': 'moved' };
    const { token } = alice;
    const again = async (method: string, path: string, first: Answer, json: unknown): Promise<void> => {
      const answer = await strict.call(method, path, { token, json, headers });
      expect([answer.status, answer.json]).toEqual([first.status, first.json]);
      expect((await strict.call(method, path, { token, json })).json.errors).toHaveProperty('url');
    };
    const created = await call('POST', WEBHOOKS, body, { key: 'moved' });
    expect(created.status).toBe(201);
    await again('POST', WEBHOOKS, created, body);
    const path = of(created.json.id);
    const changed = await call('PATCH', path, { url: body.url }, { key: 'moved' });
    expect(changed.status).toBe(200);
    await again('PATCH', path, changed, { url: body.url });
    await strict.close();
  });

  it('finds the webhook that was created after the timeout', async () => {
    const late = await world.anotherApi({ env: { COMMAND_TIMEOUT_MS: '300' } });
    const ask = async (api: Pick<ApiWorld, 'call'>): Promise<Answer> =>
      await api.call('POST', WEBHOOKS, {
        token: alice.token,
        json: good,
        headers: { 'Idempotency-Key': 'late' },
      });
    await world.stopProjector();
    try {
      const { status, json } = await ask(late);
      expect([status, json.code]).toEqual([503, 'command_timeout']);
    } finally {
      await world.startProjector();
    }
    const found = await ask(world);
    secrets.add(found.json.secret);
    expect(found.status).toBe(201);
    expect((await call('GET', WEBHOOKS)).json).toHaveLength(1);
    await late.close();
  });
});

describe('a new secret', () => {
  const open = (sealed: unknown): string =>
    createSealing(Buffer.from(world.env['SECRET_KEY'] ?? '', 'hex')).open(String(sealed), secretOf(alice.id));

  it('replaces the previous one at once', async () => {
    const { id, secret } = await make();
    const { status, json } = await call('POST', of(id, 'rotate-secret/'));
    expect([status, json]).toEqual([
      200,
      { id, secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/), rotated_at: expect.any(String) },
    ]);
    expect(json.secret).not.toBe(secret);
    const row = await rowOf(id);
    expect([open(row['secret']), row['previous_secret'], row['previous_until']]).toEqual([
      json.secret,
      null,
      null,
    ]);
    expect((await read(id)).updated_at).toBe(json.rotated_at);
  });

  it('or signs beside it for the grace period', async () => {
    const { id, secret } = await make();
    const rotate = async (seconds: number): Promise<Answer['json']> =>
      (await call('POST', of(id, 'rotate-secret/'), { grace_period_seconds: seconds })).json;
    const second = await rotate(3600);
    expect(Date.parse(second.previous_secret_expires_at) - Date.parse(second.rotated_at)).toBe(3_600_000);
    const row = await rowOf(id);
    expect([open(row['secret']), open(row['previous_secret']), row['previous_until']]).toEqual([
      second.secret,
      secret,
      Date.parse(second.previous_secret_expires_at),
    ]);
    // The one before the last is good no more.
    const third = await rotate(604_800);
    expect(open((await rowOf(id))['previous_secret'])).toBe(second.secret);
    expect(third.previous_secret_expires_at > second.previous_secret_expires_at).toBe(true);
    expect((await rotate(0)).previous_secret_expires_at).toBeUndefined();
    expect((await rowOf(id))['previous_secret']).toBeNull();
    for (const wrong of [-1, 604_801, '60', 1.5, null]) {
      const answer = await call('POST', of(id, 'rotate-secret/'), { grace_period_seconds: wrong });
      expect([answer.status, Object.keys(answer.json.errors)]).toEqual([400, ['grace_period_seconds']]);
    }
  });
});

describe('deliveries', () => {
  it('are shown as the contract says', async () => {
    const { id } = await make();
    const pending = await deliver(id, { scheduled_at: 1_767_323_046_000, created_at: 1_767_323_046_000 });
    const failed = await deliver(id, {
      status: 'failed',
      attempts: 3,
      scheduled_attempts: 2,
      manual: true,
      scheduled_at: 1_767_323_100_000,
      manual_at: 1_767_323_090_000,
      due_at: 1_767_323_090_000,
      response_code: 500,
      response_body: 'no\nthanks',
      error: 'answered 500',
      duration_ms: 12,
      last_attempt_at: 1_767_323_080_000,
    });
    const { json } = await call('GET', of(id, 'deliveries/'));
    const payload = { event: 'transfer.created', created_at: '2026-01-02T03:04:05.678Z', data: { block: 7 } };
    expect(json).toEqual({
      links: { next: null, previous: null },
      count: 2,
      total_pages: 1,
      results: [
        {
          id: pending,
          event: 'transfer.created',
          status: 'pending',
          attempt: 0,
          response_code: null,
          response_body: null,
          error: null,
          duration_ms: null,
          payload,
          manual: false,
          created_at: '2026-01-02T03:04:06.000Z',
          last_attempt_at: null,
          next_attempt_at: '2026-01-02T03:04:06.000Z',
        },
        {
          id: failed,
          event: 'transfer.created',
          status: 'failed',
          attempt: 3,
          response_code: 500,
          response_body: 'no\nthanks',
          error: 'answered 500',
          duration_ms: 12,
          payload,
          manual: true,
          created_at: '2026-01-02T03:04:05.678Z',
          last_attempt_at: '2026-01-02T03:04:40.000Z',
          next_attempt_at: '2026-01-02T03:04:50.000Z',
        },
      ],
    });
  });

  it('are paged newest first, each once, filtered by status and event', async () => {
    const { id } = await make();
    const other = await make();
    await deliver(other.id);
    const empty = await call('GET', of(id, 'deliveries/'));
    expect([empty.status, empty.json.count, empty.json.total_pages, empty.json.results]).toEqual([
      200,
      0,
      1,
      [],
    ]);
    const statuses = ['pending', 'success', 'failed', 'dead'];
    const events = ['transfer.created', 'price.threshold', 'ping'];
    const made: { id: string; created_at: number; status: string; event: string }[] = [];
    for (let i = 0; i < 61; i += 1) {
      // Several of one millisecond.
      const columns = {
        created_at: 1_767_000_000_000 + Math.floor(i / 4),
        status: statuses[i % 4] ?? '',
        event: events[i % 3] ?? '',
      };
      made.push({ id: await deliver(id, columns), ...columns });
    }
    const newestFirst = made.toSorted((a, b) => b.created_at - a.created_at || (a.id < b.id ? -1 : 1));
    const pages = async (query: string): Promise<string[]> => {
      const ids: string[] = [];
      let path: string | null = `?${query}`;
      while (path !== null) {
        const { status, json } = await call('GET', of(id, `deliveries/${path}`));
        expect(status).toBe(200);
        ids.push(...json.results.map((one: { id: string }) => one.id));
        path = json.links.next;
      }
      return ids;
    };
    const idsOf = (rows: readonly { id: string }[]): string[] => rows.map((row) => row.id);
    expect(await pages('limit=7')).toEqual(idsOf(newestFirst));
    const first = (await call('GET', of(id, 'deliveries/'))).json;
    expect([first.results.length, first.count, first.total_pages, first.links]).toEqual([
      25,
      61,
      3,
      { next: '?page=2&limit=25', previous: null },
    ]);
    expect((await call('GET', of(id, 'deliveries/?limit=500'))).json.results).toHaveLength(61);
    for (const status of statuses) {
      expect(await pages(`status=${status}&limit=4`)).toEqual(
        idsOf(newestFirst.filter((one) => one.status === status)),
      );
    }
    expect(await pages('event=ping&status=dead&limit=2')).toEqual(
      idsOf(newestFirst.filter((one) => one.status === 'dead' && one.event === 'ping')),
    );
    expect((await call('GET', of(id, 'deliveries/?event=token.launched'))).json.count).toBe(0);
    const past = await call('GET', of(id, 'deliveries/?page=4'));
    expect([past.status, past.json.detail]).toEqual([404, 'Invalid page.']);
    for (const wrong of ['status=done', 'event=transfer']) {
      const { status, json } = await call('GET', of(id, `deliveries/?${wrong}`));
      expect([status, Object.keys(json.errors)]).toEqual([400, [wrong.split('=')[0]]]);
    }
  });

  it('of an inactive webhook show a next attempt only where one is made', async () => {
    const { id } = await make();
    const [rests, byHand, tested, again] = [
      await deliver(id, { status: 'failed', attempts: 1, scheduled_at: 1000, due_at: 1000 }),
      await deliver(id, { status: 'failed', attempts: 1, scheduled_at: 1000, manual_at: 2000, due_at: 1000 }),
      await deliver(id, { is_test: true, event: 'ping', scheduled_at: 3000, due_at: 3000 }),
      await deliver(id, { is_test: true, event: 'ping', attempts: 1, scheduled_at: 4000, due_at: 4000 }),
    ];
    const at = async (): Promise<(string | null)[]> => {
      const { json } = await call('GET', of(id, 'deliveries/'));
      const next = new Map(
        json.results.map((one: { id: string; next_attempt_at: string | null }) => [
          one.id,
          one.next_attempt_at,
        ]),
      );
      return [rests, byHand, tested, again].map((one) => (next.get(one) ?? null) as string | null);
    };
    const second = (n: number): string => `1970-01-01T00:00:0${n}.000Z`;
    expect(await at()).toEqual([second(1), second(1), second(3), second(4)]);
    for (const status of ['paused', 'disabled']) {
      await call('PATCH', of(id), { status });
      expect(await at()).toEqual([null, second(2), second(3), null]);
    }
  });

  /** Successes that were created at 1 to `count` ms, or from `first` on. */
  const fill = async (webhook: number, count: number, first = 1): Promise<unknown> =>
    await world.pool.query(
      `INSERT INTO tds.webhook_deliveries (id, webhook_id, event, body, created_at, status)
       SELECT gen_random_uuid(), $1, 'transfer.created', $2, n, 'success' FROM generate_series($3::int, $4::int) AS n`,
      [
        webhook,
        JSON.stringify({ event: 'transfer.created', created_at: '2026-01-02T03:04:05.678Z', data: {} }),
        first,
        count,
      ],
    );

  it('above 10,000 are counted by estimate, and all can be reached', async () => {
    const { id } = await make();
    const ask = async (query: string): Promise<Answer> => await call('GET', of(id, `deliveries/?${query}`));
    await fill(id, 10_000);
    const { json: exact } = await ask('page=last');
    expect([exact.count, exact.count_is_estimate, exact.total_pages]).toEqual([10_000, undefined, 400]);
    await fill(id, 30_000, 10_001);
    await world.pool.query('ANALYZE tds.webhook_deliveries');
    const { json: many } = await ask('limit=100');
    expect([many.count_is_estimate, many.count > 10_000, many.results.length]).toEqual([true, true, 100]);
    expect(Math.abs(many.count - 30_000)).toBeLessThan(15_000);
    const { json: last } = await ask('limit=100&page=last');
    const times = last.results.map((one: { created_at: string }) => Date.parse(one.created_at));
    expect(times).toEqual(Array.from({ length: 100 }, (_, i) => 100 - i));
    const { json: none } = await ask('status=dead');
    expect([none.count, none.count_is_estimate, none.total_pages]).toEqual([0, undefined, 1]);
    // Of fewer than the planner takes them for, what lies behind the end is no page.
    await world.pool.query(
      'DELETE FROM tds.webhook_deliveries WHERE webhook_id = $1 AND created_at <= 19000',
      [id],
    );
    const { status } = await ask(`page=${String(many.total_pages)}&limit=100`);
    expect(status).toBe(404);
    await world.pool.query('DELETE FROM tds.webhook_deliveries WHERE webhook_id = $1', [id]);
  });

  it('beyond an estimate that is too low can be reached', async () => {
    const [{ id: other }, { id }] = [await make(), await make()];
    // The planner takes this webhook for one of few deliveries.
    await fill(other, 10_000);
    await fill(id, 1);
    await world.pool.query('ANALYZE tds.webhook_deliveries');
    await fill(id, 15_024);
    const ask = async (query: string): Promise<Answer> => await call('GET', of(id, `deliveries/?${query}`));
    const { json: first } = await ask('limit=100');
    expect([first.count, first.count_is_estimate, first.total_pages]).toEqual([10_001, true, 101]);
    const { json: beyond } = await ask('limit=100&page=120');
    expect([beyond.results.length, beyond.count, beyond.total_pages]).toEqual([100, 12_001, 121]);
    expect(beyond.links.next).toContain('page=121');
    const { json: end } = await ask('limit=100&page=151');
    expect([end.results.length, end.count, end.links.next]).toEqual([25, 15_025, null]);
    expect((await ask('limit=100&page=152')).status).toBe(404);
    await world.pool.query('DELETE FROM tds.webhook_deliveries WHERE webhook_id = ANY($1)', [[id, other]]);
  });

  it.each([100, 99])('above 10,000 end with the last page that has any, at %i per page', async (limit) => {
    const { id } = await make();
    await fill(id, 10_500);
    await world.pool.query('ANALYZE tds.webhook_deliveries');
    // The planner goes on from the number of rows that it has seen.
    await world.pool.query('DELETE FROM tds.webhook_deliveries WHERE webhook_id = $1 AND created_at <= 300', [
      id,
    ]);
    const answers: unknown[] = [];
    let next: string | null = `?page=101&limit=${limit}`;
    let last: Answer['json'] = null;
    while (next !== null && answers.length < 10) {
      const { status, json }: Answer = await call('GET', of(id, `deliveries/${next}`));
      answers.push([status, json.count_is_estimate]);
      last = json;
      next = json.links?.next ?? null;
    }
    const before = [200, true];
    expect(answers).toEqual(
      limit === 100 ? [before, [200, undefined]] : [before, before, before, [200, undefined]],
    );
    expect([last.count, last.total_pages]).toEqual([10_200, Math.ceil(10_200 / limit)]);
    await world.pool.query('DELETE FROM tds.webhook_deliveries WHERE webhook_id = $1', [id]);
  });

  it('are retried by hand unless they have succeeded', async () => {
    const { id } = await make();
    await call('PATCH', of(id), { status: 'disabled' });
    const [pending, failed, dead, success] = [
      await deliver(id, { status: 'pending' }),
      await deliver(id, { status: 'failed', attempts: 2 }),
      await deliver(id, { status: 'dead', attempts: 6 }),
      await deliver(id, { status: 'success', attempts: 1 }),
    ];
    const retry = async (deliveryId: string): Promise<Answer> =>
      await call('POST', of(id, `deliveries/${deliveryId}/retry/`));
    const { json: listed } = await call('GET', of(id, 'deliveries/'));
    for (const delivery of [pending, failed, dead]) {
      const { status, json } = await retry(delivery);
      expect([status, json]).toEqual([
        202,
        listed.results.find((one: { id: string }) => one.id === delivery),
      ]);
    }
    const asked = [pending, failed, dead].map((delivery_id) => ({ kind: 'retry', delivery_id }));
    expect(await requestsOf(id)).toEqual(asked);
    const refused = await retry(success);
    expect([refused.status, refused.json.detail]).toEqual([409, 'The delivery has succeeded already.']);
    expect((await retry(randomUUID())).status).toBe(404);
    expect((await retry('no-uuid')).status).toBe(404);
    expect(await requestsOf(id)).toEqual(asked);
  });

  it('are counted by hour and day, with the durations of their last attempts', async () => {
    const { id } = await make();
    const other = await make();
    const at = (time: string): number => Date.parse(`2026-03-${time}Z`);
    const durations = [30, 10, 20, 400, 50];
    for (const [i, duration_ms] of durations.entries())
      await deliver(id, { status: 'success', created_at: at('01T10:00:00') + i, duration_ms });
    await deliver(id, { status: 'dead', created_at: at('01T10:59:59.999'), duration_ms: 9000 });
    await deliver(id, { status: 'pending', created_at: at('01T11:00:00') });
    await deliver(id, { status: 'failed', created_at: at('02T00:00:00'), duration_ms: 7, event: 'ping' });
    await deliver(other.id, { status: 'success', created_at: at('01T10:00:00') });
    const stats = async (query: string): Promise<Answer['json']> =>
      (await call('GET', of(id, `stats/?${query}`))).json;
    const none = { success: 0, pending: 0, failed: 0, dead: 0, median_ms: null, p95_ms: null };
    const ten = { ...none, time: '2026-03-01T10:00:00.000Z', success: 5, dead: 1 };
    const eleven = { ...none, time: '2026-03-01T11:00:00.000Z', pending: 1 };
    const next = { ...none, time: '2026-03-02T00:00:00.000Z', failed: 1, median_ms: 7, p95_ms: 7 };
    const tenWhole = { ...ten, median_ms: 30, p95_ms: 9000 };
    expect(await stats('end_time=2026-03-02T01:00:00')).toEqual({
      results: [tenWhole, eleven, next],
    });
    // Both ends are inclusive.
    expect(await stats('start_time=2026-03-01T10:00:00.001&end_time=2026-03-01T11:00:00')).toEqual({
      results: [{ ...ten, success: 4, median_ms: 50, p95_ms: 9000 }, eleven],
    });
    expect(await stats('interval=1 day&end_time=2026-03-03')).toEqual({
      results: [{ ...tenWhole, time: '2026-03-01T00:00:00.000Z', pending: 1 }, next],
    });
    const backwards = await call('GET', of(id, 'stats/?start_time=2026-03-02&end_time=2026-03-01'));
    expect([backwards.status, Object.keys(backwards.json.errors)]).toEqual([400, ['start_time']]);
  });

  it('that failed in a period are retried together, once with one key', async () => {
    const { id } = await make();
    const other = await make();
    const at = Date.parse('2026-03-01T10:00:00Z');
    const period = { start_time: '2026-03-01T10:00:00Z', end_time: '2026-03-01T11:00:00Z' };
    const among = (created_at: number, status: string, rest = {}) => ({ created_at, status, ...rest });
    const early = await deliver(id, among(at, 'failed', { event: 'ping' }));
    const late = await deliver(id, among(at + 3_600_000, 'dead'));
    const left = [
      await deliver(id, among(at - 1, 'dead')),
      await deliver(id, among(at + 3_600_001, 'dead')),
      await deliver(id, among(at, 'success')),
      await deliver(id, among(at, 'pending')),
      await deliver(id, among(at, 'dead', { manual_at: at, due_at: at })),
      await deliver(other.id, among(at, 'dead')),
    ];
    const path = of(id, 'deliveries/retry/');
    const asked = async (): Promise<string[]> =>
      z
        .array(z.object({ delivery_id: z.string() }))
        .parse(await requestsOf(id))
        .map((one) => one.delivery_id);
    const key = randomUUID();
    const first = await call('POST', path, period, { key });
    expect([first.status, first.json]).toEqual([202, { retried: [late, early], remaining: 0 }]);
    expect((await asked()).toSorted()).toEqual([early, late].toSorted());
    await world.pool.query(`UPDATE tds.webhook_deliveries SET status = 'success' WHERE id = $1`, [late]);
    const failedSince = await deliver(id, among(at + 1, 'dead'));
    const again = await call('POST', path, period, { key });
    expect([again.status, again.json]).toEqual([202, first.json]);
    const otherPeriod = await call('POST', path, { ...period, end_time: '2026-03-01T10:30:00Z' }, { key });
    expect([otherPeriod.status, otherPeriod.json.code]).toEqual([422, 'idempotency_key_reused']);
    expect(await asked()).toHaveLength(2);
    expect((await call('POST', path, period)).json.retried).toEqual([failedSince, early]);
    expect(await asked()).toHaveLength(4);
    expect((await asked()).filter((one) => left.includes(one))).toEqual([]);
    const backwards = await call('POST', path, { start_time: period.end_time, end_time: period.start_time });
    expect([backwards.status, Object.keys(backwards.json.errors)]).toEqual([400, ['start_time']]);
  });

  it('are not retried by a repeated request whose first answer was empty', async () => {
    const { id } = await make();
    const path = of(id, 'deliveries/retry/');
    const period = { start_time: '2026-03-01T10:00:00Z', end_time: '2026-03-01T11:00:00Z' };
    const key = randomUUID();
    for (let i = 0; i < 2; i += 1) {
      const { status, json } = await call('POST', path, period, { key });
      expect([status, json]).toEqual([202, { retried: [], remaining: 0 }]);
      await deliver(id, { status: 'dead', created_at: Date.parse(period.start_time) });
    }
  });

  it('that failed are retried a hundred at a time, each once', async () => {
    const { id } = await make();
    const at = Date.parse('2026-03-01T10:00:00Z');
    const made: string[] = [];
    // Many have the same time, as those of one block.
    for (let i = 0; i < 130; i += 1)
      made.push(await deliver(id, { status: 'dead', created_at: at + Math.floor(i / 60) }));
    const path = of(id, 'deliveries/retry/');
    const period = { start_time: '2026-03-01T10:00:00Z', end_time: '2026-03-01T11:00:00Z' };
    const first = (await call('POST', path, period)).json;
    expect([first.retried.length, first.remaining]).toEqual([100, 30]);
    const second = (await call('POST', path, { ...period, after: first.retried.at(-1) })).json;
    expect([second.retried.length, second.remaining]).toEqual([30, 0]);
    expect(new Set([...first.retried, ...second.retried])).toEqual(new Set(made));
    expect(await requestsOf(id)).toHaveLength(130);
  });

  it('are not retried after a delivery that is not stored, except by a repeated request', async () => {
    const { id } = await make();
    const created_at = Date.parse('2026-03-01T10:00:00Z');
    const [first, second] = [
      await deliver(id, { status: 'dead', created_at: created_at + 1 }),
      await deliver(id, { status: 'dead', created_at }),
    ];
    const path = of(id, 'deliveries/retry/');
    const rest = { start_time: '2026-03-01T10:00:00Z', end_time: '2026-03-01T11:00:00Z', after: first };
    const key = randomUUID();
    const answer = { retried: [second], remaining: 0 };
    expect((await call('POST', path, rest, { key })).json).toEqual(answer);
    await world.pool.query('DELETE FROM tds.webhook_deliveries WHERE id = $1', [first]);
    expect((await call('POST', path, rest, { key })).json).toEqual(answer);
    for (const options of [{}, { key: randomUUID() }]) {
      const { status, json } = await call('POST', path, rest, options);
      expect([status, json.errors]).toEqual([400, { after: [expect.stringContaining('without `after`')] }]);
    }
  });

  it('that were created after the period are not retried, whichever was retried last', async () => {
    const { id } = await make();
    const at = Date.parse('2026-03-01T10:00:00Z');
    const among = await deliver(id, { status: 'dead', created_at: at });
    await deliver(id, { status: 'dead', created_at: at + 1 });
    const after = await deliver(id, { status: 'dead', created_at: at + 2 });
    const period = { start_time: '2026-03-01T10:00:00Z', end_time: '2026-03-01T10:00:00Z' };
    const { json } = await call('POST', of(id, 'deliveries/retry/'), { ...period, after });
    expect(json).toEqual({ retried: [among], remaining: 0 });
  });

  it('of tests are requested, each with an id of its own', async () => {
    const { id } = await make();
    await call('PATCH', of(id), { status: 'paused' });
    const [one, two] = [await call('POST', of(id, 'test/')), await call('POST', of(id, 'test/'))];
    expect([one.status, one.json]).toEqual([202, { delivery_id: expect.any(String) }]);
    expect(await requestsOf(id)).toEqual(
      [one, two].map(({ json }) => ({ kind: 'test', delivery_id: json.delivery_id })),
    );
    expect(one.json.delivery_id).not.toBe(two.json.delivery_id);
  });
});

test('the OpenAPI document says where a body is optional', async () => {
  const { paths } = (await world.call('GET', '/api/openapi.json')).json;
  const isRequired = (path: string, method: string): boolean => paths[path][method].requestBody.required;
  expect(isRequired(WEBHOOKS, 'post')).toBe(true);
  expect(isRequired(`${WEBHOOKS}{id}/`, 'patch')).toBe(false);
  expect(isRequired(`${WEBHOOKS}{id}/rotate-secret/`, 'post')).toBe(false);
});

test('lists the events with their bodies', async () => {
  const { status, json } = await call('GET', `${WEBHOOKS}events/`);
  expect(status).toBe(200);
  expect(json.map(({ event }: { event: string }) => event)).toEqual([
    'transfer.created',
    'balance.changed',
    'token.launched',
    'price.threshold',
    'transfer.reverted',
  ]);
  for (const { event, description, payload } of json) {
    expect([payload.event, typeof description, payload.created_at]).toEqual([
      event,
      'string',
      expect.stringMatching(/\.\d{3}Z$/),
    ]);
  }
  expect((await call('GET', `${WEBHOOKS}events`)).json).toEqual(json);
  expect((await make({ events: json.map(({ event }: { event: string }) => event) })).events).toHaveLength(5);
});

test('keeps requested tests and retries for 48 hours of the log, deletions for ever', async () => {
  const { id } = await make();
  const delivery = await deliver(id, { status: 'dead' });
  await call('POST', of(id, 'test/'));
  await call('POST', of(id, `deliveries/${delivery}/retry/`));
  const { id: gone } = await make();
  await call('DELETE', of(gone));
  await world.pool.query(
    `UPDATE ${schema}.webhook_requests SET issued_at = issued_at - 48 * 3600000 + 60000 WHERE webhook_id IN ($1, $2)`,
    [id, gone],
  );
  await call('PATCH', of(id), {});
  expect(await requestsOf(id)).toHaveLength(2);
  await world.pool.query(
    `UPDATE ${schema}.webhook_requests SET issued_at = issued_at - 60001 WHERE webhook_id IN ($1, $2)`,
    [id, gone],
  );
  await call('PATCH', of(id), {});
  expect([await requestsOf(id), await requestsOf(gone)]).toEqual([
    [],
    [{ kind: 'delete', delivery_id: null }],
  ]);
});

// Last, when everything above has left its traces.
test('secrets are in no topic, no table, no log line, no error and no other answer', async () => {
  expect(secrets.size).toBeGreaterThan(100);
  let log = '';
  for (const topic of Object.values(topics)) {
    for await (const { value } of logOf(world.kafka, topic)) log += value.toString();
  }
  expect(log).toContain('"type":"webhook.rotate-secret"');
  const tables = await Promise.all(
    ['webhooks', 'webhook_subscriptions', 'webhook_requests', 'command_outcomes'].map(async (table) => {
      const { rows } = await world.pool.query(`SELECT * FROM ${schema}.${table}`);
      expect(rows.length).toBeGreaterThan(0);
      return JSON.stringify(rows);
    }),
  );
  const metrics = (await world.call('GET', '/metrics')).text;
  const where = {
    log,
    tables: tables.join('\n'),
    lines: world.logged(),
    errors: errors.join('\n'),
    others: others.join('\n'),
    metrics,
  };
  for (const [name, text] of Object.entries(where)) {
    const parts = [...secrets].flatMap((secret) => [
      secret,
      secret.slice('whsec_'.length, -1),
      Buffer.from(secret.slice('whsec_'.length), 'base64').toString('hex'),
      createHash('sha256').update(secret).digest('hex'),
    ]);
    expect([name, parts.filter((part) => text.includes(part))]).toEqual([name, []]);
  }
});
