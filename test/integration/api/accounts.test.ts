import { createHash } from 'node:crypto';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { apiKeyPrefix, derivedApiKey, hashSecret, isWellFormedApiKey } from '../../../api/auth/api-key.ts';
import { idempotentCommandId, requestHash } from '../../../infra/commands/bus.ts';
import { sleep } from '../../../infra/lifecycle.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { openApiChecker } from '../../support/openapi.ts';
import type { Complaints } from '../../support/openapi.ts';
import { logOf } from '../../support/topic.ts';

/** Log-in, sessions and API keys through HTTP, on the real log, projector and stores. */

const LOGIN = '/api/users/auth/login/';
const LOGOUT = '/api/users/auth/logout/';
const CREATE = '/api/users/auth/create-api-key/';
const LIST = '/api/users/auth/api-keys/';
const DELETE = '/api/users/auth/api-keys/delete/';
/** A route that takes a key. */
const WITH_KEY = '/api/indexer/progress/';

let world: ApiWorld;
let complaints: Complaints;
let alice: { token: string; password: string; id: number };
let bob: { token: string; password: string; id: number };
/** Everything that must appear in no topic, table or log line. */
const secrets = new Set<string>();
/** What was answered to calls that failed. */
const errors: string[] = [];

beforeAll(async () => {
  world = await apiWorld({ COMMAND_TIMEOUT_MS: '3000', TRUSTED_PROXIES: '127.0.0.0/8' });
  complaints = await openApiChecker(world);
  alice = await world.makeUser('alice', 'Alice@Example.org');
  bob = await world.makeUser('bob');
  for (const { token, password } of [alice, bob]) secrets.add(token).add(password);
});
afterAll(async () => {
  await world.close();
});

/** A call whose answer must be as the OpenAPI document says, and never 5xx. */
async function call(...[method, path, options]: Parameters<ApiWorld['call']>): Promise<Answer> {
  const answer = await world.call(method, path, options);
  expect(complaints(method, path, answer)).toEqual([]);
  if (answer.status >= 400) errors.push(answer.text);
  if (answer.json?.key !== undefined) secrets.add(answer.json.key);
  if (answer.json?.token !== undefined) secrets.add(answer.json.token);
  return answer;
}

/** From another address each time: one that fails ten times is blocked. */
const withKey = (key: string, headers: Record<string, string> = {}) =>
  call('GET', WITH_KEY, {
    headers: { 'api-key': key, 'X-Forwarded-For': anAddress('100.64.0'), ...headers },
  });

let addresses = 0;
const anAddress = (network: string): string => `${network}.${(addresses += 1) % 256}`;

const makeKey = async (json: Record<string, unknown>, token = alice.token): Promise<Answer['json']> => {
  const answer = await call('POST', CREATE, { token, json });
  expect(answer.status).toBe(201);
  return answer.json;
};

/** From another address each time, so that no test runs into another's throttle. */
const elsewhere = () => ({ 'X-Forwarded-For': anAddress('198.51.100') });

describe('log-in', () => {
  it.each(['alice', 'ALICE', ' alice ', 'alice@example.org', 'Alice@Example.ORG'])(
    'as %j',
    async (username) => {
      const { status, json } = await call('POST', LOGIN, {
        json: { username, password: alice.password },
        headers: elsewhere(),
      });
      expect(status).toBe(200);
      expect(json).toEqual({
        token: expect.stringMatching(/^[A-Za-z0-9_-]{43}$/),
        token_type: 'Bearer',
        expires_at: expect.any(String),
        user: { id: alice.id, username: 'alice', email: 'Alice@Example.org' },
      });
      const hours = (Date.parse(json.expires_at) - Date.now()) / 3_600_000;
      expect(hours).toBeGreaterThan(23.9);
      expect(hours).toBeLessThanOrEqual(24);
      expect((await call('GET', LIST, { token: json.token })).status).toBe(200);
    },
  );

  it('answers a wrong password and an unknown user with the same error', async () => {
    const wrong = [
      { username: 'alice', password: 'wrong' },
      { username: 'alice', password: `${alice.password} ` },
      { username: 'nobody', password: alice.password },
      { username: "' OR 1=1 --", password: "' OR 1=1 --" },
      { username: '%', password: 'x' },
    ];
    for (const json of wrong) {
      const answer = await call('POST', LOGIN, { json, headers: elsewhere() });
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
      const { request_id: _id, ...rest } = answer.json;
      expect(rest).toEqual({
        detail: 'Unable to log in with provided credentials.',
        code: 'authentication_failed',
        status: 401,
      });
    }
  });

  const good = { username: 'alice', password: 'x' };
  it.each([
    [{}, { username: ['This field is required.'], password: ['This field is required.'] }],
    [{ ...good, username: '' }, { username: ['This field may not be blank.'] }],
    [{ ...good, password: '' }, { password: ['This field may not be blank.'] }],
    [{ ...good, username: null }, { username: ['This field may not be null.'] }],
    [{ ...good, username: 5 }, { username: ['Not a valid string.'] }],
    [{ ...good, password: { $ne: '' } }, { password: ['Not a valid string.'] }],
    [{ ...good, username: 'a\0b' }, { username: ['Null characters are not allowed.'] }],
    [{ ...good, username: '\ud800' }, { username: ['Surrogate characters are not allowed.'] }],
    [{ ...good, password: '\udfff' }, { password: ['Surrogate characters are not allowed.'] }],
    [
      { ...good, username: 'x'.repeat(255) },
      { username: ['Ensure this field has no more than 254 characters.'] },
    ],
    [
      { ...good, password: 'x'.repeat(1025) },
      { password: ['Ensure this field has no more than 1024 characters.'] },
    ],
    [[], { non_field_errors: ['Invalid data. Expected a dictionary, but got list.'] }],
  ])('%j is answered 400 naming the field', async (json, errors) => {
    const answer = await call('POST', LOGIN, { json, headers: elsewhere() });
    expect(answer.status).toBe(400);
    expect(answer.json.errors).toEqual(errors);
  });

  it('is throttled by user and by address, for failures only', async () => {
    const attempt = (username: string, password: string, ip: string) =>
      call('POST', LOGIN, { json: { username, password }, headers: { 'X-Forwarded-For': ip } });
    for (let i = 0; i < 10; i += 1) {
      expect((await attempt('victim', 'wrong', `203.0.113.${i}`)).status).toBe(401);
    }
    const throttled = await attempt('Victim', 'wrong', '203.0.113.99');
    expect(throttled.status).toBe(429);
    const wait = Number(throttled.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(0);
    expect(wait).toBeLessThanOrEqual(60);
    expect(throttled.json.detail).toBe(`Request was throttled. Expected available in ${wait} seconds.`);

    for (let i = 0; i < 30; i += 1) {
      expect((await attempt(`guess-${i}`, 'wrong', '192.0.2.1')).status).toBe(401);
    }
    expect((await attempt('guess-31', 'wrong', '192.0.2.1')).status).toBe(429);
    for (let i = 0; i < 32; i += 1) {
      expect((await attempt('bob', bob.password, '192.0.2.2')).status).toBe(200);
    }
    const atOnce = Array.from({ length: 40 }, () => attempt('bob', bob.password, '192.0.2.2'));
    expect((await Promise.all(atOnce)).map(({ status }) => status)).toEqual(Array(40).fill(200));
  });

  it('is throttled by username and e-mail address of a user together', async () => {
    const { password } = await world.makeUser('dora', 'dora@example.org');
    const attempt = async (username: string, typed = 'wrong') =>
      (await call('POST', LOGIN, { json: { username, password: typed }, headers: elsewhere() })).status;
    for (let i = 0; i < 5; i += 1) {
      expect([await attempt('dora'), await attempt('Dora@Example.org')]).toEqual([401, 401]);
    }
    expect([await attempt('dora', password), await attempt('dora@example.org', password)]).toEqual([
      429, 429,
    ]);
    expect(await attempt('bob', bob.password)).toBe(200);
  });
});

describe('sessions', () => {
  it.each([
    ['', 'Authentication credentials were not provided.', 'not_authenticated'],
    ['Basic YTpi', 'Authentication credentials were not provided.', 'not_authenticated'],
    ['Bearer', 'Invalid token header.', 'authentication_failed'],
    ['Bearer a b', 'Invalid token header.', 'authentication_failed'],
    ['Bearer x', 'Invalid token.', 'authentication_failed'],
    [`Bearer ${'x'.repeat(5000)}`, 'Invalid token.', 'authentication_failed'],
  ])('%j is answered 401', async (authorization, detail, code) => {
    for (const [method, path] of [
      ['GET', LIST],
      ['POST', CREATE],
      ['POST', DELETE],
      ['POST', LOGOUT],
    ] as const) {
      const answer = await call(method, path, { headers: authorization === '' ? {} : { authorization } });
      expect(answer.status).toBe(401);
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
      expect(answer.json).toMatchObject({ detail, code });
      expect(answer.json.success).toBe(path === DELETE || path === LOGOUT ? false : undefined);
    }
  });

  it('end when their user logs out, and no other session does', async () => {
    const json = { username: 'bob', password: bob.password };
    const token = (await call('POST', LOGIN, { json, headers: elsewhere() })).json.token;
    expect((await call('GET', LIST, { token })).status).toBe(200);
    const out = await call('POST', LOGOUT, { token });
    expect([out.status, out.json]).toEqual([200, { success: true, detail: 'Logged out.' }]);
    expect((await call('GET', LIST, { token })).status).toBe(401);
    expect((await call('POST', LOGOUT, { token })).status).toBe(401);
    expect((await call('GET', LIST, { token: bob.token })).status).toBe(200);
  });

  it('end when they expire', async () => {
    const { hashSecret } = await import('../../../api/auth/api-key.ts');
    const token = 'a-token-that-ends-soon';
    const open = (expires_at: number, name: string) =>
      world.commands.submit({
        type: 'session.open',
        actor: 'operator',
        body: { user_id: alice.id, token_hash: hashSecret(name), expires_at },
      });
    await open(Date.now() + 60_000, `${token}-later`);
    await open(Date.now() - 1, token);
    expect((await call('GET', LIST, { token })).status).toBe(401);
    expect((await call('GET', LIST, { token: `${token}-later` })).status).toBe(200);
  });

  it('are not accepted as keys, nor keys as sessions', async () => {
    const { key } = await makeKey({ name: 'not a session' });
    expect((await call('GET', LIST, { headers: { authorization: `Bearer ${key}` } })).status).toBe(401);
    expect((await withKey(alice.token)).status).toBe(401);
    expect((await call('GET', WITH_KEY, { token: alice.token })).status).toBe(401);
  });
});

describe('keys', () => {
  it('are created with the requested fields, shown once, and listed without the key', async () => {
    const made = await makeKey({
      name: ' My key ',
      allowed_origins: ['https://app.example.org', '*.example.org', 'https://app.example.org'],
      allowed_ips: ['198.51.100.0/24', '2001:db8::1'],
      rate_limit_per_hour: 100,
    });
    expect(isWellFormedApiKey(made.key)).toBe(true);
    expect(made).toEqual({
      id: expect.any(Number),
      name: 'My key',
      key: made.key,
      prefix: made.key.slice(0, 12),
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      last_used_at: null,
      allowed_origins: ['https://app.example.org', '*.example.org'],
      allowed_ips: ['198.51.100.0/24', '2001:db8::1'],
      rate_limit_per_hour: 100,
      expires_at: null,
    });
    const { json: list } = await call('GET', LIST, { token: alice.token });
    expect(list).toContainEqual({
      id: made.id,
      name: 'My key',
      created_at: made.created_at,
      last_used_at: null,
    });
    expect(JSON.stringify(list)).not.toContain(made.prefix);
    const { json: foreign } = await call('GET', LIST, { token: bob.token });
    expect(foreign.map(({ id }: { id: number }) => id)).not.toContain(made.id);
  });

  it('are found at their Location', async () => {
    const { json, headers } = await call('POST', CREATE, { token: alice.token, json: { name: 'located' } });
    const found = await call('GET', headers.get('location') ?? '', { token: alice.token });
    expect([found.status, found.json.id, found.json.name]).toEqual([200, json.id, 'located']);
  });

  it('expire at the requested time', async () => {
    const expires_at = new Date(Date.now() + 1500).toISOString();
    const made = await makeKey({ name: 'short', expires_at });
    expect(made.expires_at).toBe(expires_at);
    expect((await withKey(made.key)).status).toBe(200);
    await sleep(Date.parse(expires_at) - Date.now() + 1);
    expect((await withKey(made.key)).status).toBe(401);
    for (const wrong of [new Date(Date.now() - 1000).toISOString(), 'tomorrow', 7]) {
      const { status, json } = await call('POST', CREATE, {
        token: alice.token,
        json: { name: 'x', expires_at: wrong },
      });
      expect([status, Object.keys(json.errors)]).toEqual([400, ['expires_at']]);
    }
  });

  it('accept the deprecated single domain', async () => {
    expect((await makeKey({ name: 'a', domain: 'https://old.test' })).allowed_origins).toEqual([
      'https://old.test',
    ]);
    expect((await makeKey({ name: 'a', domain: '' })).allowed_origins).toEqual([]);
    expect(
      (await makeKey({ name: 'a', domain: null, allowed_ips: null, rate_limit_per_hour: null }))
        .rate_limit_per_hour,
    ).toBeNull();
    expect(
      (await makeKey({ name: 'a', domain: 'b.test', allowed_origins: ['a.test'] })).allowed_origins,
    ).toEqual(['a.test', 'b.test']);
  });

  const name = 'k';
  const origin = 'Enter an origin: https://example.org, example.org or *.example.org.';
  const ip = 'Enter an IP address or a network in CIDR notation.';
  it.each([
    [{}, { name: ['This field is required.'] }],
    [{ name: '' }, { name: ['This field may not be blank.'] }],
    [{ name: null }, { name: ['This field may not be null.'] }],
    [{ name: ['k'] }, { name: ['Not a valid string.'] }],
    [{ name: 'x'.repeat(101) }, { name: ['Ensure this field has no more than 100 characters.'] }],
    [{ name: 'a\0' }, { name: ['Null characters are not allowed.'] }],
    // PostgreSQL's JSON refuses it: in the log it would halt every command after it.
    [{ name: 'a\ud800' }, { name: ['Surrogate characters are not allowed.'] }],
    [{ name: 'a\udc00b' }, { name: ['Surrogate characters are not allowed.'] }],
    [
      { name, allowed_origins: 'https://a.test' },
      { allowed_origins: ['Expected a list of items but got type "str".'] },
    ],
    [{ name, allowed_origins: ['https://a.test', 5] }, { allowed_origins: ['1: Not a valid string.'] }],
    [{ name, allowed_origins: ['*'] }, { allowed_origins: [`0: ${origin}`] }],
    [{ name, allowed_origins: ['https://a.test/path'] }, { allowed_origins: [`0: ${origin}`] }],
    [
      { name, allowed_origins: Array(101).fill('a.test') },
      { allowed_origins: ['Ensure this field has no more than 100 elements.'] },
    ],
    [{ name, allowed_ips: ['10.0.0.0/40'] }, { allowed_ips: [`0: ${ip}`] }],
    [{ name, allowed_ips: ['localhost'] }, { allowed_ips: [`0: ${ip}`] }],
    [{ name, allowed_ips: {} }, { allowed_ips: ['Expected a list of items but got type "dict".'] }],
    [
      { name, rate_limit_per_hour: 0 },
      { rate_limit_per_hour: ['Ensure this value is greater than or equal to 1.'] },
    ],
    [
      { name, rate_limit_per_hour: -1 },
      { rate_limit_per_hour: ['Ensure this value is greater than or equal to 1.'] },
    ],
    [{ name, rate_limit_per_hour: 1.5 }, { rate_limit_per_hour: ['A valid integer is required.'] }],
    [{ name, rate_limit_per_hour: '5' }, { rate_limit_per_hour: ['A valid integer is required.'] }],
    [
      { name, rate_limit_per_hour: 2_147_483_648 },
      { rate_limit_per_hour: ['Ensure this value is less than or equal to 2147483647.'] },
    ],
    [{ name, domain: 5 }, { domain: [expect.any(String)] }],
    [{ name, domain: 'not an origin' }, { domain: [expect.any(String)] }],
  ])('%j is answered 400 naming the field', async (json, errors) => {
    const answer = await call('POST', CREATE, { token: alice.token, json });
    expect(answer.status).toBe(400);
    expect(answer.json.errors).toEqual(errors);
  });

  it('work as soon as they are created, and get 401 as soon as they are deleted', async () => {
    for (let round = 0; round < 10; round += 1) {
      const { id, key } = await makeKey({ name: `round ${round}` });
      expect((await withKey(key)).status).toBe(200);
      const deleted = await call('POST', DELETE, { token: alice.token, json: { key_id: id } });
      expect([deleted.status, deleted.json]).toEqual([200, { success: true, detail: 'API key deleted.' }]);
      const after = await withKey(key);
      expect([after.status, after.json.detail]).toEqual([401, 'Invalid API key.']);
      expect(after.headers.get('www-authenticate')).toBe('ApiKey');
    }
  });

  it('created concurrently each have their own id and key', async () => {
    const made = await Promise.all(Array.from({ length: 20 }, (_, i) => makeKey({ name: `side ${i}` })));
    expect(new Set(made.map(({ id }) => id)).size).toBe(20);
    expect(new Set(made.map(({ key }) => key)).size).toBe(20);
    const answers = await Promise.all(made.map(({ key }) => withKey(key)));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
  });

  it.each([
    [undefined, 'Authentication credentials were not provided.'],
    ['', 'Authentication credentials were not provided.'],
    ['x', 'Invalid API key.'],
    [`tds_${'0'.repeat(49)}`, 'Invalid API key.'],
    ['x'.repeat(5000), 'Invalid API key.'],
    ["' OR 1=1 --", 'Invalid API key.'],
  ])('%j is answered 401', async (key, detail) => {
    const headers = { ...elsewhere(), ...(key === undefined ? {} : { 'api-key': key }) };
    const answer = await call('GET', WITH_KEY, { headers });
    expect([answer.status, answer.json.detail]).toEqual([401, detail]);
    expect(answer.headers.get('www-authenticate')).toBe('ApiKey');
  });

  it.each([
    [{}, { key_id: ['This field is required.'] }],
    [{ key_id: null }, { key_id: ['This field may not be null.'] }],
    [{ key_id: '1' }, { key_id: ['A valid integer is required.'] }],
    [{ key_id: 1.5 }, { key_id: ['A valid integer is required.'] }],
    [{ key_id: [1] }, { key_id: ['A valid integer is required.'] }],
    [{ key_id: true }, { key_id: ['A valid integer is required.'] }],
  ])('deleting %j is answered 400 naming the field', async (json, errors) => {
    const answer = await call('POST', DELETE, { token: alice.token, json });
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ success: false, errors });
  });

  it('of other users and unknown keys cannot be deleted, and get the same answer', async () => {
    const { id, key } = await makeKey({ name: "alice's" });
    for (const key_id of [id, 0, -1, 999_999, Number.MAX_SAFE_INTEGER]) {
      const answer = await call('POST', DELETE, { token: bob.token, json: { key_id } });
      expect(answer.status).toBe(404);
      expect(answer.json).toMatchObject({ success: false, detail: 'Not found.', code: 'not_found' });
    }
    expect((await withKey(key)).status).toBe(200);
  });
});

describe('the change of a key', () => {
  const change = (id: number, json: Record<string, unknown>, { token = alice.token, headers = {} } = {}) =>
    call('PATCH', `${LIST}${id}/`, { token, json, headers });

  it('replaces the given fields, and applies to the next call', async () => {
    const { key, ...made } = await makeKey({
      name: 'at home',
      allowed_ips: ['198.51.100.0/24'],
      rate_limit_per_hour: 2,
    });
    const from = (address: string) => withKey(key, { 'X-Forwarded-For': address });
    const read = async () => (await call('GET', `${LIST}${made.id}/`, { token: alice.token })).json;
    expect(await read()).toEqual(made);
    expect([(await from('198.51.100.7')).status, (await from('203.0.113.7')).status]).toEqual([200, 403]);

    const moved = await change(made.id, { allowed_ips: ['203.0.113.0/24', '203.0.113.0/24'] });
    expect(moved.status).toBe(200);
    const used = { last_used_at: expect.toSatisfy((at) => at === null || !Number.isNaN(Date.parse(at))) };
    expect(moved.json).toEqual({ ...made, ...used, allowed_ips: ['203.0.113.0/24'] });
    expect([(await from('198.51.100.7')).status, (await from('203.0.113.7')).status]).toEqual([403, 200]);
    // Two calls have succeeded in this hour.
    expect((await from('203.0.113.7')).json.code).toBe('rate_limited');
    await change(made.id, { rate_limit_per_hour: null, allowed_origins: ['https://app.test'] });
    expect((await from('203.0.113.7')).status).toBe(200);
    expect((await withKey(key, { Origin: 'https://evil.test' })).status).toBe(403);
    await change(made.id, { allowed_origins: [], allowed_ips: [], name: ' anywhere ' });
    expect((await withKey(key, { Origin: 'https://evil.test' })).status).toBe(200);
    expect((await change(made.id, {})).json).toMatchObject({ name: 'anywhere', rate_limit_per_hour: null });

    const expires_at = new Date(Date.now() + 500).toISOString();
    expect((await change(made.id, { expires_at })).json.expires_at).toBe(expires_at);
    await sleep(Date.parse(expires_at) - Date.now() + 1);
    expect((await withKey(key)).status).toBe(401);
    expect((await change(made.id, { expires_at: null })).status).toBe(200);
    expect((await withKey(key)).status).toBe(200);
    const unrestricted = { name: 'anywhere', allowed_ips: [], rate_limit_per_hour: null };
    expect(await read()).toEqual({ ...made, ...used, ...unrestricted });
  });

  it('is for its owner only, and not for keys that are deleted', async () => {
    const { id } = await makeKey({ name: 'mine' });
    for (const unknown of [id, 0, 999_999]) {
      const foreign = await change(unknown, { name: 'taken' }, { token: bob.token });
      expect([foreign.status, foreign.json.detail]).toEqual([404, 'Not found.']);
      expect((await call('GET', `${LIST}${unknown}/`, { token: bob.token })).status).toBe(404);
    }
    expect((await world.call('PATCH', `${LIST}${id}/`, { json: { name: 'taken' } })).status).toBe(401);
    expect((await call('GET', `${LIST}${id}/`, { token: alice.token })).json.name).toBe('mine');
    await call('POST', DELETE, { token: alice.token, json: { key_id: id } });
    expect((await change(id, { name: 'back' })).status).toBe(404);
    expect((await call('GET', `${LIST}${id}/`, { token: alice.token })).status).toBe(404);
  });

  it.each([
    [{ name: null }, 'name'],
    [{ name: ' ' }, 'name'],
    [{ allowed_origins: ['*'] }, 'allowed_origins'],
    [{ allowed_origins: null }, 'allowed_origins'],
    [{ allowed_ips: ['10.0.0.0/40'] }, 'allowed_ips'],
    [{ rate_limit_per_hour: 0 }, 'rate_limit_per_hour'],
    [{ expires_at: '2020-01-01T00:00:00Z' }, 'expires_at'],
  ])('to %j is answered 400 naming the field', async (json, field) => {
    const { id } = await makeKey({ name: 'kept' });
    const { status, json: answer } = await change(id, json);
    expect([status, Object.keys(answer.errors)]).toEqual([400, [field]]);
  });

  it('returns the same answer when it is repeated with its Idempotency-Key', async () => {
    const { id } = await makeKey({ name: 'first' });
    const headers = { 'Idempotency-Key': 'rename' };
    const second = await change(id, { name: 'second' }, { headers });
    await change(id, { name: 'third' });
    expect((await change(id, { name: 'second' }, { headers })).json).toEqual(second.json);
    expect((await change(id, { name: 'fourth' }, { headers })).status).toBe(422);
    expect((await call('GET', `${LIST}${id}/`, { token: alice.token })).json.name).toBe('third');
  });

  it('is answered 422 where its Idempotency-Key was used for another key', async () => {
    const [one, other] = [await makeKey({ name: 'one' }), await makeKey({ name: 'other' })];
    const headers = { 'Idempotency-Key': 'rename one key' };
    expect((await change(one.id, { name: 'renamed' }, { headers })).status).toBe(200);
    expect((await change(other.id, { name: 'renamed' }, { headers })).status).toBe(422);
  });
});

it('is logged once that a proxy is not trusted, whose clients then count as one', async () => {
  const behind = await world.anotherApi({ env: { TRUSTED_PROXIES: '10.0.0.0/24' } });
  const warnings = (): number => world.logged().split('X-Forwarded-For ignored').length - 1;
  const before = warnings();
  for (let i = 0; i < 3; i += 1) await behind.call('GET', '/readyz', { headers: elsewhere() });
  expect(warnings() - before).toBe(1);
  await behind.close();
});

describe('the origin and address restrictions of a key', () => {
  it('apply to the origin if there is one, else to the address', async () => {
    const { key } = await makeKey({
      name: 'restricted',
      allowed_origins: ['https://app.test', '*.wild.test', 'bare.test'],
      allowed_ips: ['198.51.100.0/24'],
    });
    const table: [Record<string, string>, number][] = [
      [{ Origin: 'https://app.test' }, 200],
      [{ Origin: 'http://app.test' }, 403],
      [{ Origin: 'https://evil.test' }, 403],
      [{ Origin: 'null' }, 403],
      [{ Origin: 'https://a.wild.test' }, 200],
      [{ Origin: 'https://wild.test' }, 403],
      [{ Origin: 'http://bare.test' }, 200],
      [{ 'X-Origin': 'https://app.test' }, 200],
      [{ 'X-Origin': 'https://evil.test' }, 403],
      [{ Origin: 'https://evil.test', 'X-Origin': 'https://app.test' }, 403],
      [{ Origin: 'https://app.test', 'X-Origin': 'https://evil.test' }, 200],
      [{ Origin: 'https://app.test', 'X-Forwarded-For': '203.0.113.1' }, 200],
      [{ 'X-Forwarded-For': '198.51.100.7' }, 200],
      [{ 'X-Forwarded-For': '203.0.113.1' }, 403],
      [{ 'X-Forwarded-For': '198.51.100.7, 203.0.113.1' }, 403],
      [{}, 403],
    ];
    for (const [headers, status] of table) {
      expect([headers, (await withKey(key, headers)).status]).toEqual([headers, status]);
    }
    const { json } = await withKey(key, { Origin: 'https://evil.test' });
    expect(json).toMatchObject({
      detail: 'This API key may not be used from this origin.',
      code: 'permission_denied',
    });
  });
});

describe('Idempotency-Key', () => {
  it('is documented on the routes that support it, and on no other', async () => {
    const { json: document } = await world.call('GET', '/api/openapi.json');
    const described = Object.entries<Record<string, { parameters?: { in: string; name: string }[] }>>(
      document.paths,
    ).flatMap(([path, operations]) =>
      Object.entries(operations).flatMap(([method, { parameters = [] }]) =>
        parameters.some((one) => one.in === 'header' && one.name === 'Idempotency-Key')
          ? [`${method} ${path}`]
          : [],
      ),
    );
    const webhook = '/api/webhooks/{id}/';
    expect(described.toSorted()).toEqual(
      [
        `post ${DELETE}`,
        `post ${CREATE}`,
        `patch ${LIST}{id}/`,
        'post /api/webhooks/',
        'post /api/admin/quarantine/{id}/retry/',
        'post /api/admin/quarantine/{id}/skip/',
        'post /api/admin/projections/{name}/rebuild/',
        'post /api/admin/projections/{name}/rebuild/abort/',
        'post /api/admin/verification/',
        `patch ${webhook}`,
        `delete ${webhook}`,
        `post ${webhook}test/`,
        `post ${webhook}deliveries/retry/`,
        `post ${webhook}rotate-secret/`,
        'post /api/dapps/ads/{ad_id}/impression/',
        'post /api/dapps/ads/{ad_id}/click/',
        'post /api/dapps/vendor-wallets/',
        'post /api/dapps/vendor-wallets/{id}/update_activity/',
        'post /api/dapps/domain-reports/',
      ].toSorted(),
    );
  });

  const create = (json: unknown, idempotencyKey: string, token = alice.token) =>
    call('POST', CREATE, { token, json, headers: { 'Idempotency-Key': idempotencyKey } });

  it('returns the same key on a retry, and creates only one', async () => {
    const json = { name: 'once', allowed_ips: ['127.0.0.1'] };
    const [first, ...repeats] = await Promise.all([1, 2, 3, 4].map(() => create(json, 'retry-1')));
    repeats.push(await create({ allowed_ips: ['127.0.0.1'], name: ' once' }, 'retry-1'));
    expect(first?.status).toBe(201);
    for (const { status, json: again } of repeats) expect([status, again]).toEqual([201, first?.json]);
    expect((await withKey(first?.json.key, { 'X-Forwarded-For': '127.0.0.1' })).status).toBe(200);
    const { json: list } = await call('GET', LIST, { token: alice.token });
    expect(list.filter(({ name }: { name: string }) => name === 'once')).toHaveLength(1);
  });

  it('creates another key than the deleted one when it is used again after 48 hours', async () => {
    const { json: leaked } = await create({ name: 'reader' }, 'prod-reader');
    await call('POST', DELETE, { token: alice.token, json: { key_id: leaked.id } });
    const accounts = (await servedBuilds(world.pool)).schema('accounts');
    await world.pool.query(`DELETE FROM ${accounts}.command_outcomes`);
    const again = await create({ name: 'reader' }, 'prod-reader');
    expect(again.status).toBe(201);
    expect((await withKey(leaked.key)).status).toBe(401);
    expect((await withKey(again.json.key)).status).toBe(200);
  });

  it('returns the key that an earlier version derived from the Idempotency-Key alone', async () => {
    const secretKey = Buffer.from(world.env['SECRET_KEY'] ?? '', 'hex');
    const actor = `user:${alice.id}`;
    const id = idempotentCommandId(actor, `POST ${CREATE}`, 'before');
    const key = derivedApiKey(secretKey, id);
    await world.commands.submit({
      type: 'api-key.create',
      actor,
      id,
      requestHash: requestHash(secretKey, { name: 'before' }),
      body: {
        user_id: alice.id,
        name: 'before',
        key_hash: hashSecret(key),
        prefix: apiKeyPrefix(key),
        allowed_origins: [],
        allowed_ips: [],
        rate_limit_per_hour: null,
      },
    });
    const { status, json } = await create({ name: 'before' }, 'before');
    expect([status, json.key]).toEqual([201, key]);
  });

  it('returns the first answer also where the key has expired since', async () => {
    const expires_at = new Date(Date.now() + 3_600_000).toISOString();
    const later = await world.anotherApi({ now: () => Date.now() + 7_200_000 });
    const headers = { 'Idempotency-Key': 'expiring' };
    const { token } = alice;
    const again = async (method: string, path: string, first: Answer, json: unknown): Promise<void> => {
      const answer = await later.call(method, path, { token, json, headers });
      expect([answer.status, answer.json]).toEqual([first.status, first.json]);
      expect((await later.call(method, path, { token, json })).json.errors).toHaveProperty('expires_at');
    };
    const body = { name: 'expiring', expires_at };
    const created = await create(body, 'expiring');
    expect(created.status).toBe(201);
    await again('POST', CREATE, created, body);
    const path = `${LIST}${created.json.id}/`;
    const changed = await call('PATCH', path, { token, json: { expires_at }, headers });
    expect(changed.status).toBe(200);
    await again('PATCH', path, changed, { expires_at });
    await later.close();
  });

  it('is rejected with another body, and is separate for each user', async () => {
    const mine = await create({ name: 'mine' }, 'shared');
    const reused = await create({ name: 'other' }, 'shared');
    expect([reused.status, reused.json.code]).toEqual([422, 'idempotency_key_reused']);
    expect(reused.text).not.toContain(mine.json.key);
    const theirs = await create({ name: 'mine' }, 'shared', bob.token);
    expect(theirs.status).toBe(201);
    expect(theirs.json.key).not.toBe(mine.json.key);
  });

  it.each(['é', 'x'.repeat(256), 'a\tb'])('%j is none', async (idempotencyKey) => {
    const answer = await create({ name: 'a' }, Buffer.from(idempotencyKey).toString('latin1'));
    expect([answer.status, Object.keys(answer.json.errors)]).toEqual([400, ['Idempotency-Key']]);
  });

  it('returns the same answer when a deletion is repeated', async () => {
    const { id } = await makeKey({ name: 'to go' });
    const remove = () =>
      call('POST', DELETE, {
        token: alice.token,
        json: { key_id: id },
        headers: { 'Idempotency-Key': 'gone' },
      });
    expect((await remove()).status).toBe(200);
    expect((await remove()).status).toBe(200);
    expect((await call('POST', DELETE, { token: alice.token, json: { key_id: id } })).status).toBe(404);
  });

  it('finds the outcome of a command that was decided after the timeout', async () => {
    await world.stopProjector();
    try {
      const late = await create({ name: 'late' }, 'late-1');
      expect([late.status, late.json.code]).toEqual([503, 'command_timeout']);
      expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
    } finally {
      await world.startProjector();
    }
    const found = await create({ name: 'late' }, 'late-1');
    expect(found.status).toBe(201);
    expect((await withKey(found.json.key)).status).toBe(200);
    const { json: list } = await call('GET', LIST, { token: alice.token });
    expect(list.filter(({ name }: { name: string }) => name === 'late')).toHaveLength(1);
  });
});

describe('operators', () => {
  it('disable a user with its keys, sessions and webhooks, and enable it again', async () => {
    const { addApiKey, setDisabled, setPassword } = await import('../../../infra/bin/operator/accounts.ts');
    const deps = {
      commands: world.commands,
      pool: world.apiPool,
      servedBuilds: () => servedBuilds(world.apiPool),
    };
    const carol = await world.makeUser('carol');
    const another = 'another-password';
    for (const secret of [carol.token, carol.password, another]) secrets.add(secret);
    const login = async (password: string): Promise<Answer> =>
      await call('POST', LOGIN, { json: { username: 'carol', password }, headers: elsewhere() });
    const { json: made } = await call('POST', CREATE, { token: carol.token, json: { name: 'hers' } });
    secrets.add(made.key);
    expect([(await withKey(made.key)).status, (await login(carol.password)).status]).toEqual([200, 200]);

    await setDisabled(deps, 'Carol', true);
    const out = await login(carol.password);
    expect([out.status, out.json.detail]).toEqual([401, 'Unable to log in with provided credentials.']);
    expect((await call('GET', LIST, { token: carol.token })).status).toBe(401);
    expect((await withKey(made.key)).status).toBe(401);
    await expect(addApiKey(deps, { username: 'Carol', name: 'late' })).rejects.toMatchObject({
      code: 'CONFLICT',
      message: 'User carol is disabled; `tds users enable carol` enables it',
    });
    await setPassword(deps, 'carol', another);
    expect((await login(another)).status).toBe(401);

    await setDisabled(deps, 'carol', false);
    expect([(await login(another)).status, (await login(carol.password)).status]).toEqual([200, 401]);
    expect((await call('GET', LIST, { token: carol.token })).status).toBe(401);
    expect((await withKey(made.key)).status).toBe(200);
    await expect(setDisabled(deps, 'nobody', true)).rejects.toThrow('Unknown user nobody');
  });

  it('change a password, which ends the log-ins that are under way, too', async () => {
    const { ensureUser } = await import('../../../infra/bin/operator/accounts.ts');
    const deps = {
      commands: world.commands,
      pool: world.apiPool,
      servedBuilds: () => servedBuilds(world.apiPool),
    };
    const { password } = await world.makeUser('edith');
    const another = 'another-password-of-edith';
    for (const secret of [password, another]) secrets.add(secret);
    const login = async (): Promise<Answer> =>
      await call('POST', LOGIN, { json: { username: 'edith', password }, headers: elsewhere() });
    const endOfLog = async () => (await world.kafka.offsets(topics.commands))[0]?.high ?? 0;
    const start = await endOfLog();
    // Nothing is decided for a while: the log-in finds the old password in the tables, after the command that replaces it.
    await world.stopProjector();
    const changed = ensureUser(deps, { username: 'edith', password: another });
    await expect.poll(endOfLog).toBe(start + 1);
    const late = login();
    await expect.poll(endOfLog).toBe(start + 2);
    await world.startProjector();
    await changed;
    const { status, json } = await late;
    expect([status, json.detail]).toEqual([401, 'Unable to log in with provided credentials.']);
    expect((await login()).status).toBe(401);
  });

  it('create the configured user with its password if missing', async () => {
    const { ensureUser, addApiKey } = await import('../../../infra/bin/operator/accounts.ts');
    const deps = {
      commands: world.commands,
      pool: world.apiPool,
      servedBuilds: () => servedBuilds(world.apiPool),
    };
    const passwords = ['first-password', 'second-password'] as const;
    for (const password of passwords) secrets.add(password);
    const login = async (password: string) =>
      await call('POST', LOGIN, { json: { username: 'admin', password }, headers: elsewhere() });
    const { id } = await ensureUser(deps, { username: 'admin', password: passwords[0], isAdmin: true });
    const session = await login(passwords[0]);
    expect(session.json.user.id).toBe(id);
    expect(await ensureUser(deps, { username: 'Admin', password: passwords[0] })).toMatchObject({ id });
    expect((await call('GET', LIST, { token: session.json.token })).status).toBe(200);
    const keeping = { keepsPassword: true };
    const known = { id, hasPassword: true };
    expect(await ensureUser(deps, { username: 'admin', password: passwords[0] }, keeping)).toEqual(known);
    const changed = { id, hasPassword: false };
    expect(await ensureUser(deps, { username: 'admin', password: passwords[1] }, keeping)).toEqual(changed);
    expect((await login(passwords[1])).status).toBe(401);
    // Another password ends the sessions that the old one opened.
    expect(await ensureUser(deps, { username: 'admin', password: passwords[1] })).toEqual(known);
    expect((await call('GET', LIST, { token: session.json.token })).status).toBe(401);
    expect((await login(passwords[0])).status).toBe(401);
    expect((await login(passwords[1])).status).toBe(200);
    const { key } = await addApiKey(deps, { username: 'admin', name: 'cli' });
    secrets.add(key);
    expect((await withKey(key)).status).toBe(200);
    await expect(addApiKey(deps, { username: 'nobody', name: 'cli' })).rejects.toMatchObject({
      code: 'NOT_FOUND',
      message: 'Unknown user nobody',
    });
  });
});

describe('readiness', () => {
  it('reports the checkpoint of each projection, and is 503 while one is halted', async () => {
    const ready = await world.call('GET', '/readyz');
    expect(ready.status).toBe(200);
    const place = { projection: 'accounts', topic: 'commands', partition: 0 };
    expect(ready.json.projections).toContainEqual({ ...place, next_offset: expect.any(Number), lag: 0 });
    await world.pool.query(
      `INSERT INTO tds.projection_halts (projection, build, topic, partition, message_offset, reason)
       VALUES ('accounts', 1, 'commands', 0, 7, 'unreadable')`,
    );
    // /readyz is at most a second old.
    const isReady = async () => (await world.call('GET', '/readyz')).status;
    await expect.poll(isReady).toBe(503);
    const halted = await world.call('GET', '/readyz');
    expect(halted.json.halted).toEqual([
      expect.objectContaining({ ...place, message_offset: 7, reason: 'unreadable' }),
    ]);
    await world.pool.query('DELETE FROM tds.projection_halts');
    await expect.poll(isReady).toBe(200);
  });
});

// Last, when everything above has left its traces.
describe('secrets', () => {
  it('are in no topic, no table, no log line, no error and no metric; their hashes in topics and tables only', async () => {
    expect(secrets.size).toBeGreaterThan(60);
    let log = '';
    for (const topic of Object.values(topics)) {
      for await (const { value, key } of logOf(world.kafka, topic))
        log += `${key ?? ''}\n${value.toString()}\n`;
    }
    expect(log).toContain('"type":"api-key.create"');
    const schema = (await servedBuilds(world.pool)).schema('accounts');
    const tables = await Promise.all(
      ['users', 'sessions', 'api_keys', 'command_outcomes'].map(async (table) => {
        const { rows } = await world.pool.query(`SELECT * FROM ${schema}.${table}`);
        return JSON.stringify(rows);
      }),
    );
    const lines = world.logged();
    expect(lines).toContain('"msg":"request"');
    const metrics = (await world.call('GET', '/metrics')).text;
    expect(metrics).toContain('tds_http_request_seconds');
    expect(errors.length).toBeGreaterThan(60);

    const hashes = [...secrets].map((secret) => createHash('sha256').update(secret).digest('hex'));
    const exposed = { lines, errors: errors.join('\n'), metrics };
    const stored = { log, tables: tables.join('\n') };
    for (const [where, text] of Object.entries({ ...exposed, ...stored })) {
      const absent = where in exposed ? [...secrets, ...hashes] : [...secrets];
      expect([where, absent.filter((secret) => text.includes(secret))]).toEqual([where, []]);
    }
    expect(hashes.some((hash) => log.includes(hash))).toBe(true);
  });
});
