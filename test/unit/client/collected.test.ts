import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { TokenDataClient } from '../../../client/src/client.ts';
import { streamTransfers } from '../../../client/src/stream.ts';

/**
 * Requests of Node hold the signal that they follow weakly: once one is collected as garbage, an abort does not reach its answer.
 * So all of this is real: the server, `fetch`, and the collection.
 */

setFlagsFromString('--expose-gc');
const collect: () => void = runInNewContext('gc');

let connections = 0;
/** Begins an answer that never ends; a stream also sends a comment from time to time. */
const server = createServer((request, response) => {
  connections += 1;
  if (request.url?.startsWith('/api/stream/') !== true) {
    response.writeHead(200, { 'content-type': 'application/json' }).write('{');
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write('id: c1\nevent: block\ndata: {"height":1}\n\n');
  if (request.url.includes('silent')) return;
  const timer = setInterval(() => response.write(': \n\n'), 50);
  response.on('close', () => clearInterval(timer));
});
let baseUrl = '';
beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

/** A signal that fires after everything unreachable is collected. */
function firesAfterCollections(): AbortSignal {
  const controller = new AbortController();
  void (async () => {
    for (let round = 0; round < 3; round += 1) {
      await sleep(150);
      collect();
    }
    controller.abort(new Error('enough'));
  })();
  return controller.signal;
}

describe('after a collection of garbage', () => {
  it('the signal of a call ends it', async () => {
    const client = new TokenDataClient({ baseUrl });
    await expect(client.getProgress({ signal: firesAfterCollections() })).rejects.toThrow('enough');
  }, 5000);

  it('the signal of a stream ends it', async () => {
    const messages = [];
    const client = new TokenDataClient({ baseUrl });
    for await (const message of client.stream({ signal: firesAfterCollections() })) messages.push(message);
    expect(messages).toHaveLength(1);
  }, 5000);

  it('nothing that a stream has read is kept', async () => {
    const [chunks, chunkBytes] = [4000, 5000];
    let sent = 0;
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += 1;
        const data = JSON.stringify({ height: sent, hash: `${sent}${'x'.repeat(chunkBytes)}` });
        controller.enqueue(new TextEncoder().encode(`id: c${sent}\nevent: block\ndata: ${data}\n\n`));
      },
    });
    const transport = {
      baseUrl,
      apiKey: 'k',
      session: undefined,
      retry: {},
      fetch: async () => new Response(body),
    };
    const used = (): number => {
      collect();
      return process.memoryUsage().heapUsed;
    };
    let [messages, before, grown] = [0, 0, 0];
    for await (const _ of streamTransfers(transport, {})) {
      messages += 1;
      if (messages === 100) before = used();
      // While it is open: afterwards nothing holds it.
      if (messages === chunks) grown = used() - before;
      if (messages === chunks) break;
    }
    expect(grown).toBeLessThan((chunks * chunkBytes) / 4);
  }, 20_000);

  it('a silent stream is given up and goes on', async () => {
    const transport = {
      baseUrl,
      apiKey: 'k',
      session: undefined,
      retry: { delayMs: 5 },
      fetch,
      silenceMs: 700,
    };
    connections = 0;
    firesAfterCollections();
    let messages = 0;
    for await (const _ of streamTransfers(transport, { token: 'silent' })) if ((messages += 1) === 2) break;
    expect(connections).toBe(2);
  }, 5000);
});
