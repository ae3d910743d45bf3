import { createHash, createHmac, randomBytes } from 'node:crypto';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { servedBuilds } from '../../../projections/served.ts';
import { topics } from '../../../schemas/topics.ts';
import { apiWorld } from '../../support/api-world.ts';
import type { Answer, ApiWorld } from '../../support/api-world.ts';
import { logOf } from '../../support/topic.ts';

/** The encrypted sync, driven by a wallet that has nothing but the contract: it signs by itself. */

let world: ApiWorld;
beforeAll(async () => {
  world = await apiWorld({ SYNC_CALLS_PER_MINUTE: '1000' });
});
afterAll(async () => {
  await world.close();
});

interface Wallet {
  readonly lookupHash: string;
  readonly authKey: string;
}
const newWallet = (): Wallet => ({
  lookupHash: randomBytes(32).toString('hex'),
  authKey: randomBytes(32).toString('hex'),
});
const now = (): number => Math.floor(Date.now() / 1000);

function sign(authKey: string, parts: readonly string[]): string {
  return createHmac('sha256', Buffer.from(authKey, 'hex')).update(parts.join(':'), 'ascii').digest('hex');
}
const pathOf = ({ lookupHash }: Wallet): string => `/api/vendor/sync/${lookupHash}/`;

function get(wallet: Wallet, { timestamp = String(now()), key = wallet.authKey } = {}): Promise<Answer> {
  const signature = sign(key, ['GET', wallet.lookupHash, timestamp]);
  const headers = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': signature };
  return world.call('GET', pathOf(wallet), { headers });
}

function put(
  wallet: Wallet,
  body: { blob: string; version: number; auth_key?: unknown },
  { timestamp = String(now()), key = wallet.authKey, api = world as Pick<ApiWorld, 'call'> } = {},
): Promise<Answer> {
  const bodyHash = createHash('sha256').update(body.blob, 'utf8').digest('hex');
  const signature = sign(key, ['PUT', wallet.lookupHash, timestamp, bodyHash]);
  const headers = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': signature };
  return api.call('PUT', pathOf(wallet), { headers, json: body });
}

const first = (wallet: Wallet, blob = 'c2VjcmV0', version = 1): Promise<Answer> =>
  put(wallet, { blob, version, auth_key: wallet.authKey });
const errorOf = ({ status, json }: Answer): unknown => [status, json.error];

describe('a wallet', () => {
  it('stores a blob, reads it back unchanged, and replaces it', async () => {
    const wallet = newWallet();
    const blob = 'ünïcode "quoted" \\ and\ttabs 🙂';
    const before = Date.now();
    expect((await first(wallet, blob)).json).toEqual({ version: 1, status: 'ok' });
    const { status, json } = await get(wallet);
    expect([status, json.version, json.blob]).toEqual([200, 1, blob]);
    expect(Date.parse(json.last_modified)).toBeGreaterThanOrEqual(before);
    expect(Object.keys(json)).toEqual(['version', 'blob', 'last_modified']);

    expect((await put(wallet, { blob: 'two', version: 7 })).json).toEqual({ version: 7, status: 'ok' });
    expect((await get(wallet)).json).toMatchObject({ version: 7, blob: 'two' });
  });

  it('merges after a conflict', async () => {
    const wallet = newWallet();
    await first(wallet, 'one', 4);
    for (const version of [3, 4]) {
      const lost = await put(wallet, { blob: 'mine', version });
      expect([lost.status, lost.json.error, lost.json.server_version]).toEqual([409, 'Version conflict', 4]);
    }
    expect((await put(wallet, { blob: 'merged', version: 5 })).status).toBe(200);
    // The same PUT once more is a conflict as written.
    expect(errorOf(await put(wallet, { blob: 'merged', version: 5 }))).toEqual([409, 'Version conflict']);
    expect((await get(wallet)).json.blob).toBe('merged');
  });

  it('keeps its first key regardless of later bodies', async () => {
    const wallet = newWallet();
    const other = randomBytes(32).toString('hex');
    await first(wallet);
    for (const [i, key] of [null, 7, '', 'xyz', 'ab'.repeat(1000), other].entries()) {
      expect(errorOf(await put(wallet, { blob: 'x', version: i + 2, auth_key: key })), `${i}`).toEqual([
        200,
        undefined,
      ]);
    }
    expect(errorOf(await put(wallet, { blob: 'y', version: 9, auth_key: other }, { key: other }))).toEqual([
      403,
      'Invalid signature',
    ]);
    expect(errorOf(await get(wallet, { key: other }))).toEqual([403, 'Invalid signature']);
    expect((await get(wallet)).json.blob).toBe('x');
  });

  it('needs no API key, and ignores an invalid one', async () => {
    const wallet = newWallet();
    await first(wallet);
    const timestamp = String(now());
    const signature = sign(wallet.authKey, ['GET', wallet.lookupHash, timestamp]);
    const headers = {
      'X-Vendor-Timestamp': timestamp,
      'X-Vendor-Signature': signature,
      'api-key': 'no such key',
    };
    expect((await world.call('GET', pathOf(wallet).slice(0, -1), { headers })).status).toBe(200);
  });
});

describe('the order of checks', () => {
  const stranger = newWallet();

  it('is headers, timestamp, existence of the blob, signature', async () => {
    const wallet = newWallet();
    await first(wallet);
    const [timestamp, old] = [String(now()), String(now() - 1000)];
    const cases: [Record<string, string>, Wallet, unknown][] = [
      [{}, stranger, [403, 'Missing signature or timestamp']],
      [{ 'X-Vendor-Timestamp': timestamp }, wallet, [403, 'Missing signature or timestamp']],
      [{ 'X-Vendor-Signature': 'ab' }, wallet, [403, 'Missing signature or timestamp']],
      [{ 'X-Vendor-Timestamp': old, 'X-Vendor-Signature': 'ab' }, stranger, [403, 'Request expired']],
      [{ 'X-Vendor-Timestamp': 'soon', 'X-Vendor-Signature': 'ab' }, wallet, [403, 'Request expired']],
      [{ 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': 'ab' }, wallet, [403, 'Invalid signature']],
      [{ 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': 'ü' }, wallet, [403, 'Invalid signature']],
    ];
    for (const [headers, of, answer] of cases) {
      expect(errorOf(await world.call('GET', pathOf(of), { headers }))).toEqual(answer);
      const put = await world.call('PUT', pathOf(of), {
        headers,
        json: { blob: 'b', version: 1, auth_key: 'ab' },
      });
      // A first PUT has its key with it, so there is a signature to check.
      expect(errorOf(put)).toEqual(answer);
    }
    const headers = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': 'ab' };
    for (const path of [pathOf(stranger), '/api/vendor/sync/%00/', '/api/vendor/sync/caf%C3%A9/']) {
      expect((await world.call('GET', path, { headers })).status, path).toBe(404);
    }
    // The version is not told to who cannot sign.
    const unsigned = await put(wallet, { blob: 'b', version: 1 }, { key: stranger.authKey });
    expect([errorOf(unsigned), unsigned.json.server_version]).toEqual([
      [403, 'Invalid signature'],
      undefined,
    ]);
    // An upper-case digest is another text.
    const loud = sign(wallet.authKey, ['GET', wallet.lookupHash, timestamp]).toUpperCase();
    const shouted = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': loud };
    expect(errorOf(await world.call('GET', pathOf(wallet), { headers: shouted }))).toEqual([
      403,
      'Invalid signature',
    ]);
  });

  it('300 s of skew are allowed, either way', async () => {
    const wallet = newWallet();
    await first(wallet);
    for (const [skew, status] of [
      [-299, 200],
      [299, 200],
      [-301, 403],
      [302, 403],
    ] as const) {
      expect([skew, (await get(wallet, { timestamp: String(now() + skew) })).status]).toEqual([skew, status]);
    }
  });

  it('a signature is valid for its own method, hash, time and blob only', async () => {
    const [wallet, other] = [newWallet(), newWallet()];
    await first(wallet);
    await put(other, { blob: 'x', version: 1, auth_key: wallet.authKey }, { key: wallet.authKey });
    const timestamp = String(now());
    const bodyHash = createHash('sha256').update('b').digest('hex');
    const wrong = [
      ['GET', other.lookupHash, timestamp],
      ['GET', wallet.lookupHash, String(now() - 1)],
      ['PUT', wallet.lookupHash, timestamp],
      ['get', wallet.lookupHash, timestamp],
    ];
    for (const parts of wrong) {
      const headers = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': sign(wallet.authKey, parts) };
      expect(errorOf(await world.call('GET', pathOf(wallet), { headers }))).toEqual([
        403,
        'Invalid signature',
      ]);
    }
    const signature = sign(wallet.authKey, ['PUT', wallet.lookupHash, timestamp, bodyHash]);
    const headers = { 'X-Vendor-Timestamp': timestamp, 'X-Vendor-Signature': signature };
    const swapped = await world.call('PUT', pathOf(wallet), { headers, json: { blob: 'c', version: 2 } });
    expect(errorOf(swapped)).toEqual([403, 'Invalid signature']);
  });

  it('an invalid body is answered 400, one that is too large 413', async () => {
    const wallet = newWallet();
    const bodies: [unknown, string][] = [
      [{ version: 1, auth_key: 'ab' }, 'blob'],
      [{ blob: '', version: 1, auth_key: 'ab' }, 'blob'],
      [{ blob: 7, version: 1, auth_key: 'ab' }, 'blob'],
      [{ blob: 'b', auth_key: 'ab' }, 'version'],
      [{ blob: 'b', version: 0, auth_key: 'ab' }, 'version'],
      [{ blob: 'b', version: 1.5, auth_key: 'ab' }, 'version'],
      [{ blob: 'b', version: '1', auth_key: 'ab' }, 'version'],
      [{ blob: 'b', version: 1, auth_key: 'xyz' }, 'auth_key'],
      [{ blob: 'b', version: 1, auth_key: 'abc' }, 'auth_key'],
      [{ blob: 'b', version: 1 }, 'auth_key'],
    ];
    const headers = { 'X-Vendor-Timestamp': String(now()), 'X-Vendor-Signature': 'ab' };
    for (const [json, field] of bodies) {
      const answer = await world.call('PUT', pathOf(wallet), { headers, json });
      expect([answer.status, Object.keys(answer.json.errors)]).toEqual([400, [field]]);
      expect(answer.json.error).toContain(field);
    }
    const text = await world.call('PUT', pathOf(wallet), {
      headers: { ...headers, 'Content-Type': 'application/json' },
      body: '{"blob"',
    });
    expect([text.status, typeof text.json.error]).toEqual([400, 'string']);
    const loud = { ...wallet, lookupHash: wallet.lookupHash.toUpperCase() };
    expect((await first(loud)).status).toBe(400);

    const [most, more] = ['a'.repeat(1_048_576), 'a'.repeat(1_048_577)];
    expect((await first(wallet, more)).status).toBe(413);
    expect((await first(wallet, 'a'.repeat(1_600_000))).status).toBe(413);
    expect((await first(wallet, most)).status).toBe(200);
    expect((await get(wallet)).json.blob).toBe(most);
  });
});

it('of concurrent PUTs exactly one succeeds', async () => {
  const wallet = newWallet();
  // First ones, each with a key of its own, as of several devices that do not know of each other.
  const keys = Array.from({ length: 8 }, () => randomBytes(32).toString('hex'));
  const firsts = await Promise.all(
    keys.map((key, i) => put(wallet, { blob: `first ${i}`, version: i + 1, auth_key: key }, { key })),
  );
  expect(firsts.filter(({ status }) => status === 200)).toHaveLength(1);
  for (const answer of firsts.filter(({ status }) => status !== 200)) {
    expect(errorOf(answer)).toEqual([403, 'Invalid signature']);
  }
  const winner = firsts.findIndex(({ status }) => status === 200);
  const owner = { ...wallet, authKey: keys[winner] ?? '' };
  expect((await get(owner)).json).toMatchObject({ version: winner + 1, blob: `first ${winner}` });

  // Later ones of one version, by two devices.
  const later = await Promise.all(
    Array.from({ length: 8 }, (_, i) => put(owner, { blob: `later ${i}`, version: 20 })),
  );
  expect(later.filter(({ status }) => status === 200)).toHaveLength(1);
  for (const answer of later.filter(({ status }) => status !== 200)) {
    expect([errorOf(answer), answer.json.server_version]).toEqual([[409, 'Version conflict'], 20]);
  }
  const stored = later.findIndex(({ status }) => status === 200);
  expect((await get(owner)).json.blob).toBe(`later ${stored}`);
});

it('neither key nor hash is in the log of commands, the tables or the log lines in clear', async () => {
  const wallet = newWallet();
  await first(wallet, 'opaque');
  await get(wallet);
  let commands = '';
  for await (const { value } of logOf(world.kafka, topics.commands)) commands += value.toString();
  const { rows } = await world.pool.query(
    `SELECT blob::text, auth_key FROM ${(await servedBuilds(world.pool)).schema('sync')}.sync_blobs WHERE lookup_hash = $1`,
    [wallet.lookupHash],
  );
  expect(commands).toContain(wallet.lookupHash);
  expect(commands).not.toContain(wallet.authKey);
  expect(JSON.stringify(rows)).toContain('opaque');
  expect(JSON.stringify(rows)).not.toContain(wallet.authKey);
  for (const secret of [wallet.authKey, wallet.lookupHash]) expect(world.logged()).not.toContain(secret);
});

it('a key sealed with a previous SECRET_KEY is readable, and sealed again at the next PUT', async () => {
  const wallet = newWallet();
  await first(wallet);
  const before = world.env['SECRET_KEY'] ?? '';
  const secret = randomBytes(32).toString('hex');
  const renewed = await world.anotherApi({ env: { SECRET_KEY: secret, SECRET_KEYS_PREVIOUS: before } });
  const later = await world.anotherApi({ env: { SECRET_KEY: secret } });
  const signed = (method: string, timestamp: string, ...rest: string[]): Record<string, string> => ({
    'X-Vendor-Timestamp': timestamp,
    'X-Vendor-Signature': sign(wallet.authKey, [method, wallet.lookupHash, timestamp, ...rest]),
  });
  const read = (api: typeof later): Promise<Answer> =>
    api.call('GET', pathOf(wallet), { headers: signed('GET', String(now())) });
  expect([(await read(renewed)).status, (await read(later)).status]).toEqual([200, 500]);
  const bodyHash = createHash('sha256').update('anew').digest('hex');
  const headers = signed('PUT', String(now()), bodyHash);
  const put = await renewed.call('PUT', pathOf(wallet), { headers, json: { blob: 'anew', version: 2 } });
  expect(put.status).toBe(200);
  expect((await read(later)).json.blob).toBe('anew');
  await renewed.close();
  await later.close();
});

it('the calls of an address are limited', async () => {
  const strict = await world.anotherApi({ env: { SYNC_CALLS_PER_MINUTE: '3', REDIS_KEY_PREFIX: 'strict:' } });
  const answers = [];
  for (let i = 0; i < 4; i += 1) answers.push(await strict.call('GET', pathOf(newWallet())));
  expect(answers.map(({ status }) => status)).toEqual([403, 403, 403, 429]);
  expect(Number(answers[3]?.headers.get('retry-after'))).toBeGreaterThan(0);
  expect(answers[3]?.json.error).toBe(answers[3]?.json.detail);
  await strict.close();
});

it('the bytes that an address stores are limited, and reads and other answers are not', async () => {
  const limited = await world.anotherApi({
    env: { SYNC_BYTES_PER_HOUR: '4194304', REDIS_KEY_PREFIX: 'limited:' },
  });
  const [wallet, blob] = [newWallet(), 'x'.repeat(1_048_576)];
  const store = (version: number, text = blob, key = wallet.authKey): Promise<Answer> =>
    put(wallet, { blob: text, version, auth_key: wallet.authKey }, { key, api: limited });
  for (const version of [1, 2, 3]) expect((await store(version)).status).toBe(200);
  // Nothing is stored, and nothing counted.
  expect((await store(3)).status).toBe(409);
  expect((await store(4, blob, newWallet().authKey)).status).toBe(403);
  expect((await store(4)).status).toBe(200);

  const full = await store(5, 'x');
  expect([full.status, full.json.error]).toEqual([429, full.json.detail]);
  const seconds = Number(full.headers.get('retry-after'));
  expect(seconds).toBeGreaterThan(3500);
  expect(seconds).toBeLessThanOrEqual(3600);
  expect((await get(wallet)).json.version).toBe(4);
  await limited.close();
});
