import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Redis } from 'ioredis';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { freePort } from '../../../infra/embedded/ports.ts';
import { startRedis } from '../../../infra/embedded/redis.ts';
import type { EmbeddedService } from '../../../infra/embedded/service.ts';
import { createLogger } from '../../../infra/log.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld, Call } from '../../support/api-world.ts';
import { startProxy } from '../../support/faults/proxy.ts';
import type { FaultProxy } from '../../support/faults/proxy.ts';
import { tds } from '../../support/tds.ts';

const log = createLogger('test', 'warn');

/** Two API processes while their Redis is stopped, hangs, or is a replica. */

const LOGIN = '/api/users/auth/login/';
const CREATE = '/api/users/auth/create-api-key/';
const WITH_KEY = '/api/indexer/progress/';

let world: ApiWorld;
let home: string;
let server: EmbeddedService;
let proxy: FaultProxy;
/** The operator's connection to it. */
let redis: Redis;
let one: Call;
let two: Call;
let user: { token: string; password: string };

beforeAll(async () => {
  // A separate server, as other files must not see the replica.
  home = mkdtempSync(join(tmpdir(), 'tds-limits-away-'));
  server = await startRedis({ dataDir: home, port: await freePort(), log });
  world = await apiWorld({ TRUSTED_PROXIES: '127.0.0.0/8', REDIS_URL: server.url });
  const url = new URL(server.url);
  redis = new Redis(url.href);
  proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  const env = { REDIS_URL: `redis://${proxy.host}:${proxy.port}`, REDIS_TIMEOUT_MS: '2000' };
  const apis = await Promise.all([world.anotherApi({ env }), world.anotherApi({ env })]);
  [one, two] = apis.map(({ call }) => call) as [Call, Call];
  user = await world.makeUser('alice');
});
afterAll(async () => {
  proxy.weather({});
  redis.disconnect();
  await world.close();
  await proxy.close();
  await server.stop();
  rmSync(home, { recursive: true, force: true });
});

const makeKey = async (json: Record<string, unknown> = {}): Promise<string> => {
  const { status, json: made } = await world.call('POST', CREATE, {
    token: user.token,
    json: { name: 'a key', ...json },
  });
  expect(status).toBe(201);
  return made.key;
};
let addresses = 0;
const call = async (api: Call, key: string, ip = `100.64.0.${(addresses += 1) % 256}`): Promise<Answer> =>
  await api('GET', WITH_KEY, { headers: { 'api-key': key, 'X-Forwarded-For': ip } });
const login = async (api: Call): Promise<Answer> =>
  await api('POST', LOGIN, { json: { username: 'alice', password: user.password } });
const limitsOf = async (api: Call): Promise<[number, string, string]> => {
  const { status, json } = await api('GET', '/readyz');
  return [status, json.redis, json.limits];
};
/** Until both use Redis. A log-in needs it; /readyz can be from before the outage, as it is at most a second old. */
const untilShared = async (): Promise<void> => {
  for (const api of [one, two]) {
    await expect.poll(async () => (await login(api)).status).toBe(200);
  }
};
const away = [200, 'unavailable', 'local and stricter; no log-in'];

const faults = {
  'is gone': async () => {
    proxy.weather({ refuse: true });
    proxy.reset();
  },
  hangs: async () => proxy.weather({ halfOpen: true }),
  // A replica answers, but refuses writes.
  'is a replica': async () => void (await redis.replicaof('127.0.0.1', 1)),
};
const restore = async (): Promise<void> => {
  proxy.weather({});
  await redis.replicaof('NO', 'ONE');
  await untilShared();
};

describe.each(Object.keys(faults) as (keyof typeof faults)[])('when Redis %s', (how) => {
  afterEach(restore);

  it('serves reads under a quarter of the ceiling, refuses log-ins, and reports the outage', async () => {
    const [key, free] = [await makeKey({ rate_limit_per_hour: 8 }), await makeKey()];
    for (let i = 0; i < 3; i += 1) expect((await call(i % 2 ? one : two, key)).status).toBe(200);
    expect((await login(one)).status).toBe(200);
    await faults[how]();
    // If each call waited for Redis, these calls would time out the test.
    for (let i = 0; i < 100; i += 1) expect((await call(one, free)).status).toBe(200);
    expect((await call(one, key)).headers.get('ratelimit')).toMatch(/^"hour";r=1;/);
    const statuses = [];
    for (let i = 0; i < 4; i += 1) statuses.push((await call(one, key)).status);
    expect(statuses).toEqual([200, 403, 403, 403]);
    const refused = await login(one);
    expect([refused.status, refused.json.code]).toEqual([503, 'unavailable']);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    // /readyz is at most a second old.
    await expect.poll(() => limitsOf(one)).toEqual(away);
    await expect.poll(() => limitsOf(two)).toEqual(away);
    await restore();
    await expect.poll(() => limitsOf(one)).toEqual([200, 'ok', 'shared']);
    // Calls counted before the outage still count: three of eight.
    for (let i = 0; i < 5; i += 1) expect((await call(i % 2 ? one : two, key)).status).toBe(200);
    expect((await call(one, key)).status).toBe(403);
  });

  it('each API blocks failing addresses, and keeps existing blocks', async () => {
    const key = await makeKey();
    const blocked = '203.0.113.1';
    for (let i = 0; i < 10; i += 1) await call(one, 'wrong', blocked);
    expect((await call(one, key, blocked)).json.code).toBe('ip_blocked');
    await faults[how]();
    expect((await call(one, key, blocked)).json.code).toBe('ip_blocked');
    const failing = `203.0.113.${2 + Object.keys(faults).indexOf(how)}`;
    for (let i = 0; i < 10; i += 1) expect((await call(one, 'wrong', failing)).status).toBe(401);
    expect((await call(one, key, failing)).json.code).toBe('ip_blocked');
    expect((await call(two, key, failing)).status).toBe(200);
    await restore();
    await redis.flushdb();
  });

  it('fails no call in flight', async () => {
    const key = await makeKey({ rate_limit_per_hour: 1000 });
    let answered = 0;
    const statuses = new Set<number>();
    const caller = async (api: Call): Promise<void> => {
      for (let i = 0; i < 12; i += 1) {
        statuses.add((await call(api, key)).status);
        answered += 1;
        if (answered === 60) await faults[how]();
      }
    };
    await Promise.all(Array.from({ length: 20 }, (_, i) => caller(i % 2 ? one : two)));
    expect([...statuses]).toEqual([200]);
  });
});

it('releases the slot of a failed call before answering, however slow Redis is', async () => {
  await untilShared();
  const key = await makeKey({ rate_limit_per_hour: 1 });
  proxy.weather({ latencyMs: 100 });
  for (let i = 0; i < 4; i += 1) {
    for (const api of [one, world.call]) {
      const headers = { 'api-key': key, 'X-Forwarded-For': '203.0.113.99' };
      expect((await api('GET', '/api/transfers/', { headers })).status).toBe(400);
    }
  }
  proxy.weather({});
});

it('tds status shows that Redis is unavailable', async () => {
  const here = await tds(world.env, 'status');
  expect([here.code, here.stdout]).toEqual([0, expect.not.stringContaining('Redis')]);
  const env = { ...world.env, REDIS_URL: 'redis://127.0.0.1:1' };
  const gone = await tds(env, 'status');
  expect([gone.code, gone.stdout]).toEqual([0, expect.stringMatching(/^ALARM +Redis unavailable/m)]);
  expect(JSON.parse((await tds(env, 'status', '--json')).stdout)).toMatchObject({ redis: false });
});
