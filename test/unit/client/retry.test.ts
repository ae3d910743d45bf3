import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { TokenDataClient } from '../../../client/src/client.ts';
import { ApiError } from '../../../client/src/errors.ts';

/** What arrived, and how the next requests are answered. */
const arrived: { method: string; url: string; body: string; at: number }[] = [];
let answers: ((response: ServerResponse) => void)[] = [];

const server = createServer((request: IncomingMessage, response) => {
  void text(request).then((body) => {
    arrived.push({ method: request.method ?? '', url: request.url ?? '', body, at: performance.now() });
    const answer = answers.shift() ?? ok;
    answer(response);
  });
});

const json =
  (status: number, body: unknown, headers: Record<string, string> = {}) =>
  (response: ServerResponse): void => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
  };
const ok = json(200, { fine: true });
const busy = (headers: Record<string, string> = {}) =>
  json(503, { detail: 'Busy.', code: 'busy', status: 503, request_id: 'r1' }, headers);
const slow = json(429, { detail: 'Slow down.', code: 'throttled', status: 429, request_id: 'r' });
const cut = (response: ServerResponse): void => void response.destroy();

let client: TokenDataClient;
let baseUrl: string;

beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  client = new TokenDataClient({ baseUrl, apiKey: 'k', retry: { delayMs: 5, maxDelayMs: 2000 } });
});
beforeEach(() => {
  arrived.length = 0;
  answers = [];
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

describe('a call of the client', () => {
  it.each([
    ['429', slow],
    ['503', busy()],
    ['no answer', cut],
  ])('is repeated after %s', async (_, answer) => {
    answers = [answer, answer];
    await expect(client.getProgress()).resolves.toEqual({ fine: true });
    expect(arrived).toHaveLength(3);
  });

  it('waits as long as Retry-After says', async () => {
    answers = [busy({ 'retry-after': '1' })];
    await client.getProgress();
    const [first, second] = arrived;
    expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThan(990);
  });

  it('is given up after five attempts, or where it is to wait too long, with the answer as an error', async () => {
    answers = Array.from({ length: 5 }, () => busy());
    const error = await client.getProgress().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 503, code: 'busy', requestId: 'r1', message: 'Busy.' });
    expect(error).toMatchObject({ retryAfterSeconds: null });
    expect(arrived).toHaveLength(5);
    answers = [busy({ 'retry-after': '3600' })];
    await expect(client.getProgress()).rejects.toMatchObject({ status: 503, retryAfterSeconds: 3600 });
    expect(arrived).toHaveLength(6);
  });

  it('is not repeated if it is refused', async () => {
    answers = [
      json(400, { detail: 'No.', code: 'invalid', status: 400, request_id: 'r', errors: { limit: ['No.'] } }),
    ];
    await expect(client.listTokens({ query: { limit: 1 } })).rejects.toMatchObject({
      errors: { limit: ['No.'] },
      canonicalHash: null,
    });
    expect(arrived).toHaveLength(1);
    const reverted = { detail: 'No.', code: 'reverted_block', status: 409, request_id: 'r' };
    answers = [json(409, { ...reverted, canonical_hash: '0x1' })];
    await expect(client.getPortfolio({ query: { account_address: '0x1' } })).rejects.toMatchObject({
      code: 'reverted_block',
      canonicalHash: '0x1',
    });
    expect(arrived).toHaveLength(2);
  });

  it('that its caller gives up is rejected with the reason of the signal, also where the answer has begun', async () => {
    answers = [(response) => void response.writeHead(200, { 'content-type': 'application/json' }).write('{')];
    const giveUp = new AbortController();
    const hurried = new TokenDataClient({
      baseUrl,
      fetch: async (...request) => {
        const answer = await fetch(...request);
        setImmediate(() => giveUp.abort('not wanted'));
        return answer;
      },
    });
    await expect(hurried.getProgress({ signal: giveUp.signal })).rejects.toBe('not wanted');
  });

  it('is rejected with all fields of the answer', async () => {
    const body = { error: 'Version conflict', detail: 'Version conflict', server_version: 4 };
    answers = [json(409, body, { 'retry-after': new Date(Date.now() + 60_000).toUTCString() })];
    const error = await client.getProgress().catch((reason: unknown) => reason);
    expect(error).toMatchObject({ status: 409, body });
    expect(error).toMatchObject({ retryAfterSeconds: expect.toSatisfy((s: number) => s > 55 && s <= 60) });
  });

  it.each([
    ['429', slow],
    ['503', busy()],
    ['no answer', cut],
  ])('that writes is repeated after %s only with an Idempotency-Key', async (_, answer) => {
    const body = { name: 'reader' };
    answers = [answer];
    await expect(client.createApiKey({ body })).rejects.toThrow();
    expect(arrived).toHaveLength(1);
    answers = [answer];
    await client.createApiKey({ body, headers: { 'Idempotency-Key': 'once' } });
    expect(arrived.map((one) => one.body)).toEqual(Array.from({ length: 3 }, () => JSON.stringify(body)));
  });
});
