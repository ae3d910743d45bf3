import { request as httpRequest } from 'node:http';

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld, Call } from '../../support/api-world.ts';
import { openApiChecker } from '../../support/openapi.ts';
import type { Complaints } from '../../support/openapi.ts';

/** The contract's table of what a key is checked for, through two APIs on one Redis whose clock is ours. */

const CREATE = '/api/users/auth/create-api-key/';
const LIST = '/api/users/auth/api-keys/';
const DELETE = '/api/users/auth/api-keys/delete/';
const WITH_KEY = '/api/indexer/progress/';
/** Fails with 400: no filter. */
const FAILING = '/api/transfers/';
const OF_NOBODY = `/api/account-balances/?account_address=0x1234`;

let world: ApiWorld;
let complaints: Complaints;
let one: Call;
let two: Call;
let token: string;
let passed = 0;
const now = () => Date.now() + passed;

beforeAll(async () => {
  world = await apiWorld({ TRUSTED_PROXIES: '127.0.0.0/8', REDIS_TIMEOUT_MS: '20000' });
  complaints = await openApiChecker(world);
  const apis = await Promise.all([world.anotherApi({ now }), world.anotherApi({ now })]);
  [one, two] = apis.map(({ call }) => checked(call)) as [Call, Call];
  ({ token } = await world.makeUser('alice'));
});
afterAll(async () => {
  await world.close();
});

/** Answers of routes must be as the OpenAPI document says. */
const checked =
  (call: Call): Call =>
  async (method, path, options) => {
    const answer = await call(method, path, options);
    const isRoute = method !== 'OPTIONS' && answer.status !== 404 && path.startsWith('/api/');
    if (isRoute) expect(complaints(method, path, answer)).toEqual([]);
    return answer;
  };

const makeKey = async (json: Record<string, unknown> = {}): Promise<{ id: number; key: string }> => {
  const answer = await one('POST', CREATE, { token, json: { name: 'a key', ...json } });
  expect(answer.status).toBe(201);
  return answer.json;
};

let addresses = 0;
const anAddress = (): string => {
  addresses += 1;
  return `100.64.${addresses >> 8}.${addresses & 255}`;
};
const via = (ip: string, headers: Record<string, string> = {}) => ({
  headers: { 'X-Forwarded-For': ip, ...headers },
});
const verdict = ({ status, json }: Answer): [number, string | undefined] => [status, json?.code];

describe('a call with a key', () => {
  const origins = { allowed_origins: ['https://app.test'] };
  const ips = { allowed_ips: ['198.51.100.7', '203.0.113.0/24', '2001:db8::/32'] };
  const both = { ...origins, ...ips };
  const denied = [403, 'permission_denied'] as const;
  const fine = [200, undefined] as const;
  it.each([
    // restrictions, headers, address, verdict
    ['no restriction', {}, {}, '192.0.2.1', fine],
    ['no restriction, any origin', {}, { Origin: 'https://x.test' }, '192.0.2.1', fine],
    ['its origin', origins, { Origin: 'https://app.test' }, '192.0.2.1', fine],
    ['its origin by X-Origin', origins, { 'X-Origin': 'https://app.test' }, '192.0.2.1', fine],
    ['another origin', origins, { Origin: 'https://evil.test' }, '192.0.2.1', denied],
    ['another X-Origin', origins, { 'X-Origin': 'https://evil.test' }, '192.0.2.1', denied],
    [
      'Origin before X-Origin',
      origins,
      { Origin: 'https://evil.test', 'X-Origin': 'https://app.test' },
      '192.0.2.1',
      denied,
    ],
    ['no origin, no address list', origins, {}, '192.0.2.1', fine],
    ['its address', ips, {}, '198.51.100.7', fine],
    ['an address of its network', ips, {}, '203.0.113.250', fine],
    ['its address in IPv6', ips, {}, '::ffff:198.51.100.7', fine],
    ['an address of its IPv6 network', ips, {}, '2001:DB8:1::9', fine],
    ['another address', ips, {}, '198.51.100.8', denied],
    ['another IPv6 address', ips, {}, '2001:db9::1', denied],
    ['any origin instead of an address', ips, { Origin: 'https://x.test' }, '192.0.2.1', fine],
    ['the origin counts, not the address', both, { Origin: 'https://x.test' }, '198.51.100.7', denied],
    ['the origin counts, where there is one', both, { Origin: 'https://app.test' }, '192.0.2.1', fine],
    ['the address counts, where there is none', both, {}, '192.0.2.1', denied],
  ] as const)('%s', async (_what, restrictions, headers, ip, expected) => {
    const { key } = await makeKey(restrictions);
    const answer = await one('GET', WITH_KEY, via(ip, { 'api-key': key, ...headers }));
    expect(verdict(answer)).toEqual(expected);
  });

  it('is answered 401 by every API process once its key is deleted', async () => {
    for (let round = 0; round < 5; round += 1) {
      const { id, key } = await makeKey();
      const ask = async (call: Call) => await call('GET', WITH_KEY, via(anAddress(), { 'api-key': key }));
      expect((await ask(two)).status).toBe(200);
      expect((await one('POST', DELETE, { token, json: { key_id: id } })).status).toBe(200);
      const refused = await ask(two);
      expect(verdict(refused)).toEqual([401, 'authentication_failed']);
      expect(refused.headers.get('www-authenticate')).toBe('ApiKey');
    }
  });

  it('is not needed for a preflight, which counts as no failure', async () => {
    const { key } = await makeKey({ allowed_origins: ['https://app.test'] });
    const ip = anAddress();
    for (let i = 0; i < 12; i += 1) {
      const preflight = await two('OPTIONS', WITH_KEY, {
        headers: {
          'X-Forwarded-For': ip,
          Origin: 'https://evil.test',
          'Access-Control-Request-Method': 'GET',
          'Access-Control-Request-Headers': 'api-key,x-origin',
        },
      });
      expect(preflight.status).toBe(204);
      expect(preflight.headers.get('access-control-allow-origin')).toBe('*');
      expect(preflight.headers.get('access-control-allow-headers')).toContain('api-key');
    }
    const answer = await one('GET', WITH_KEY, via(ip, { 'api-key': key, Origin: 'https://app.test' }));
    expect(answer.status).toBe(200);
    const exposed = answer.headers.get('access-control-expose-headers') ?? '';
    for (const name of ['RateLimit', 'RateLimit-Policy', 'Retry-After']) expect(exposed).toContain(name);
  });
});

describe('the ceiling of a key', () => {
  const call = async (api: Call, key: string, path = WITH_KEY) =>
    await api('GET', path, via(anAddress(), { 'api-key': key }));

  it('lets exactly that many of fifty concurrent calls to two API processes succeed', async () => {
    const { key } = await makeKey({ rate_limit_per_hour: 20 });
    const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => call(i % 2 ? one : two, key)));
    const counts = Object.entries(Object.groupBy(answers, (answer) => String(verdict(answer))));
    expect(Object.fromEntries(counts.map(([what, list = []]) => [what, list.length]))).toEqual({
      '200,': 20,
      '403,rate_limited': 30,
    });
  });

  it('is not used up by failing calls, concurrent or sequential', async () => {
    const { key } = await makeKey({ rate_limit_per_hour: 3 });
    for (let i = 0; i < 5; i += 1) expect((await call(i % 2 ? one : two, key, FAILING)).status).toBe(400);
    for (let i = 0; i < 3; i += 1) {
      expect((await call(two, key)).status).toBe(200);
      if (i < 2) expect((await call(one, key, FAILING)).status).toBe(400);
    }
    expect(verdict(await call(one, key, FAILING))).toEqual([403, 'rate_limited']);
    const mixed = await makeKey({ rate_limit_per_hour: 10 });
    for (let round = 0; round < 3; round += 1) {
      const failing = await Promise.all(Array.from({ length: 8 }, () => call(one, mixed.key, FAILING)));
      expect(failing.map(({ status }) => status)).toEqual(Array(8).fill(400));
    }
    const answers = await Promise.all(Array.from({ length: 50 }, () => call(two, mixed.key)));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(10);
  });

  it('reports the remaining calls and the time of the next one', async () => {
    const { key } = await makeKey({ rate_limit_per_hour: 2 });
    const standing = ({ headers }: Answer) => [headers.get('ratelimit-policy'), headers.get('ratelimit')];
    const first = await call(one, key);
    expect(standing(first)).toEqual(['"hour";q=2;w=3600', '"hour";r=1;t=3600']);
    const failed = await call(one, key, FAILING);
    expect(standing(failed)[1]).toMatch(/^"hour";r=1;t=36\d\d$/);
    expect(standing(await call(two, key))[1]).toMatch(/^"hour";r=0;t=\d+$/);
    const refused = await call(one, key);
    expect(refused.status).toBe(403);
    expect(refused.json.detail).toMatch(/^This API key's hourly rate limit is exceeded\./);
    expect(standing(refused)[1]).toMatch(/^"hour";r=0;t=\d+$/);
    const wait = Number(refused.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(3000);
    expect(wait).toBeLessThanOrEqual(3601);
    passed += (wait - 60) * 1000;
    expect((await call(one, key)).status).toBe(403);
    passed += 60_000;
    expect((await call(one, key)).status).toBe(200);
    const free = await makeKey();
    expect(standing(await call(one, free.key))).toEqual([null, null]);
  });

  it('defaults to RATE_LIMIT_PER_HOUR for a key without its own', async () => {
    const { call: strict } = await world.anotherApi({ env: { RATE_LIMIT_PER_HOUR: '2' } });
    const { key } = await makeKey();
    const statuses = [];
    for (let i = 0; i < 3; i += 1) statuses.push((await call(strict, key)).status);
    expect(statuses).toEqual([200, 200, 403]);
    const own = await makeKey({ rate_limit_per_hour: 3 });
    for (let i = 0; i < 3; i += 1) expect((await call(strict, own.key)).status).toBe(200);
  });
});

describe('an address that fails', () => {
  let ip: string;
  let good: string;
  beforeAll(async () => {
    good = (await makeKey()).key;
  });
  beforeEach(() => {
    ip = anAddress();
  });
  const fail = async (api: Call, headers: Record<string, string> = { 'api-key': 'wrong' }) =>
    await api('GET', WITH_KEY, via(ip, headers));
  const ask = async (api: Call, from = ip) => await api('GET', WITH_KEY, via(from, { 'api-key': good }));

  it('ten times in five minutes is blocked by every API process until the window of its first failure ends', async () => {
    const frozen = Date.now() + passed;
    const { call: a } = await world.anotherApi({ now: () => frozen + at });
    const { call: b } = await world.anotherApi({ now: () => frozen + at });
    let at = 0;
    for (let i = 0; i < 10; i += 1) {
      expect((await fail(i % 2 ? a : b)).status).toBe(401);
      if (i < 9) expect((await ask(a)).status).toBe(200);
      at += 20_000;
    }
    const blocked = await ask(b);
    expect(verdict(blocked)).toEqual([403, 'ip_blocked']);
    expect(blocked.headers.get('retry-after')).toBe('100');
    expect(blocked.json.detail).toContain('blocked for 100 more seconds');
    // What is refused for that, with good keys and bad, does not prolong it.
    for (let i = 0; i < 12; i += 1) expect((await fail(a)).status).toBe(403);
    at = 299_000;
    expect((await ask(a)).headers.get('retry-after')).toBe('1');
    at = 299_999;
    expect(verdict(await ask(b))).toEqual([403, 'ip_blocked']);
    at = 300_000;
    expect((await ask(a)).status).toBe(200);
    expect((await ask(b)).status).toBe(200);
  });

  it('is counted for every failed check, and for nothing else', async () => {
    const elsewhere = await makeKey({ allowed_ips: ['10.0.0.1'], rate_limit_per_hour: 1 });
    const limited = await makeKey({ rate_limit_per_hour: 1, allowed_origins: ['https://app.test'] });
    expect((await one('GET', WITH_KEY, via(anAddress(), { 'api-key': limited.key }))).status).toBe(200);
    const deleted = await makeKey();
    await one('POST', DELETE, { token, json: { key_id: deleted.id } });
    const failures: [Record<string, string>, number][] = [
      [{}, 401],
      [{ 'api-key': '' }, 401],
      [{ 'api-key': 'wrong' }, 401],
      [{ 'api-key': `tds_${'0'.repeat(49)}` }, 401],
      [{ 'api-key': deleted.key }, 401],
      [{ 'api-key': elsewhere.key }, 403],
      [{ 'api-key': limited.key, Origin: 'https://evil.test' }, 403],
      [{ 'api-key': limited.key, 'X-Origin': 'https://evil.test' }, 403],
      [{ 'api-key': limited.key }, 403],
    ];
    for (const [headers, status] of failures) {
      expect([headers, (await fail(one, headers)).status]).toEqual([headers, status]);
      // None of these is a failed key check.
      expect((await ask(two)).status).toBe(200);
      const session = await two('GET', LIST, { ...via(ip), token: 'wrong' });
      expect(session.status).toBe(401);
      expect((await two('GET', FAILING, via(ip, { 'api-key': good }))).status).toBe(400);
      expect((await two('GET', '/api/nothing/', via(ip))).status).toBe(404);
    }
    expect((await fail(one)).status).toBe(401);
    expect(verdict(await ask(two))).toEqual([403, 'ip_blocked']);
    expect((await ask(two, anAddress())).status).toBe(200);
  });

  it('is blocked after ten, even if fifty fail at once', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, (_, i) => fail(i % 2 ? one : two)));
    expect(answers.filter(({ status }) => status === 401)).toHaveLength(10);
    expect(answers.filter((answer) => verdict(answer)[1] === 'ip_blocked')).toHaveLength(40);
  });

  it('is blocked after ten of the IPv6 addresses of a /64 together', async () => {
    for (let i = 0; i < 10; i += 1) {
      ip = `2001:db8:0:1::${i}`;
      expect((await fail(i % 2 ? one : two)).status).toBe(401);
    }
    expect(verdict(await ask(one, '2001:db8:0:1:ffff::1'))).toEqual([403, 'ip_blocked']);
    expect((await ask(one, '2001:db8:0:2::1')).status).toBe(200);
  });

  it('is blocked for IP_BLOCK_WINDOW_SECONDS', async () => {
    const { call: brief } = await world.anotherApi({ env: { IP_BLOCK_WINDOW_SECONDS: '20' }, now });
    for (let i = 0; i < 10; i += 1) expect((await fail(brief)).status).toBe(401);
    const blocked = await ask(brief);
    expect(verdict(blocked)).toEqual([403, 'ip_blocked']);
    const wait = Number(blocked.headers.get('retry-after'));
    expect(wait).toBeLessThanOrEqual(20);
    passed += wait * 1000;
    expect((await ask(brief)).status).toBe(200);
  });

  it('may still use a session, preflights and routes without a key', async () => {
    for (let i = 0; i < 10; i += 1) await fail(one);
    expect((await ask(one)).status).toBe(403);
    expect((await two('GET', LIST, { ...via(ip), token })).status).toBe(200);
    expect((await two('GET', OF_NOBODY, { ...via(ip), token })).status).toBe(200);
    expect(verdict(await two('GET', OF_NOBODY, via(ip, { 'api-key': good })))).toEqual([403, 'ip_blocked']);
    expect((await two('GET', '/healthz', via(ip))).status).toBe(200);
    const preflight = { 'Access-Control-Request-Method': 'GET', Origin: 'https://app.test' };
    expect((await two('OPTIONS', WITH_KEY, via(ip, preflight))).status).toBe(204);
  });

  it('is logged with the reason', async () => {
    await fail(one);
    const line = world
      .logged()
      .split('\n')
      .find((text) => text.includes(`"ip":"${ip}"`));
    expect(JSON.parse(line ?? '{}')).toMatchObject({ ip, refusal: 'unknown', status: 401, msg: 'request' });
  });
});

describe('calls by session', () => {
  const named = { 'api-key': 'session' };

  it('named as the key read what a key reads, and write nothing', async () => {
    expect((await one('GET', WITH_KEY, { headers: named, token })).status).toBe(200);
    const unnamed = await one('GET', WITH_KEY, { ...via(anAddress()), token });
    expect([unnamed.status, unnamed.headers.get('www-authenticate')]).toEqual([401, 'ApiKey']);
    for (const sent of [{ headers: named, token: 'wrong' }, { headers: named }]) {
      const { status, headers } = await one('GET', WITH_KEY, sent);
      expect([status, headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
    }
    const wrong = await one('GET', WITH_KEY, { headers: named, token: 'wrong' });
    expect([...verdict(wrong), wrong.headers.get('www-authenticate')]).toEqual([
      401,
      'authentication_failed',
      'Bearer',
    ]);
    const write = await one('POST', '/api/dapps/domain-reports/', {
      ...via(anAddress(), named),
      token,
      json: {},
    });
    expect([write.status, write.headers.get('www-authenticate')]).toEqual([401, 'ApiKey']);
    // A key that is sent counts, whatever the session.
    const both = await one('GET', WITH_KEY, { ...via(anAddress(), { 'api-key': 'wrong' }), token });
    expect([both.status, both.headers.get('www-authenticate')]).toEqual([401, 'ApiKey']);
  });

  it('named as the key where only a key is accepted do not block the address', async () => {
    const { key } = await makeKey();
    const ip = anAddress();
    for (let i = 0; i < 10; i += 1) {
      const rejected = await one('POST', '/api/prices/', { ...via(ip, named), token, json: {} });
      expect([...verdict(rejected), rejected.headers.get('www-authenticate')]).toEqual([
        401,
        'not_authenticated',
        'ApiKey',
      ]);
    }
    expect((await two('GET', WITH_KEY, via(ip, { 'api-key': key }))).status).toBe(200);
  });

  it('share the ceiling of their user, which is that of a key without its own', async () => {
    const { call } = await world.anotherApi({ env: { RATE_LIMIT_PER_HOUR: '2' }, now });
    const user = await world.makeUser('bob');
    const login = { username: 'bob', password: user.password };
    const { json } = await call('POST', '/api/users/auth/login/', { json: login });
    const ask = async (session: string) => await call('GET', WITH_KEY, { headers: named, token: session });
    expect((await ask(user.token)).headers.get('ratelimit-policy')).toBe('"hour";q=2;w=3600');
    expect((await ask(json.token)).status).toBe(200);
    expect(verdict(await ask(user.token))).toEqual([403, 'rate_limited']);
    expect((await call('GET', LIST, { token: user.token })).status).toBe(200);
  });

  it('are limited on the balance endpoints across all API processes; calls with a key are not', async () => {
    const { key } = await makeKey();
    // Where a session is accepted anyway, naming it as the key changes nothing.
    const ask = async (api: Call) =>
      await api('GET', OF_NOBODY, api === one ? { headers: named, token } : { token });
    passed += 60_000;
    for (let i = 0; i < 10; i += 1) {
      const { status, headers } = await ask(i % 2 ? one : two);
      expect([status, headers.get('ratelimit-policy')]).toEqual([200, '"minute";q=10;w=60']);
      expect(headers.get('ratelimit')).toMatch(new RegExp(`^"minute";r=${9 - i};t=\\d+$`));
    }
    const refused = await ask(one);
    expect(verdict(refused)).toEqual([429, 'throttled']);
    expect(refused.json.success).toBe(false);
    const wait = Number(refused.headers.get('retry-after'));
    expect(wait).toBeGreaterThan(0);
    expect(wait).toBeLessThanOrEqual(60);
    expect(refused.json.detail).toBe(
      `Request was throttled. Expected available in ${wait} second${wait === 1 ? '' : 's'}.`,
    );
    for (let i = 0; i < 12; i += 1) {
      expect((await two('GET', OF_NOBODY, via(anAddress(), { 'api-key': key }))).status).toBe(200);
    }
    passed += wait * 1000;
    expect((await ask(two)).status).toBe(200);
  });
});

describe('the address of a client', () => {
  /** Sends header lines as they are, several of one name too. */
  const raw = async (url: string, headers: Record<string, string | string[]>): Promise<number> =>
    await new Promise((resolve, reject) => {
      const sent = httpRequest(url + WITH_KEY, { headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      });
      sent.on('error', reject).end();
    });
  const CLIENT = '198.51.100.7';
  const SIX = '2001:db8::7';
  const LOOPBACK = '127.0.0.1';
  const apis: Record<string, ReturnType<ApiWorld['anotherApi']>> = {};
  const keys: Record<string, ReturnType<typeof makeKey>> = {};
  const spoofs = ['X-Real-IP', 'Forwarded', 'X-Client-IP', 'True-Client-IP', 'CF-Connecting-IP', 'Client-IP'];
  it.each([
    // trusted proxies, X-Forwarded-For, whose call it is
    ['', [], LOOPBACK],
    ['', [CLIENT], LOOPBACK],
    ['', [`${CLIENT}, ${LOOPBACK}`], LOOPBACK],
    ['10.0.0.0/8', [CLIENT], LOOPBACK],
    ['127.0.0.1', [], LOOPBACK],
    ['127.0.0.1', [CLIENT], CLIENT],
    ['127.0.0.1', [`1.1.1.1, ${CLIENT}`], CLIENT],
    ['127.0.0.1', ['1.1.1.1', CLIENT], CLIENT],
    ['127.0.0.1', [CLIENT, '1.1.1.1'], '1.1.1.1'],
    ['127.0.0.1', [`${CLIENT}, 10.0.0.5`], '10.0.0.5'],
    ['127.0.0.1', [SIX], SIX],
    ['127.0.0.1', [`[${SIX}]:443`], SIX],
    ['127.0.0.1', [`::ffff:${CLIENT}`], CLIENT],
    ['127.0.0.1', [`${CLIENT}, unknown`], LOOPBACK],
    ['::ffff:127.0.0.1', [CLIENT], CLIENT],
    ['127.0.0.1,10.0.0.0/8', [`${CLIENT}, 10.0.0.5`], CLIENT],
    ['127.0.0.1,10.0.0.0/8', [CLIENT, '10.0.0.5'], CLIENT],
    ['127.0.0.1,10.0.0.0/8', [`1.1.1.1, ${CLIENT}, 10.0.0.5`], CLIENT],
    ['127.0.0.1,10.0.0.0/8', [`${CLIENT}, 1.1.1.1, 10.0.0.5`], '1.1.1.1'],
    ['127.0.0.1,fd00::/8', [`${SIX}, fd00::1`], SIX],
    ['127.0.0.1,fd00::/8', [`${CLIENT}, ${SIX}, fd00::1`], SIX],
  ] as const)('behind %j with %j is %s', async (TRUSTED_PROXIES, forwarded, expected) => {
    // Every row fails five times.
    passed += 300_000;
    const { url } = await (apis[TRUSTED_PROXIES] ??= world.anotherApi({ env: { TRUSTED_PROXIES }, now }));
    const verdicts: Record<string, number> = {};
    for (const allowed of [CLIENT, SIX, LOOPBACK, '1.1.1.1', '10.0.0.5', '9.9.9.9']) {
      const { key } = await (keys[allowed] ??= makeKey({ allowed_ips: [allowed] }));
      verdicts[allowed] = await raw(url, {
        'api-key': key,
        ...(forwarded.length === 0 ? {} : { 'X-Forwarded-For': [...forwarded] }),
        ...Object.fromEntries(spoofs.map((name) => [name, name === 'Forwarded' ? 'for=9.9.9.9' : '9.9.9.9'])),
      });
    }
    const fine = Object.entries(verdicts).flatMap(([allowed, status]) => (status === 200 ? [allowed] : []));
    expect(fine).toEqual([expected]);
    expect(Object.values(verdicts).filter((status) => status === 403)).toHaveLength(5);
  });
});
