import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener, Server } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createServer as createRawServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import type { TLSSocket } from 'node:tls';

import { generate } from 'selfsigned';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

import { parseNetwork } from '../../../infra/networks.ts';
import { createEgress } from '../../../pipeline/egress/egress.ts';
import type { EgressRequest } from '../../../pipeline/egress/egress.ts';
import { EgressError } from '../../../pipeline/egress/errors.ts';
import { startNameServer } from '../../support/name-server.ts';
import type { Known, NameServer } from '../../support/name-server.ts';

/** Real sockets: 127.0.0.2 stands for an allowed address, the rest of loopback for refused ones. */

const ALLOWED = '127.0.0.2';
const releases: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const release of releases.toReversed()) await release();
});

/** Records of the name server; a function is called at every query. */
const names = new Map<string, Known | (() => Known)>();
let nameServer: NameServer;
beforeAll(async () => {
  nameServer = await startNameServer((name) => {
    const known = names.get(name) ?? [];
    return typeof known === 'function' ? known() : known;
  });
  releases.push(() => nameServer.close());
});

interface Receiver {
  readonly port: number;
  readonly server: Server;
  readonly requests: IncomingMessage[];
  /** All connections so far. */
  readonly sockets: Set<Socket>;
}

async function listening(
  server: Server | ReturnType<typeof createRawServer>,
  host: string,
  port = 0,
): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  releases.push(async () => {
    if ('closeAllConnections' in server) server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  return (server.address() as AddressInfo).port;
}

async function receiver(
  answer: RequestListener,
  host = ALLOWED,
  tls?: { key: string; cert: string },
): Promise<Receiver> {
  const requests: IncomingMessage[] = [];
  const sockets = new Set<Socket>();
  const onRequest: RequestListener = (request, response) => {
    requests.push(request);
    answer(request, response);
  };
  const server = tls === undefined ? createServer(onRequest) : createSecureServer(tls, onRequest);
  server.on('connection', (socket: Socket) => sockets.add(socket));
  server.on('tlsClientError', () => {});
  return { port: await listening(server, host), server, requests, sockets };
}

/** A TCP server that passes each connection to `onConnection`. */
async function rawServer(onConnection: (socket: Socket) => void): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createRawServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    onConnection(socket);
  });
  const port = await listening(server, ALLOWED);
  releases.push(async () => sockets.forEach((socket) => socket.destroy()));
  return port;
}

function egressOf({
  allow = [`${ALLOWED}/32`],
  ...options
}: { allow?: string[] } & Partial<Parameters<typeof createEgress>[0]> = {}) {
  const egress = createEgress({
    allowNetworks: allow.map((text) => parseNetwork(text)!),
    ownPorts: [],
    dnsServers: [nameServer.address],
    ...options,
  });
  releases.push(() => egress.close());
  return egress;
}

const post: EgressRequest = { method: 'POST', body: 'hello', timeoutMs: 20_000, maxBytes: 16_384 };
const longWait = { timeout: 60_000, interval: 20 };

async function failure(running: Promise<unknown>): Promise<EgressError> {
  const error: unknown = await running.then(
    () => new Error('the call did not fail'),
    (thrown: unknown) => thrown,
  );
  if (error instanceof EgressError) return error;
  throw error;
}
const reasonOf = async (running: Promise<unknown>): Promise<string> => (await failure(running)).reason;

describe('request', () => {
  it('sends the given request without additions and returns the raw answer', async () => {
    const { port, requests } = await receiver((request, response) => {
      request.resume();
      response.writeHead(202, { 'x-said': ['a', 'b'], 'set-cookie': 'a=1', 'content-encoding': 'gzip' });
      response.end('not gzip at all');
    });
    const egress = egressOf();
    const url = `http://${ALLOWED}:${port}/a/b?c=d#e`;
    const headers = { 'content-type': 'application/json', 'x-vendor-event': 'ping' };
    for (const round of [1, 2]) {
      const { status, headers: received, body, isCut } = await egress.request(url, { ...post, headers });
      expect([round, status, body.toString(), isCut]).toEqual([round, 202, 'not gzip at all', false]);
      expect(received['x-said']).toEqual(['a', 'b']);
    }
    for (const { method, url: path, headers: sent } of requests) {
      expect([method, path]).toEqual(['POST', '/a/b?c=d']);
      expect(sent).toEqual({
        ...headers,
        host: `${ALLOWED}:${port}`,
        connection: 'keep-alive',
        'content-length': '5',
        'accept-encoding': 'identity',
      });
    }
  });

  it.each([200, 204, 301, 302, 307, 308, 410, 429, 500, 503])('returns HTTP %d', async (status) => {
    const { port, requests } = await receiver((_request, response) => {
      response.writeHead(status, { location: 'http://127.0.0.1/', 'retry-after': '1' }).end();
    });
    expect((await egressOf().request(`http://${ALLOWED}:${port}/`, post)).status).toBe(status);
    expect(requests).toHaveLength(1);
  });

  it('follows no redirect', async () => {
    const inside = await receiver((_request, response) => response.end('secret'), '127.0.0.1');
    const outside = await receiver((_request, response) => response.end('elsewhere'));
    const locations = [`http://127.0.0.1:${inside.port}/`, `http://${ALLOWED}:${outside.port}/`];
    for (const location of locations) {
      const { port } = await receiver((_request, response) =>
        response.writeHead(302, { location }).end('moved'),
      );
      const { status, body } = await egressOf().request(`http://${ALLOWED}:${port}/`, {
        ...post,
        method: 'GET',
      });
      expect([status, body.toString()]).toEqual([302, 'moved']);
    }
    expect([...inside.requests, ...outside.requests]).toEqual([]);
    expect(inside.sockets.size).toBe(0);
  });

  it('reads an endless answer up to the limit and closes the connection', async () => {
    const chunk = Buffer.alloc(65_536, 'x');
    let written = 0;
    const { port, sockets } = await receiver((_request, response) => {
      const more = (): void => {
        while (!response.destroyed && response.write(chunk)) written += chunk.length;
      };
      response.on('drain', more);
      more();
    });
    const { status, body, isCut } = await egressOf().request(`http://${ALLOWED}:${port}/`, post);
    expect([status, body.length, isCut]).toEqual([200, 16_384, true]);
    const [socket] = sockets;
    await vi.waitFor(() => expect(socket!.destroyed).toBe(true), longWait);
    // No more than the socket buffers of both sides.
    expect(written).toBeLessThan(10_000_000);
  });

  it.each([
    [0, 0, false],
    [1, 0, true],
    [99, 100, false],
    [100, 100, false],
    [101, 100, true],
  ])('cuts %d bytes at a limit of %d: %s', async (size, maxBytes, isCut) => {
    const { port } = await receiver((_request, response) => response.end('x'.repeat(size)));
    const answer = await egressOf().request(`http://${ALLOWED}:${port}/`, { ...post, maxBytes });
    expect([answer.body.length, answer.isCut]).toEqual([Math.min(size, maxBytes), isCut]);
  });
});

describe('a failing endpoint', () => {
  const impatient = { ...post, timeoutMs: 400 };

  it('times out when it accepts and does not answer', async () => {
    const port = await rawServer(() => {});
    const error = await failure(egressOf().request(`http://${ALLOWED}:${port}/`, impatient));
    expect([error.reason, error.message]).toEqual(['timeout', 'no answer within 0.4 s']);
  });

  it('times out during the TLS handshake, each call by its own timeout', async () => {
    const port = await rawServer(() => {});
    const egress = egressOf();
    const ended: string[] = [];
    const call = async (name: string, url: string, timeoutMs: number): Promise<void> => {
      ended.push(`${name}: ${await reasonOf(egress.request(url, { ...post, timeoutMs }))}`);
    };
    await Promise.all([
      call('long', `http://${ALLOWED}:${port}/`, 4000),
      call('short', `https://${ALLOWED}:${port}/`, 400),
    ]);
    expect(ended).toEqual(['short: timeout', 'long: timeout']);
  });

  it.each([
    ['https', 443],
    ['http', 80],
  ])('is called by %s at port %d by default', async (scheme, port) => {
    const host = '127.217.101.9';
    const error = await failure(egressOf({ allow: [host] }).request(`${scheme}://${host}/`, post));
    expect(error.cause).toMatchObject({ code: 'ECONNREFUSED', address: host, port });
  });

  it.each(['headers', 'body'])(
    'times out when it drips its %s, and the connection is closed',
    async (part) => {
      let open: Socket | null = null;
      const port = await rawServer((socket) => {
        open = socket;
        socket.write(
          part === 'headers'
            ? 'HTTP/1.1 200 OK\r\nx-long: '
            : 'HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n',
        );
        const timer = setInterval(() => socket.write('x'), 50);
        socket.on('close', () => clearInterval(timer));
      });
      expect(await reasonOf(egressOf().request(`http://${ALLOWED}:${port}/`, impatient))).toBe('timeout');
      await vi.waitFor(() => expect(open?.destroyed).toBe(true), longWait);
    },
  );

  it('times out when it sends early hints for ever', async () => {
    const port = await rawServer((socket) => {
      const timer = setInterval(() => socket.write('HTTP/1.1 103 Early Hints\r\n\r\n'), 20);
      socket.on('close', () => clearInterval(timer));
    });
    expect(await reasonOf(egressOf().request(`http://${ALLOWED}:${port}/`, impatient))).toBe('timeout');
  });

  it('makes calls wait within their timeouts while all its connections are busy', async () => {
    const { port, sockets } = await receiver(() => {});
    const egress = egressOf({ connectionsPerHost: 3 });
    const running = Array.from({ length: 10 }, () =>
      reasonOf(egress.request(`http://${ALLOWED}:${port}/`, impatient)),
    );
    expect(new Set(await Promise.all(running))).toEqual(new Set(['timeout']));
    expect([...sockets].filter((socket) => !socket.destroyed).length).toBeLessThanOrEqual(3);
  });

  it.each([
    ['before the answer', '', 'connection'],
    ['in its headers', 'HTTP/1.1 200 OK\r\nx-so', 'connection'],
    ['in its body', 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhell', 'connection'],
    ['in a chunk', 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel', 'connection'],
  ])('fails with `connection` when it closes %s', async (_when, words, reason) => {
    const port = await rawServer((socket) => socket.once('data', () => socket.end(words)));
    expect(await reasonOf(egressOf().request(`http://${ALLOWED}:${port}/`, post))).toBe(reason);
  });

  it('fails with `connection` when it resets', async () => {
    const port = await rawServer((socket) => socket.once('data', () => socket.resetAndDestroy()));
    expect(await reasonOf(egressOf().request(`http://${ALLOWED}:${port}/`, post))).toBe('connection');
  });

  it('fails with `connection` when nothing listens', async () => {
    const { server, port } = await receiver(() => {});
    server.close();
    const error = await failure(egressOf().request(`http://${ALLOWED}:${port}/`, post));
    expect([error.reason, error.message]).toEqual(['connection', 'no connection (ECONNREFUSED)']);
    server.listen(port, ALLOWED);
  });

  it.each([
    ['another protocol', 'SSH-2.0-OpenSSH_9.6\r\n'],
    ['endless headers', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(70_000)}\r\n\r\n`],
    ['an invalid length', 'HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n'],
  ])('fails with `invalid answer` when it sends %s', async (_what, words) => {
    const port = await rawServer((socket) => socket.once('data', () => socket.write(words)));
    const error = await failure(egressOf().request(`http://${ALLOWED}:${port}/`, post));
    expect(error.reason).toBe('invalid answer');
  });
});

describe('TLS', () => {
  let ca: { key: string; cert: string };
  beforeAll(async () => {
    const made = await generate([{ name: 'commonName', value: 'Test CA' }], {
      keyType: 'ec',
      algorithm: 'sha256',
      extensions: [
        { name: 'basicConstraints', cA: true, critical: true },
        { name: 'keyUsage', keyCertSign: true, critical: true },
      ],
    });
    ca = { key: made.private, cert: made.cert };
    const before = getCACertificates('default');
    setDefaultCACertificates([...before, ca.cert]);
    releases.push(async () => setDefaultCACertificates(before));
  });

  async function certificate(host: string, { isTrusted = true, isPast = false } = {}) {
    const made = await generate([{ name: 'commonName', value: host }], {
      keyType: 'ec',
      algorithm: 'sha256',
      extensions: [{ name: 'subjectAltName', altNames: [{ type: 2, value: host }] }],
      ...(isTrusted ? { ca } : {}),
      ...(isPast ? { notBeforeDate: new Date('2020-01-01'), notAfterDate: new Date('2020-02-01') } : {}),
    });
    return { key: made.private, cert: made.cert };
  }

  it('verifies the host name at the checked address', async () => {
    names.set('hooks.test', [ALLOWED]);
    const tls = await certificate('hooks.test');
    const seen: unknown[] = [];
    const { port, sockets } = await receiver(
      (request, response) => {
        seen.push([(request.socket as TLSSocket & { servername: string }).servername, request.headers.host]);
        response.end('ok');
      },
      ALLOWED,
      tls,
    );
    const egress = egressOf();
    for (const host of ['hooks.test', 'HOOKS.test', 'hooks.test']) {
      const { status, body } = await egress.request(`https://${host}:${port}/`, post);
      expect([status, body.toString()]).toEqual([200, 'ok']);
    }
    expect(seen).toEqual([1, 2, 3].map(() => ['hooks.test', `hooks.test:${port}`]));
    expect(sockets.size).toBe(1);
  });

  it.each([
    ['that is self-signed', 'hooks.test', { isTrusted: false }, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    ['of another host', 'other.test', {}, 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['that has expired', 'hooks.test', { isPast: true }, 'CERT_HAS_EXPIRED'],
  ])('refuses a certificate %s', async (_kind, host, how, code) => {
    names.set('hooks.test', [ALLOWED]);
    const { port, requests, sockets } = await receiver(
      (_request, response) => response.end(),
      ALLOWED,
      await certificate(host, how),
    );
    const error = await failure(egressOf().request(`https://hooks.test:${port}/`, post));
    expect([error.reason, error.message]).toEqual(['tls', `TLS failed (${code})`]);
    expect(requests).toEqual([]);
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true), longWait);
  });

  it('fails with an endpoint that does not speak it', async () => {
    const { port } = await receiver((_request, response) => response.end());
    expect(await reasonOf(egressOf().request(`https://${ALLOWED}:${port}/`, post))).toBe('tls');
    const port2 = await rawServer((socket) => socket.end());
    expect(await reasonOf(egressOf().request(`https://${ALLOWED}:${port2}/`, post))).toBe('tls');
  });
});

describe('a host name', () => {
  it('is refused when it does not resolve', async () => {
    const egress = egressOf();
    expect(await egress.checkUrl('https://nowhere.test/')).toBe('The host does not resolve.');
    const error = await failure(egress.request('https://nowhere.test/', post));
    expect([error.reason, error.message]).toEqual(['dns', 'the host does not resolve']);
  });

  it('times out when the name server does not answer', async () => {
    names.set('silent.test', 'silent');
    expect(await reasonOf(egressOf().request('https://silent.test/', { ...post, timeoutMs: 300 }))).toBe(
      'timeout',
    );
    expect(await egressOf().checkUrl('https://silent.test/')).toBe('The host does not resolve.');
  });

  it('is resolved by the system without name servers', async () => {
    const { port } = await receiver((_request, response) => response.end('ok'), '127.0.0.1');
    const egress = egressOf({ dnsServers: [], allow: ['127.0.0.1', '::1'] });
    expect((await egress.request(`http://localhost:${port}/`, post)).body.toString()).toBe('ok');
  });

  it('is called at its second address when the first refuses', async () => {
    const { port } = await receiver((_request, response) => response.end('ok'));
    names.set('two.test', ['127.0.0.3', ALLOWED]);
    const egress = egressOf({ allow: ['127.0.0.2/31'] });
    expect((await egress.request(`http://two.test:${port}/`, post)).body.toString()).toBe('ok');
  });

  it('is not called when one of its addresses is refused', async () => {
    const { port, sockets } = await receiver((_request, response) => response.end());
    names.set('mixed.test', [ALLOWED, '127.0.0.1']);
    const egress = egressOf();
    expect(await egress.checkUrl(`http://mixed.test:${port}/`)).toBe(
      'The host has an address that may not be called.',
    );
    const error = await failure(egress.request(`http://mixed.test:${port}/`, post));
    expect([error.reason, error.message]).toEqual(['blocked address', 'blocked address']);
    names.set('mixed.test', [ALLOWED, '::1']);
    expect(await reasonOf(egress.request(`http://mixed.test:${port}/`, post))).toBe('blocked address');
    expect(sockets.size).toBe(0);
  });
});

describe('a host name that changes its address', () => {
  it('after checkUrl is refused at the call', async () => {
    const inside = await receiver((_request, response) => response.end('secret'), '127.0.0.1');
    const url = `http://rebound.test:${inside.port}/`;
    const egress = egressOf();
    names.set('rebound.test', [ALLOWED]);
    expect(await egress.checkUrl(url)).toBeNull();
    names.set('rebound.test', ['127.0.0.1']);
    expect(await reasonOf(egress.request(url, post))).toBe('blocked address');
    expect(inside.sockets.size).toBe(0);
  });

  it('after the check of a call is connected to at the checked address', async () => {
    const outside = await receiver((_request, response) => response.end('outside'));
    const server = createServer((_request, response) => response.end('inside'));
    await listening(server, '127.0.0.1', outside.port);
    // One lookup queries both record types; every later query returns the refused address.
    let queries = 0;
    names.set('flip.test', () => (queries++ < 2 ? [ALLOWED] : ['127.0.0.1']));
    const egress = egressOf();
    const { body } = await egress.request(`http://flip.test:${outside.port}/`, post);
    expect([body.toString(), queries]).toEqual(['outside', 2]);
    expect(await reasonOf(egress.request(`http://flip.test:${outside.port}/`, post))).toBe('blocked address');
  });

  it('between two calls is not called through the open connection', async () => {
    const first = await receiver((_request, response) => response.end('first'));
    const second = createServer((_request, response) => response.end('second'));
    await listening(second, '127.0.0.3', first.port);
    const url = `http://moving.test:${first.port}/`;
    const egress = egressOf({ allow: ['127.0.0.2/31'] });
    const bodies: string[] = [];
    for (const addresses of [['127.0.0.2'], ['127.0.0.2'], ['127.0.0.3'], ['127.0.0.2']]) {
      names.set('moving.test', addresses);
      bodies.push((await egress.request(url, post)).body.toString());
    }
    expect(bodies).toEqual(['first', 'first', 'second', 'first']);
    expect(first.sockets.size).toBe(1);
    names.set('moving.test', ['127.0.0.1']);
    expect(await reasonOf(egress.request(url, post))).toBe('blocked address');
    expect(first.requests).toHaveLength(3);
  });
});

describe('loopback', () => {
  let port: number;
  const hits: string[] = [];
  beforeAll(async () => {
    const onHit: RequestListener = (request, response) => {
      hits.push(request.headers.host ?? '');
      response.end('secret');
    };
    ({ port } = await receiver(onHit, '127.0.0.1'));
    await listening(createServer(onHit), '::1', port);
    for (const name of ['inside.test', 'sub.inside.test']) names.set(name, ['127.0.0.1']);
    names.set('inside6.test', ['::1']);
    names.set('mapped.test', ['::ffff:127.0.0.1']);
    names.set('unspecified.test', ['0.0.0.0']);
    for (const name of ['localhost', '127.0.0.1.nip.test']) names.set(name, ['127.0.0.1', '::1']);
  });

  it.each([
    '127.0.0.1',
    '127.0.0.1.',
    '127.1',
    '127.0.1',
    '127.0.0.3',
    '127.255.255.254',
    '2130706433',
    '0x7f000001',
    '0X7F000001',
    '017700000001',
    '0177.0.0.1',
    '0177.0.0.01',
    '0x7f.0.0.1',
    '0x7f.1',
    '0x7f.0x0.0x0.0x1',
    '0x7f.00.0.0x01',
    '127.0x1',
    '127.0.01',
    '0',
    '0.0.0.0',
    '0x0',
    '00.0',
    '１２７.０.０.１',
    '１２７。０。０。１',
    '①②⑦.⓪.⓪.①',
    '127。0。0。1',
    '%31%32%37.0.0.1',
    '127%2e0%2e0%2e1',
    '127.0.\t0.1',
    '[::1]',
    '[::]',
    '[0:0:0:0:0:0:0:1]',
    '[0000:0000:0000:0000:0000:0000:0000:0001]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[::ffff:0:7f00:1]',
    '[0:0:0:0:0:ffff:127.0.0.1]',
    '[::127.0.0.1]',
    '[::7f00:1]',
    '[64:ff9b::127.0.0.1]',
    '[64:ff9b:1::7f00:1]',
    '[2002:7f00:1::]',
    '[2001:0:0:0:0:0:80ff:fffe]',
    '[fe80::5efe:7f00:1]',
    '[::1%25lo]',
    '[::1%lo]',
    '[fec0::1]',
    '[fc00::1]',
    'localhost',
    'localhost.',
    'LOCALHOST',
    'ⓛⓞⓒⓐⓛⓗⓞⓢⓣ',
    'inside.test',
    'sub.inside.test.',
    'inside6.test',
    'mapped.test',
    'unspecified.test',
    '127.0.0.1.nip.test',
    'hooks.example@127.0.0.1',
    'hooks.example:80@127.0.0.1',
  ])('is not called as %s', async (host) => {
    const urls = [`http://${host}:${port}/`, `https://${host}:${port}/`, `http:\\\\${host}:${port}\\`];
    const egress = egressOf();
    for (const url of urls) {
      expect(await egress.checkUrl(url)).not.toBeNull();
      expect(await reasonOf(egress.request(url, post))).toMatch(/^(blocked address|invalid url)$/);
    }
    expect(hits).toEqual([]);
  });

  it('is called in an allowed network, except at the ports of the service', async () => {
    const allow = ['127.0.0.0/8', '::1'];
    const open = egressOf({ allow });
    for (const host of ['127.0.0.1', '127.1', '[::1]', 'inside.test', '[::ffff:127.0.0.1]']) {
      expect((await open.request(`http://${host}:${port}/`, post)).status).toBe(200);
    }
    const own = egressOf({ allow, ownPorts: [port] });
    for (const host of ['127.0.0.1', '127.0.0.2', '127.1', '[::1]', 'inside.test', '[::ffff:127.0.0.1]']) {
      expect(await reasonOf(own.request(`http://${host}:${port}/`, post))).toBe('blocked address');
    }
    expect(hits).toHaveLength(5);
  });
});

describe('connections', () => {
  it('are reused by many calls and closed when idle', async () => {
    const { port, sockets, requests } = await receiver((request, response) => {
      request.resume();
      request.on('end', () => response.end('ok'));
    });
    const egress = egressOf({ connectionsPerHost: 8 });
    let left = 3000;
    const callers = Array.from({ length: 20 }, async () => {
      while (left-- > 0) await egress.request(`http://${ALLOWED}:${port}/`, post);
    });
    await Promise.all(callers);
    expect(requests).toHaveLength(3000);
    const timers = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout');
    expect(timers.length).toBeLessThan(100);
    expect(sockets.size).toBeLessThanOrEqual(8);
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true), longWait);
  });

  it('to one host are not limited by default: the calls that hang there delay no other', async () => {
    const { port, requests } = await receiver(({ url }, response) => {
      if (url !== '/hang') response.end('ok');
    });
    const egress = egressOf();
    const hanging = Array.from({ length: 300 }, () =>
      reasonOf(egress.request(`http://${ALLOWED}:${port}/hang`, post)),
    );
    const answer = await egress.request(`http://${ALLOWED}:${port}/`, { ...post, timeoutMs: 10_000 });
    expect(answer.status).toBe(200);
    await vi.waitFor(() => expect(requests).toHaveLength(301), longWait);
    await egress.close();
    expect(new Set(await Promise.all(hanging))).toEqual(new Set(['cancelled']));
  });

  it('to thousands of hosts are evicted', async () => {
    const { port, sockets, requests } = await receiver((_request, response) => response.end('ok'));
    let mostOpen = 0;
    const egress = egressOf({ resolve: async () => [ALLOWED] });
    for (let batch = 0; batch < 60; batch += 1) {
      const hosts = Array.from({ length: 50 }, (_, index) => `h${batch * 50 + index}.test`);
      await Promise.all(hosts.map((host) => egress.request(`http://${host}:${port}/`, post)));
      mostOpen = Math.max(mostOpen, [...sockets].filter((socket) => !socket.destroyed).length);
    }
    expect(requests).toHaveLength(3000);
    expect(mostOpen).toBeLessThan(500);
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true), longWait);
  });

  it('are closed when the caller cancels', async () => {
    const { port, sockets } = await receiver(() => {});
    const egress = egressOf();
    const cancelling = new AbortController();
    const running = egress.request(`http://${ALLOWED}:${port}/`, { ...post, signal: cancelling.signal });
    await vi.waitFor(() => expect(sockets.size).toBe(1), longWait);
    cancelling.abort();
    expect(await reasonOf(running)).toBe('cancelled');
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true), longWait);
    expect(
      await reasonOf(egress.request(`http://${ALLOWED}:${port}/`, { ...post, signal: cancelling.signal })),
    ).toBe('cancelled');
  });

  it('are closed with the client', async () => {
    const { port, sockets } = await receiver(({ url }, response) => {
      if (url === '/quick') response.end();
    });
    const egress = egressOf();
    await egress.request(`http://${ALLOWED}:${port}/quick`, post);
    const running = egress.request(`http://${ALLOWED}:${port}/slow`, post);
    const ended = reasonOf(running);
    await egress.close();
    expect(await ended).toBe('cancelled');
    await vi.waitFor(() => expect([...sockets].every((socket) => socket.destroyed)).toBe(true), longWait);
    expect(await reasonOf(egress.request(`http://${ALLOWED}:${port}/quick`, post))).toBe('cancelled');
  });
});
