import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { startProxy } from '../../../support/faults/proxy.ts';
import type { FaultProxy } from '../../../support/faults/proxy.ts';

/** A server that answers every chunk with `<chunk>!` and records its requests. */
let asked: string[];
let answer: (chunk: Buffer) => Buffer | string;
let server: ReturnType<typeof createServer>;
let proxy: FaultProxy;
const clients: Socket[] = [];

beforeEach(async () => {
  asked = [];
  answer = (chunk) => `${chunk.toString()}!`;
  server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (chunk) => {
      asked.push(chunk.toString());
      socket.write(answer(chunk));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  proxy = await startProxy({ host: '127.0.0.1', port: portOf() });
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy();
  await proxy.close();
  server.close();
});
const portOf = (): number => (server.address() as AddressInfo).port;

async function open(to: FaultProxy = proxy): Promise<Socket> {
  const client = connect({ host: '127.0.0.1', port: to.port });
  client.on('error', () => {});
  clients.push(client);
  await once(client, 'connect');
  return client;
}

async function ask(client: Socket, text: string): Promise<string> {
  client.write(text);
  return await answerOf(client);
}

/** Like `once`, but a reset does not reject. */
function answerOf(client: Socket): Promise<string> {
  return new Promise((resolve) => client.once('data', (chunk: Buffer) => resolve(chunk.toString())));
}

function closing(client: Socket): Promise<void> {
  return new Promise((resolve) => (client.closed ? resolve() : client.once('close', () => resolve())));
}

/** Outcome of a request within a short time. */
async function outcome(client: Socket, text: string): Promise<string> {
  const later = new Promise<string>((resolve) => setTimeout(() => resolve('silence'), 200));
  const closed = closing(client).then(() => 'cut');
  return await Promise.race([ask(client, text), closed, later]);
}

describe('traps', () => {
  test('hold keeps the request from the server until released; other connections continue', async () => {
    const trap = proxy.trap({ request: /^second/, act: 'hold' });
    const [one, other] = [await open(), await open()];
    expect(await ask(one, 'first second')).toBe('first second!');
    expect(await outcome(one, 'second')).toBe('silence');
    await trap.sprung;
    expect(await ask(other, 'third')).toBe('third!');
    expect(asked).toEqual(['first second', 'third']);
    trap.release();
    expect(await answerOf(one)).toBe('second!');
    expect(await ask(one, 'second')).toBe('second!');
  });

  test('held bytes are dropped when the client closes', async () => {
    const trap = proxy.trap({ request: /ask/, act: 'hold' });
    const client = await open();
    client.write('ask');
    await trap.sprung;
    client.end();
    await closing(client);
    trap.release();
    await expect.poll(() => proxy.connections()).toBe(0);
    expect(asked).toEqual([]);
  });

  test('lose-answer passes the request and cuts the connection instead of the answer', async () => {
    const trap = proxy.trap({ request: /ask/, nth: 2, act: 'lose-answer' });
    const client = await open();
    expect(await ask(client, 'ask 1')).toBe('ask 1!');
    expect(await outcome(client, 'ask 2')).toBe('cut');
    await trap.sprung;
    expect(asked).toEqual(['ask 1', 'ask 2']);
    expect(await ask(await open(), 'ask 3')).toBe('ask 3!');
  });

  test('reset matches a text split over two chunks, before the server has all of it', async () => {
    let seen = 0;
    proxy.trap({ request: /one two/, act: 'reset', onSprung: () => (seen += 1) });
    const client = await open();
    answer = () => '';
    client.write('one ');
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await outcome(client, 'two')).toBe('cut');
    expect(seen).toBe(1);
    expect(asked.join('')).not.toContain('two');
  });
});

describe('weather', () => {
  test('half-open connections are accepted and silent until the fault ends', async () => {
    const client = await open();
    proxy.weather({ halfOpen: true });
    expect(await outcome(client, 'a')).toBe('silence');
    expect(await outcome(await open(), 'b')).toBe('silence');
    proxy.weather({});
    expect(await answerOf(client)).toBe('a!');
  });

  test('connections are cut after a number of bytes, refused, or cut all at once', async () => {
    proxy.weather({ cutAfterBytes: 5 });
    const client = await open();
    expect(await ask(client, 'abc')).toBe('abc!');
    expect(await ask(client, 'defg')).toBe('d');
    await closing(client);
    proxy.weather({ refuse: true });
    const refused = connect({ host: '127.0.0.1', port: proxy.port }).on('error', () => {});
    await closing(refused);
    proxy.weather({});
    const last = await open();
    expect(await ask(last, 'x')).toBe('x!');
    proxy.reset();
    await closing(last);
  });

  test('latency delays both directions and keeps the order', async () => {
    proxy.weather({ latencyMs: 30 });
    const client = await open();
    const began = performance.now();
    expect(await ask(client, 'a')).toBe('a!');
    expect(performance.now() - began).toBeGreaterThan(50);
  });
});

const int32 = (number: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(number);
  return bytes;
};
const frame = (body: Buffer | string): Buffer => Buffer.concat([int32(body.length), Buffer.from(body)]);

describe('before Kafka', () => {
  let kafka: FaultProxy;
  beforeEach(async () => (kafka = await startProxy({ host: '127.0.0.1', port: portOf(), kafka: true })));
  afterEach(async () => await kafka.close());

  test.each([
    ['Metadata', 3],
    ['FindCoordinator', 10],
  ])('an address that an answer to %s names is the proxy’s, however large it is', async (_, apiKey) => {
    const address = (port: number): Buffer => Buffer.concat([Buffer.from('\0\t127.0.0.1'), int32(port)]);
    const large = (port: number): Buffer =>
      frame(Buffer.concat([address(port), Buffer.alloc(300_000, 1), address(port)]));
    // Addresses inside of data are not replaced.
    answer = () => Buffer.concat([frame(address(portOf())), large(portOf()), frame(address(portOf()))]);
    const client = await open(kafka);
    const expected = Buffer.concat([frame(address(portOf())), large(kafka.port), frame(address(portOf()))]);
    let got = Buffer.alloc(0);
    client.on('data', (chunk) => (got = Buffer.concat([got, chunk])));
    client.write(Buffer.concat([0, apiKey, 1].map((key) => frame(Buffer.from([0, key, 0, 9])))));
    await expect.poll(() => got.length).toBe(expected.length);
    expect(got.equals(expected)).toBe(true);
  });

  test.each([
    ['in one piece', (all: Buffer) => [all]],
    ['cut inside a length', (all: Buffer) => [all.subarray(0, 11), all.subarray(11)]],
    ['cut inside the request', (all: Buffer) => [all.subarray(0, 16), all.subarray(16)]],
  ])('a request is seen behind another that has no answer yet: %s', async (_, cut) => {
    answer = () => '';
    const client = await open(kafka);
    let seen = 0;
    kafka.trap({ request: /^[^]{4}produce/, act: 'reset', onSprung: () => (seen += 1) });
    for (const piece of cut(Buffer.concat([frame('fetch'), frame('produce')]))) {
      client.write(piece);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await closing(client);
    expect(seen).toBe(1);
  });

  test('lose-answer ignores the answer to an earlier request', async () => {
    // The server answers only when told to, so both requests are pending.
    answer = (chunk) =>
      ['fetched', 'produced'].filter((one) => chunk.includes(`say ${one}`)).map(frame)[0] ?? '';
    const client = await open(kafka);
    const trap = kafka.trap({ request: /produce/, act: 'lose-answer' });
    const got: string[] = [];
    client.on('data', (chunk) => got.push(chunk.toString('latin1')));
    for (const request of [frame('fetch'), frame('produce')]) client.write(request);
    await expect.poll(() => asked.join('')).toContain('produce');
    client.write(frame('say fetched'));
    await expect.poll(() => got.join('')).toContain('fetched');
    expect(trap.hasSprung()).toBe(false);
    client.write(frame('say produced'));
    await closing(client);
    expect(trap.hasSprung()).toBe(true);
    expect(got.join('')).not.toContain('produced');
  });
});
