import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createRawServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { createPool, inTransaction } from '../../../infra/postgres/client.ts';
import { createSealing } from '../../../infra/sealing.ts';
import { retryDelivery } from '../../../pipeline/dispatch/deliveries.ts';
import {
  activateEndpoints,
  activatedWebhooks,
  webhooksToDisable,
} from '../../../pipeline/dispatch/endpoints.ts';
import { startReadableSecretsCheck } from '../../../pipeline/dispatch/readable-secrets.ts';
import { claimDeliveries, releaseClaims } from '../../../pipeline/dispatch/send/claims.ts';
import type { DeliveryClaim } from '../../../pipeline/dispatch/send/claims.ts';
import { storeOutcomes } from '../../../pipeline/dispatch/send/outcomes.ts';
import type { AttemptOutcome } from '../../../pipeline/dispatch/send/outcomes.ts';
import { secretOf } from '../../../projections/webhooks/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { verify } from '../../../schemas/webhooks/signature.ts';
import { DELAYS_MS, LEASE_MS, deliveryWorld, newSecret } from '../../support/delivery-world.ts';
import type { Answering, DeliveryWorld, Received, Receiver } from '../../support/delivery-world.ts';
import { startProxy } from '../../support/faults/proxy.ts';
import { until } from '../../support/projection-world.ts';

/** The contract's states of a delivery and of its webhook, over real sockets, stores and the log. */

let world: DeliveryWorld;
beforeAll(async () => {
  world = await deliveryWorld();
});
afterAll(async () => await world.close());
afterEach(async () => {
  await world.reset();
  expect(world.failures.splice(0)).toEqual([]);
});

const answering =
  (status: number, body = '', headers: Record<string, string> = {}): Answering =>
  (_, response) =>
    void response.writeHead(status, headers).end(body);
const failing = answering(500, 'no');
const taking = answering(200, 'thank you', { 'content-type': 'text/plain' });

interface Subject {
  readonly webhook: number;
  readonly secret: string;
  readonly receiver: Receiver;
}
async function subject(answer: Answering, host?: string): Promise<Subject> {
  const receiver = await world.receiver(answer, host);
  const { id, secret } = await world.webhook(receiver.url);
  return { webhook: id, secret, receiver };
}
const attemptsOf = (received: readonly Received[], id: string): number[] =>
  received.filter((one) => one.id === id).map(({ attempt }) => attempt);
/** Waits until so many attempts of a delivery are written down. */
async function ended(webhook: number, ids: string | readonly string[], attempts: number): Promise<void> {
  for (const id of typeof ids === 'string' ? [ids] : ids) {
    await until(async () => (await world.delivery(webhook, id)).attempts === attempts);
  }
}
/** All scheduled attempts fail. */
async function die(webhook: number, ids: readonly string[]): Promise<void> {
  await ended(webhook, ids, 1);
  for (const [made, delay] of DELAYS_MS.entries()) {
    world.clock.advance(delay);
    await ended(webhook, ids, made + 2);
  }
}
const stateOf = async (webhook: number): Promise<string> => {
  const { rows } = await world.pool.query<{ status: string }>(
    `SELECT status FROM ${world.schema}.webhooks WHERE id = $1`,
    [webhook],
  );
  return rows[0]?.status ?? 'gone';
};
const streakOf = async (webhook: number): Promise<number | undefined> => {
  const { rows } = await world.pool.query<{ consecutive_dead: number }>(
    'SELECT consecutive_dead FROM tds.webhook_endpoints WHERE webhook_id = $1',
    [webhook],
  );
  return rows[0]?.consecutive_dead;
};
const isDisabled = async (webhook: number): Promise<boolean> => (await stateOf(webhook)) === 'disabled';
const retry = async (webhook: number, id: string): Promise<void> =>
  void (await world.command('delivery.retry', { webhook_id: webhook, delivery_id: id }));
const patch = async (webhook: number, status: 'active' | 'paused' | 'disabled'): Promise<void> =>
  void (await world.command('webhook.update', { webhook_id: webhook, status }));
const setDisabled = async (isDisabled: boolean, id?: string): Promise<void> =>
  void (await world.command('user.disable', { is_disabled: isDisabled }, id));
async function test(webhook: number): Promise<string> {
  const id = randomUUID();
  await world.command('webhook.test', { webhook_id: webhook, delivery_id: id });
  return id;
}
/** The dispatcher has done what it was asked up to now. */
async function requested(): Promise<void> {
  await until(async () => {
    const { rows } = await world.pool.query<{ done: boolean }>(
      `SELECT coalesce(max(command_offset), -1) < (SELECT max(next_offset) FROM tds.checkpoints WHERE consumer = 'dispatch-requests') AS done
       FROM ${world.schema}.webhook_requests`,
    );
    return rows[0]?.done === true;
  });
}

/** A pool whose connections can be cut. */
async function proxiedPool() {
  const url = new URL(world.env['DATABASE_URL'] ?? '');
  const proxy = await startProxy({ host: url.hostname, port: Number(url.port) });
  url.port = String(proxy.port);
  return { proxy, pool: createPool(url.href, { applicationName: 'test', connectTimeoutMs: 2000 }) };
}

/** Claims all that is due, as a dispatcher of its own. */
const claim = async (): Promise<DeliveryClaim[]> =>
  await claimDeliveries(world.pool, {
    schema: world.schema,
    now: world.clock.now(),
    lease: randomUUID(),
    leaseMs: LEASE_MS,
    limit: 100,
    perEndpoint: new Map(),
    perOtherEndpoint: 100,
    deadLimit: 10,
    inFlight: [],
  });

/** The last scheduled attempt of a delivery has failed. */
const deathOf = (claim: DeliveryClaim): AttemptOutcome => ({
  claim,
  next: { ...claim, status: 'dead', attempts: 9, scheduledAt: null, dueAt: null, hasDied: true },
  startedAt: world.clock.now(),
  durationMs: 1,
  responseCode: 500,
  responseBody: null,
  error: 'answered 500',
});

describe('an attempt', () => {
  /** Talks without HTTP's help. */
  async function talker(talk: (socket: Socket) => void): Promise<{ url: string; close(): Promise<void> }> {
    const sockets = new Set<Socket>();
    const server = createRawServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.once('data', () => talk(socket));
    });
    server.listen(0, '127.0.0.3');
    await once(server, 'listening');
    return {
      url: `http://127.0.0.3:${(server.address() as AddressInfo).port}/`,
      async close() {
        for (const socket of sockets) socket.destroy();
        server.close();
        await once(server, 'close');
      },
    };
  }
  const text = { 'content-type': 'text/plain; charset=utf-8' };

  it.each<[string, Answering, Record<string, unknown>]>([
    ['200', taking, { status: 'success', response_code: 200, response_body: 'thank you', error: null }],
    ['204', answering(204), { status: 'success', response_code: 204, response_body: null, error: null }],
    ['299', answering(299), { status: 'success', response_code: 299, error: null }],
    [
      '301',
      answering(301, 'over there', { ...text, location: 'http://127.0.0.2:1/' }),
      { response_code: 301, response_body: 'over there', error: expect.stringContaining('redirect') },
    ],
    ['304', answering(304), { response_code: 304, response_body: null }],
    [
      '400',
      answering(400, '{"a":1}', { 'content-type': 'application/problem+json' }),
      { response_body: '{"a":1}' },
    ],
    ['410', answering(410), { response_code: 410, error: 'answered 410' }],
    ['429', answering(429, '', { 'retry-after': '1' }), { response_code: 429, error: 'answered 429' }],
    ['500', answering(500, 'oh', text), { response_code: 500, response_body: 'oh', error: 'answered 500' }],
    ['503', answering(503), { response_code: 503, error: 'answered 503' }],
    [
      'a long text, which is cut before the character that does not fit',
      answering(500, `${'a'.repeat(16_383)}é and more`, text),
      { response_body: 'a'.repeat(16_383) },
    ],
    ['NUL characters', answering(500, 'a\0b', text), { response_body: 'a\u2400b' }],
    [
      'bytes that are not UTF-8',
      (_, response) => void response.writeHead(500, text).end(Buffer.from([0x61, 0xff])),
      { response_body: 'a\ufffd' },
    ],
    [
      'an image',
      answering(500, 'GIF89a', { 'content-type': 'image/gif' }),
      { response_code: 500, response_body: null },
    ],
    ['text without a Content-Type', answering(500, 'plain'), { response_body: 'plain' }],
    [
      'bytes without a Content-Type',
      (_, response) => void response.writeHead(500).end(Buffer.from([0x61, 0xff])),
      { response_body: null },
    ],
    [
      'nothing in time',
      () => {},
      { response_code: null, response_body: null, error: 'no answer within 0.4 s' },
    ],
    [
      'a beginning, and no end in time',
      (_, response) => void response.writeHead(200, text).write('well'),
      { response_code: null, response_body: null, error: 'no answer within 0.4 s' },
    ],
    [
      'half of its Content-Length',
      (_, response) => {
        response.writeHead(200, { ...text, 'content-length': '100' }).write('half');
        setTimeout(() => response.destroy(), 20);
      },
      { response_code: null, error: expect.stringContaining('closed') },
    ],
    [
      'a closed connection',
      (_, response) => void response.destroy(),
      { error: expect.stringContaining('closed') },
    ],
  ])('that is answered with %s', async (_name, answer, expected) => {
    const took = 123;
    world.sender();
    const { webhook, receiver } = await subject((received, response) => {
      world.clock.advance(took);
      answer(received, response);
    });
    const at = world.clock.now();
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    const delivery = await world.delivery(webhook, id);
    const { status = 'failed' } = expected;
    expect(delivery).toMatchObject({
      ...expected,
      status,
      duration_ms: took,
      last_attempt_at: at,
      next_attempt_at: status === 'success' ? null : at + took + 30_000,
      manual: false,
    });
    expect(attemptsOf(receiver.received, id)).toEqual([1]);
    // Not by a 410 either: it counts as one failure.
    expect(await stateOf(webhook)).toBe('active');
  });

  it('fails where no server listens, the server speaks no HTTP, or the address is not allowed', async () => {
    world.sender();
    const gone = await talker(() => {});
    await gone.close();
    const rude = await talker((socket) => void socket.end('who are you?\r\n\r\n'));
    const errors: Record<string, RegExp> = {
      [gone.url]: /no connection/,
      [rude.url]: /not HTTP/,
      'https://10.1.2.3/': /^blocked address$/,
      'http://169.254.169.254/latest': /^blocked address$/,
    };
    for (const [url, error] of Object.entries(errors)) {
      const { id: webhook } = await world.webhook(url);
      const [id = ''] = await world.deliver(webhook);
      await ended(webhook, id, 1);
      const delivery = await world.delivery(webhook, id);
      expect(delivery).toMatchObject({ status: 'failed', response_code: null, response_body: null });
      expect(delivery.error).toMatch(error);
    }
    await rude.close();
  });

  it('does not follow a redirect', async () => {
    world.sender();
    const { receiver: target } = await subject(taking, '127.0.0.4');
    const { webhook } = await subject(answering(307, '', { location: target.url }));
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    await world.looked();
    expect(target.received).toEqual([]);
  });

  it('carries the headers of the contract and of Standard Webhooks, signed by the secret', async () => {
    world.sender();
    const { webhook, secret, receiver } = await subject(taking);
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    const { body } = await world.delivery(webhook, id);
    const [got] = receiver.received;
    expect(got?.body).toBe(body);
    expect(got?.headers).toMatchObject({
      'content-type': 'application/json',
      'x-vendor-event': 'transfer.created',
      'x-vendor-delivery': id,
      'x-vendor-attempt': '1',
      'x-vendor-signature': `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`,
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor((got?.at ?? 0) / 1000)),
    });
    expect(verify(body, got?.headers ?? {}, secret, { now: world.clock.now() })).toEqual(JSON.parse(body));
  });
});

describe('retries', () => {
  it('come after 30 s, 5 min, 30 min, 2 h and 12 h, never earlier, numbered; then the delivery is dead', async () => {
    world.sender();
    const { webhook, secret, receiver } = await subject(failing);
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    for (const [made, delay] of DELAYS_MS.entries()) {
      expect(await world.delivery(webhook, id)).toMatchObject({
        status: 'failed',
        attempts: made + 1,
        next_attempt_at: world.clock.now() + delay,
      });
      world.clock.advance(delay - 1);
      await world.looked();
      expect(attemptsOf(receiver.received, id)).toHaveLength(made + 1);
      world.clock.advance(1);
      await ended(webhook, id, made + 2);
    }
    expect(await world.delivery(webhook, id)).toMatchObject({
      status: 'dead',
      attempts: 6,
      next_attempt_at: null,
    });
    world.clock.advance(30 * 86_400_000);
    await world.looked();
    expect(attemptsOf(receiver.received, id)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(new Set(receiver.received.map(({ body }) => body)).size).toBe(1);
    for (const { headers, body, at } of receiver.received) {
      expect(() => verify(body, headers, secret, { now: at })).not.toThrow();
    }
  });

  it('end with the first that is accepted', async () => {
    world.sender();
    const { webhook, receiver } = await subject(failing);
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    receiver.answer = taking;
    world.clock.advance(30_000);
    await ended(webhook, id, 2);
    expect(await world.delivery(webhook, id)).toMatchObject({
      status: 'success',
      response_code: 200,
      error: null,
      next_attempt_at: null,
    });
    world.clock.advance(86_400_000);
    await world.looked();
    expect(attemptsOf(receiver.received, id)).toEqual([1, 2]);
  });

  it('keep the id when the receiver has answered too late', async () => {
    world.sender();
    const late: (() => void)[] = [];
    const { webhook, receiver } = await subject((_, response) => void late.push(() => response.end('mine')));
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    for (const answer of late) answer();
    receiver.answer = taking;
    expect(await world.delivery(webhook, id)).toMatchObject({ status: 'failed', response_code: null });
    world.clock.advance(30_000);
    await ended(webhook, id, 2);
    expect((await world.delivery(webhook, id)).status).toBe('success');
    const [first, second] = receiver.received;
    expect([second?.id, second?.body]).toEqual([first?.id, first?.body]);
    expect(attemptsOf(receiver.received, id)).toEqual([1, 2]);
  });

  it('go to the current URL of the webhook', async () => {
    await world.station();
    const { webhook } = await subject(failing);
    const other = await world.receiver(taking, '127.0.0.5');
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    await world.command('webhook.update', { webhook_id: webhook, url: other.url });
    world.clock.advance(30_000);
    await ended(webhook, id, 2);
    expect(attemptsOf(other.received, id)).toEqual([2]);
  });
});

describe('a retry by hand', () => {
  it('of a failed delivery is made at once, and leaves the schedule unchanged', async () => {
    await world.station();
    const { webhook, receiver } = await subject(failing);
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    const { next_attempt_at: scheduled } = await world.delivery(webhook, id);
    world.clock.advance(1000);
    await retry(webhook, id);
    await ended(webhook, id, 2);
    expect(await world.delivery(webhook, id)).toMatchObject({
      status: 'failed',
      manual: true,
      next_attempt_at: scheduled,
    });
    world.clock.set(scheduled ?? 0);
    await ended(webhook, id, 3);
    // The second delay of the contract: the manual attempt used up none.
    expect(await world.delivery(webhook, id)).toMatchObject({
      manual: false,
      next_attempt_at: world.clock.now() + 300_000,
    });
    expect(attemptsOf(receiver.received, id)).toEqual([1, 2, 3]);
  });

  it('of a dead delivery is made once, and can succeed', async () => {
    await world.station();
    const { webhook, receiver } = await subject(failing);
    const ids = await world.deliver(webhook);
    const [id = ''] = ids;
    await die(webhook, ids);
    await retry(webhook, id);
    await ended(webhook, id, 7);
    expect(await world.delivery(webhook, id)).toMatchObject({
      status: 'dead',
      manual: true,
      next_attempt_at: null,
    });
    expect(await streakOf(webhook)).toBe(1);
    receiver.answer = taking;
    await retry(webhook, id);
    await ended(webhook, id, 8);
    expect((await world.delivery(webhook, id)).status).toBe('success');
    expect(await streakOf(webhook)).toBe(0);
  });

  it('of a success does nothing', async () => {
    await world.station();
    const { webhook, receiver } = await subject(taking);
    const [id = ''] = await world.deliver(webhook);
    await ended(webhook, id, 1);
    const before = await world.delivery(webhook, id);
    await retry(webhook, id);
    await requested();
    await world.looked();
    expect(await world.delivery(webhook, id)).toEqual(before);
    expect(receiver.received).toHaveLength(1);
  });

  it.each(['by the schedule', 'by hand'])('comes after the attempt that runs %s', async (how) => {
    await world.station({ timeoutMs: 60_000 });
    const { webhook, receiver } = await subject(failing);
    const [id = ''] = await world.deliver(webhook);
    const hold: (() => void)[] = [];
    const holding: Answering = (_, response) => void hold.push(() => response.writeHead(500).end());
    if (how === 'by hand') {
      await ended(webhook, id, 1);
      receiver.answer = holding;
      await retry(webhook, id);
    } else {
      await ended(webhook, id, 1);
      receiver.answer = holding;
      world.clock.advance(30_000);
    }
    await until(async () => hold.length === 1);
    world.clock.advance(10);
    await retry(webhook, id);
    await requested();
    await world.looked();
    expect(attemptsOf(receiver.received, id)).toEqual([1, 2]);
    receiver.answer = failing;
    hold[0]?.();
    await ended(webhook, id, 3);
    expect(await world.delivery(webhook, id)).toMatchObject({ status: 'failed', manual: true });
    await world.looked();
    expect(attemptsOf(receiver.received, id)).toEqual([1, 2, 3]);
  });

  it('is not made when the attempt that was running has succeeded', async () => {
    await world.station({ timeoutMs: 60_000 });
    const hold: (() => void)[] = [];
    const { webhook, receiver } = await subject((_, response) => void hold.push(() => response.end()));
    const [id = ''] = await world.deliver(webhook);
    await until(async () => hold.length === 1);
    await retry(webhook, id);
    await requested();
    hold[0]?.();
    await ended(webhook, id, 1);
    world.clock.advance(LEASE_MS + 60_000);
    await world.looked();
    expect((await world.delivery(webhook, id)).status).toBe('success');
    expect(attemptsOf(receiver.received, id)).toEqual([1]);
  });
});

describe('a webhook', () => {
  it('is disabled by ten dead deliveries in a row; a success resets the count', async () => {
    await world.station();
    const { webhook, receiver } = await subject(failing);
    await die(webhook, await world.deliver(webhook, 9));
    expect(await streakOf(webhook)).toBe(9);
    receiver.answer = taking;
    const [good = ''] = await world.deliver(webhook);
    await ended(webhook, good, 1);
    expect(await streakOf(webhook)).toBe(0);
    receiver.answer = failing;
    await die(webhook, await world.deliver(webhook, 9));
    await world.looked();
    expect([await stateOf(webhook), await streakOf(webhook)]).toEqual(['active', 9]);
    await die(webhook, await world.deliver(webhook, 1));
    await until(async () => await isDisabled(webhook));
    const { rows } = await world.pool.query(
      `SELECT disabled_at, disabled_reason FROM ${world.schema}.webhooks WHERE id = $1`,
      [webhook],
    );
    expect(rows).toEqual([
      { disabled_at: world.clock.now(), disabled_reason: expect.stringMatching(/10 .*dead/) },
    ]);
  });

  it('that was disabled is sent nothing until it is activated; then waiting deliveries continue, and the count is zero', async () => {
    await world.station();
    const { webhook, receiver } = await subject(failing);
    const dead = await world.deliver(webhook, 10);
    await ended(webhook, dead, 1);
    // These have failed when the ten die, and wait for their retry.
    await die(webhook, dead);
    await until(async () => await isDisabled(webhook));
    const waiting = await world.deliver(webhook, 3);
    world.clock.advance(86_400_000);
    await world.looked();
    expect(receiver.received.filter(({ id }) => waiting.includes(id))).toEqual([]);

    receiver.answer = taking;
    await patch(webhook, 'active');
    await ended(webhook, waiting, 1);
    expect([await stateOf(webhook), await streakOf(webhook)]).toEqual(['active', 0]);
    for (const id of waiting) expect((await world.delivery(webhook, id)).status).toBe('success');
    // One more that dies is the first of a new row.
    receiver.answer = failing;
    await die(webhook, await world.deliver(webhook, 1));
    expect([await stateOf(webhook), await streakOf(webhook)]).toEqual(['active', 1]);
  });

  it('continues with waiting deliveries when a success resets the count before it is disabled', async () => {
    world.sender({ delaysMs: [], timeoutMs: 60_000 });
    const hold: (() => void)[] = [];
    const { webhook, receiver } = await subject((_, response) => void hold.push(() => response.end()));
    const [held = ''] = await world.deliver(webhook);
    await until(async () => hold.length === 1);
    receiver.answer = failing;
    // One at a time is all that it is given while nothing is known of it.
    world.sender({ delaysMs: [], timeoutMs: 60_000 });
    await ended(webhook, await world.deliver(webhook, 10), 1);
    const [waiting = ''] = await world.deliver(webhook);
    await world.looked();
    expect([await streakOf(webhook), attemptsOf(receiver.received, waiting)]).toEqual([10, []]);
    receiver.answer = taking;
    hold[0]?.();
    await ended(webhook, [held, waiting], 1);
    expect(await streakOf(webhook)).toBe(0);
  });

  it('that is activated after ten dead deliveries is sent the waiting ones, also before the count is reset', async () => {
    world.sender({ delaysMs: [], timeoutMs: 60_000 });
    const { webhook, receiver } = await subject(failing);
    await ended(webhook, await world.deliver(webhook, 10), 1);
    const waiting = await world.deliver(webhook);
    await world.looked();
    expect(receiver.received).toHaveLength(10);
    receiver.answer = taking;
    await patch(webhook, 'active');
    expect(await streakOf(webhook)).toBe(10);
    await ended(webhook, [...waiting, ...(await world.deliver(webhook))], 1);
    expect(receiver.received).toHaveLength(12);
  });

  it('that is paused or disabled is sent only tests and manual retries', async () => {
    await world.station();
    for (const status of ['paused', 'disabled'] as const) {
      const { webhook, receiver } = await subject(failing);
      const [failed = ''] = await world.deliver(webhook);
      await ended(webhook, failed, 1);
      await patch(webhook, status);
      const [pending = ''] = await world.deliver(webhook);
      world.clock.advance(86_400_000);
      await world.looked();
      expect(attemptsOf(receiver.received, failed)).toEqual([1]);
      expect(attemptsOf(receiver.received, pending)).toEqual([]);
      receiver.answer = failing;
      await retry(webhook, failed);
      await ended(webhook, failed, 2);
      const tested = await test(webhook);
      await until(async () => attemptsOf(receiver.received, tested).length === 1);
      await ended(webhook, tested, 1);
      // Retries of a test by the schedule wait like all others; by hand it uses up none of them.
      world.clock.advance(30_000);
      await world.looked();
      expect(attemptsOf(receiver.received, tested)).toEqual([1]);
      await retry(webhook, tested);
      await ended(webhook, tested, 2);
      expect(await world.delivery(webhook, tested)).toMatchObject({ manual: true, status: 'failed' });
      expect(attemptsOf(receiver.received, failed)).toEqual([1, 2]);
      receiver.answer = taking;
      await patch(webhook, 'active');
      for (const id of [failed, tested]) await ended(webhook, id, 3);
      await ended(webhook, pending, 1);
    }
  });

  it('of a disabled user is sent nothing; it continues once the user is enabled', async () => {
    await world.station();
    const { webhook, receiver } = await subject(failing);
    const [failed = ''] = await world.deliver(webhook);
    await ended(webhook, failed, 1);
    const paused = await subject(failing, '127.0.0.6');
    await patch(paused.webhook, 'paused');
    const [byHand = ''] = await world.deliver(paused.webhook);
    await world.looked();
    await setDisabled(true);
    const before = await world.delivery(webhook, failed);
    const [pending = ''] = await world.deliver(webhook);
    // As if the API had accepted them just before the user was disabled.
    const tested = await test(webhook);
    await retry(webhook, failed);
    await retry(paused.webhook, byHand);
    await requested();
    world.clock.advance(86_400_000);
    await world.looked();
    expect([receiver.received.length, paused.receiver.received.length]).toEqual([1, 0]);
    expect(await world.delivery(webhook, failed)).toMatchObject({
      status: 'failed',
      attempts: before.attempts,
    });
    expect((await world.delivery(webhook, pending)).status).toBe('pending');
    expect([await stateOf(webhook), await streakOf(webhook)]).toEqual(['active', 0]);
    // Nobody who looks for what is late is alarmed.
    const { rows: due } = await world.pool.query(
      'SELECT 1 FROM tds.webhook_endpoints WHERE webhook_id = ANY ($1) AND due_at IS NOT NULL',
      [[webhook, paused.webhook]],
    );
    expect(due).toEqual([]);

    receiver.answer = taking;
    await setDisabled(false);
    for (const [id, attempts] of [
      [failed, 2],
      [pending, 1],
      [tested, 1],
    ] as const) {
      await ended(webhook, id, attempts);
      expect((await world.delivery(webhook, id)).status).toBe('success');
    }
    await ended(paused.webhook, byHand, 1);
  });

  it('of a user who was enabled stays enabled when an old command is repeated', async () => {
    world.sender();
    const { webhook } = await subject(taking);
    const command = randomUUID();
    await setDisabled(true, command);
    await setDisabled(false);
    await setDisabled(true, command);
    const { webhook: later } = await subject(taking);
    for (const one of [webhook, later]) {
      const [id = ''] = await world.deliver(one);
      await ended(one, id, 1);
    }
  });

  it('receives a ping by a test, which never counts as dead or successful', async () => {
    await world.station();
    const { webhook, receiver } = await subject(failing);
    const at = world.clock.now();
    const tests: string[] = [];
    for (let made = 0; made < 11; made += 1) tests.push(await test(webhook));
    await requested();
    await die(webhook, tests);
    expect(receiver.received[0]?.headers).toMatchObject({ 'x-vendor-event': 'ping' });
    expect(JSON.parse(receiver.received[0]?.body ?? '')).toEqual({
      event: 'ping',
      created_at: new Date(at).toISOString(),
      data: { webhook_id: webhook, message: 'Test delivery' },
    });
    await world.looked();
    expect([await stateOf(webhook), await streakOf(webhook)]).toEqual(['active', 0]);
    await die(webhook, await world.deliver(webhook, 9));
    receiver.answer = taking;
    const taken = await test(webhook);
    await requested();
    await ended(webhook, taken, 1);
    expect(await streakOf(webhook)).toBe(9);
    receiver.answer = failing;
    await die(webhook, await world.deliver(webhook, 1));
    await until(async () => await isDisabled(webhook));
  });

  it('that is deleted leaves no history, not even of a running attempt', async () => {
    await world.station({ timeoutMs: 60_000 });
    const { webhook, receiver } = await subject(taking);
    const [done = ''] = await world.deliver(webhook);
    await ended(webhook, done, 1);
    const hold: (() => void)[] = [];
    receiver.answer = (_, response) => void hold.push(() => response.end());
    await world.deliver(webhook, 2);
    await until(async () => hold.length === 2);
    await world.command('webhook.delete', { webhook_id: webhook });
    await requested();
    for (const answer of hold) answer();
    await world.looked();
    for (const table of ['webhook_deliveries', 'webhook_endpoints']) {
      const left = await world.pool.query(`SELECT 1 FROM tds.${table} WHERE webhook_id = $1`, [webhook]);
      expect(left.rowCount).toBe(0);
    }
    world.clock.advance(86_400_000);
    await world.looked();
    expect(receiver.received).toHaveLength(3);
  });

  it('whose secret is rotated is signed by both during the grace period, then by the new one alone', async () => {
    world.sender();
    const { webhook, secret: old, receiver } = await subject(taking);
    const secret = newSecret();
    await world.command('webhook.rotate-secret', {
      webhook_id: webhook,
      secret: world.sealed(secret),
      grace_seconds: 60,
    });
    const accepts = ({ headers, body }: Received, by: string): boolean => {
      const expected = createHmac('sha256', Buffer.from(by.slice('whsec_'.length), 'base64'))
        .update(`${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`)
        .digest('base64');
      return String(headers['webhook-signature']).split(' ').includes(`v1,${expected}`);
    };
    const seen: boolean[][] = [];
    for (const wait of [0, 59_999, 1]) {
      world.clock.advance(wait);
      const [id = ''] = await world.deliver(webhook);
      await ended(webhook, id, 1);
      const got = receiver.received.at(-1);
      if (got === undefined) throw new Error('nothing came');
      seen.push([accepts(got, secret), accepts(got, old)]);
      // The contract's own header is made by the new one at once.
      expect(got.headers['x-vendor-signature']).toBe(
        `sha256=${createHmac('sha256', secret).update(got.body).digest('hex')}`,
      );
    }
    expect(seen).toEqual([
      [true, true],
      [true, true],
      [true, false],
    ]);
  });
});

it('raises an alarm while the secret of an active webhook was sealed with another SECRET_KEY', async () => {
  const { schema, pool, sealing, clock, log } = world;
  const { webhook } = await subject(taking);
  const lost = createSealing(randomBytes(32)).seal(newSecret(), secretOf(1));
  const rotate = async (secret: string) =>
    await world.command('webhook.rotate-secret', { webhook_id: webhook, secret, grace_seconds: 0 });
  const alarms = async (): Promise<unknown[]> =>
    (await pool.query("SELECT detail FROM tds.alarms WHERE name = 'webhooks.unsigned'")).rows;
  await rotate(lost);
  const deps = { pool, webhooks: async () => schema, sealing, clock, log };
  const check = startReadableSecretsCheck(
    { ...deps, retryWhileUnavailable: (work) => work() },
    (error) => void world.failures.push(error),
  );
  try {
    const detail = `1 active webhook, sealed with another SECRET_KEY (${lost.split('.')[1]})`;
    await until(async () => (await alarms()).length === 1);
    expect(await alarms()).toEqual([{ detail }]);
    await rotate(world.sealed(newSecret()));
    await until(async () => (await alarms()).length === 0);
  } finally {
    await check.stop();
  }
});

describe('dead deliveries of an earlier activation', () => {
  /** Deliveries that are claimed before the webhook is activated again. */
  async function claimedEarlier(count: number): Promise<{ webhook: number; earlier: DeliveryClaim[] }> {
    const { webhook } = await subject(failing);
    await world.deliver(webhook, count);
    return { webhook, earlier: await claim() };
  }

  it('do not count after the count was reset', async () => {
    const { webhook, earlier } = await claimedEarlier(1);
    await patch(webhook, 'active');
    await activateEndpoints(world.pool, await activatedWebhooks(world.pool, world.schema));
    await storeOutcomes(world.pool, earlier.map(deathOf));
    expect(await streakOf(webhook)).toBe(0);
  });

  it('do not count beside those of the current one', async () => {
    const { webhook, earlier } = await claimedEarlier(1);
    await patch(webhook, 'active');
    await world.deliver(webhook);
    const current = await claim();
    await storeOutcomes(world.pool, [...earlier, ...current].map(deathOf));
    expect(await streakOf(webhook)).toBe(1);
  });

  it('do not disable the webhook', async () => {
    const { webhook, earlier } = await claimedEarlier(10);
    await storeOutcomes(world.pool, earlier.map(deathOf));
    const found = async () => await webhooksToDisable(world.pool, world.schema, 10);
    expect(await found()).toMatchObject([{ id: webhook, consecutive_dead: 10 }]);
    await patch(webhook, 'active');
    expect(await found()).toEqual([]);
  });
});

describe('a sender', () => {
  it('makes each attempt once beside another sender, and omits none', async () => {
    const running = new Map<string, number>();
    let most = 0;
    const counting: Answering = ({ id }, response) => {
      const now = (running.get(id) ?? 0) + 1;
      running.set(id, now);
      most = Math.max(most, now);
      setTimeout(() => {
        running.set(id, (running.get(id) ?? 0) - 1);
        response.end();
      }, 3);
    };
    const subjects = await Promise.all(
      [2, 3, 4, 5].map(async (host) => await subject(counting, `127.0.0.${host}`)),
    );
    const ids: string[][] = [];
    for (const { webhook } of subjects) ids.push(await world.deliver(webhook, 150));
    world.sender({ timeoutMs: 60_000 });
    world.sender({ timeoutMs: 60_000 });
    for (const { webhook } of subjects) ids.push(await world.deliver(webhook, 50));
    for (const [index, some] of ids.entries()) await ended(subjects[index % 4]?.webhook ?? 0, some, 1);
    expect(most).toBe(1);
    const all = subjects.flatMap(({ receiver }) =>
      receiver.received.map(({ id, attempt }) => `${id} ${attempt}`),
    );
    expect(all.toSorted()).toEqual(
      ids
        .flat()
        .map((id) => `${id} 1`)
        .toSorted(),
    );
  });

  it('makes each attempt once beside a sender on a machine that was suspended', async () => {
    const held: (() => void)[] = [];
    const { webhook, receiver } = await subject((_, response) => void held.push(() => response.end()));
    const [id = ''] = await world.deliver(webhook);
    world.clock.advance(7_200_000);
    const at = world.clock.wallTime();
    world.sender({ timeoutMs: 60_000 });
    await until(async () => receiver.received.length === 1);
    world.sender({ timeoutMs: 60_000, clock: world.clock });
    await world.looked();
    for (const answer of held) answer();
    await ended(webhook, id, 1);
    expect(attemptsOf(receiver.received, id)).toEqual([1]);
    expect(await world.delivery(webhook, id)).toMatchObject({ status: 'success', last_attempt_at: at });
  });

  it('takes over the claims of another when their lease has expired, not earlier', async () => {
    const { webhook, receiver } = await subject(taking);
    const [id = ''] = await world.deliver(webhook);
    expect(await claim()).toHaveLength(1);
    world.sender();
    world.clock.advance(LEASE_MS - 1);
    await world.looked();
    expect(receiver.received).toEqual([]);
    world.clock.advance(1);
    await ended(webhook, id, 1);
    expect(attemptsOf(receiver.received, id)).toEqual([1]);
  });

  it('claims no delivery whose retry by hand is requested while another sender attempts it', async () => {
    const { webhook } = await subject(taking);
    const [id = ''] = await world.deliver(webhook);
    expect(await claim()).toHaveLength(1);
    const at = world.clock.now();
    await inTransaction(world.pool, async (tx) => await retryDelivery(tx, { webhookId: webhook, id, at }));
    expect(await claim()).toEqual([]);
  });

  it('releases no claim after its lease was taken over', async () => {
    const { webhook } = await subject(taking);
    await world.deliver(webhook);
    const frozen = await claim();
    world.clock.advance(LEASE_MS);
    const [current] = await claim();
    await releaseClaims(world.pool, frozen);
    const { rows } = await world.pool.query('SELECT lease FROM tds.webhook_deliveries');
    expect(rows).toEqual([{ lease: current?.lease }]);
    expect(await claim()).toEqual([]);
  });

  it('stores no outcome after its lease was taken over', async () => {
    const { webhook } = await subject(taking);
    const [id = ''] = await world.deliver(webhook);
    const [frozen] = await claim();
    if (frozen === undefined) throw new Error('nothing was claimed');
    const late = async (): Promise<void> => await storeOutcomes(world.pool, [deathOf(frozen)]);
    const rows = async (): Promise<unknown[]> =>
      (
        await world.pool.query(
          'SELECT * FROM tds.webhook_deliveries d JOIN tds.webhook_endpoints e USING (webhook_id) WHERE id = $1',
          [id],
        )
      ).rows;
    world.clock.advance(LEASE_MS);
    // Another has it by now ...
    await claim();
    let before = await rows();
    await late();
    expect(await rows()).toEqual(before);
    // ... and one more is done with it.
    world.clock.advance(LEASE_MS);
    world.sender();
    await ended(webhook, id, 1);
    before = await rows();
    await late();
    expect(await rows()).toEqual(before);
  });

  it('does not send again what it sent before PostgreSQL was unavailable for longer than a lease', async () => {
    const { proxy, pool } = await proxiedPool();
    try {
      const hold: (() => void)[] = [];
      const { webhook, receiver } = await subject((_, response) => void hold.push(() => response.end()));
      const station = world.sender({ pool, timeoutMs: 60_000 });
      const [held = ''] = await world.deliver(webhook);
      await until(async () => hold.length === 1);
      // The end is not written down when the lease is over, then nothing is, then all goes on.
      const writing = proxy.trap({ request: /lease = NULL, response_code/, act: 'hold' });
      hold[0]?.();
      await writing.sprung;
      receiver.answer = taking;
      world.clock.advance(LEASE_MS + 60_000);
      const [meanwhile = ''] = await world.deliver(webhook);
      await until(async () => receiver.received.some(({ id }) => id === meanwhile));
      proxy.weather({ refuse: true });
      proxy.reset();
      await until(async () => proxy.connections() === 0);
      proxy.weather({});
      await ended(webhook, [held, meanwhile], 1);
      await world.looked();
      expect(attemptsOf(receiver.received, held)).toEqual([1]);
      expect((await world.delivery(webhook, held)).status).toBe('success');
      await station.stop();
    } finally {
      await pool.end();
      await proxy.close();
    }
  });

  it('stores an outcome once although the answer to the commit is lost', async () => {
    const { proxy, pool } = await proxiedPool();
    try {
      const { webhook, receiver } = await subject(failing);
      await world.deliver(webhook, 1);
      const ids = await world.deliver(webhook, 1);
      const station = world.sender({ pool, delaysMs: [] });
      await ended(webhook, ids, 1);
      const { sprung } = proxy.trap({ request: /consecutive_dead = CASE/, act: 'lose-answer' });
      const more = await world.deliver(webhook, 1);
      await sprung;
      await ended(webhook, more, 1);
      await station.stop();
      expect(await streakOf(webhook)).toBe(3);
      expect(attemptsOf(receiver.received, more[0] ?? '')).toEqual([1]);
    } finally {
      await pool.end();
      await proxy.close();
    }
  });

  it('releases the claims that it has not sent when it stops', async () => {
    const { webhook, receiver } = await subject(() => {});
    const station = world.sender({ timeoutMs: 60_000 });
    const [id = ''] = await world.deliver(webhook);
    await until(async () => receiver.received.length === 1);
    await station.stop();
    receiver.answer = taking;
    world.sender();
    await ended(webhook, id, 1);
    expect(attemptsOf(receiver.received, id)).toEqual([1, 1]);
  });
});

describe('a dispatcher that is stopped while its start waits for Kafka', () => {
  const topicId = async (): Promise<string> => {
    throw new AppError('STORE_UNAVAILABLE', 'Kafka is unavailable', { retryable: true });
  };

  it('releases the claims that it has not sent', async () => {
    const { webhook, receiver } = await subject(() => {});
    const dispatcher = world.dispatcher({ kafka: { ...world.kafka, topicId } });
    const starting = expect(dispatcher.start()).rejects.toMatchObject({ name: 'AbortError' });
    const [id = ''] = await world.deliver(webhook);
    await until(async () => receiver.received.length === 1);
    await Promise.all([dispatcher.stop(), starting, dispatcher.done]);
    receiver.answer = taking;
    world.sender();
    await ended(webhook, id, 1);
    expect(attemptsOf(receiver.received, id)).toEqual([1, 1]);
  });

  it('has not failed where PostgreSQL is unavailable, too', async () => {
    const { proxy, pool } = await proxiedPool();
    try {
      const hold: (() => void)[] = [];
      const { webhook } = await subject((_, response) => void hold.push(() => response.end()));
      const dispatcher = world.dispatcher({ kafka: { ...world.kafka, topicId }, pool });
      const starting = expect(dispatcher.start()).rejects.toMatchObject({ name: 'AbortError' });
      await world.deliver(webhook);
      await until(async () => hold.length === 1);
      proxy.weather({ refuse: true });
      proxy.reset();
      hold[0]?.();
      await Promise.all([dispatcher.stop(), starting, dispatcher.done]);
    } finally {
      await pool.end();
      await proxy.close();
    }
  });
});
