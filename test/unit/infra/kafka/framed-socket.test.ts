import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';

import fc from 'fast-check';
import kafkajs from 'kafkajs';
import { afterEach, beforeEach, expect, test } from 'vitest';

import { framedSocket } from '../../../../infra/kafka/framed-socket.ts';

let server: Server;
let serve: (socket: Socket) => void;
const clients: Socket[] = [];

beforeEach(async () => {
  server = createServer((socket) => {
    socket.on('error', () => {});
    serve(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  server.close();
});
const port = (): number => (server.address() as AddressInfo).port;

const frame = (body: Uint8Array): Buffer => {
  const size = Buffer.alloc(4);
  size.writeInt32BE(body.length);
  return Buffer.concat([size, body]);
};

async function inPieces(socket: Socket, bytes: Buffer, cuts: readonly number[]): Promise<void> {
  let at = 0;
  for (const size of [...cuts, bytes.length]) {
    if (at < bytes.length) socket.write(bytes.subarray(at, at + size));
    at += size;
    await new Promise((resolve) => setImmediate(resolve));
  }
  socket.end();
}

test('emits whole frames in order, however they are split, and drops an incomplete one', async () => {
  const bodies = fc.array(fc.uint8Array({ maxLength: 300 }), { minLength: 1, maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(bodies, fc.array(fc.nat(40)), fc.nat(100), async (sent, cuts, lost) => {
      const all = Buffer.concat(sent.map(frame));
      const whole = all.subarray(0, all.length - Math.min(lost, all.length));
      serve = (socket) => void inPieces(socket, whole, cuts);
      const client = framedSocket({ host: '127.0.0.1', port: port(), onConnect: () => {} });
      clients.push(client);
      const got: Buffer[] = [];
      client.on('data', (chunk: Buffer) => {
        // What comes is whole: its frames end where it ends.
        let at = 0;
        while (at < chunk.length) at += 4 + chunk.readInt32BE(at);
        expect(at).toBe(chunk.length);
        got.push(chunk);
      });
      await once(client, 'close');
      let expected = 0;
      for (const body of sent)
        if (expected + 4 + body.length <= whole.length) expected += 4 + body.length;
        else break;
      expect(Buffer.concat(got).equals(all.subarray(0, expected))).toBe(true);
    }),
    { numRuns: 40 },
  );
});

test('lets kafkajs recover from a connection that was closed within a response', async () => {
  let connections = 0;
  serve = (socket) => {
    connections += 1;
    const isCut = connections === 1;
    socket.on('data', (chunk: Buffer) => {
      const correlation = chunk.readInt32BE(8);
      // ApiVersions says that nothing is supported, which is enough to see that it was understood.
      const body = Buffer.alloc(10);
      body.writeInt32BE(correlation);
      const answer = frame(body);
      if (isCut) socket.end(answer.subarray(0, 6));
      else socket.write(answer);
    });
  };
  const kafka = new kafkajs.Kafka({
    brokers: [`127.0.0.1:${port()}`],
    socketFactory: framedSocket,

    retry: { retries: 1, initialRetryTime: 10 },
    logLevel: kafkajs.logLevel.NOTHING,
  });
  const admin = kafka.admin();
  const error = await admin.connect().catch((caught: unknown) => caught);
  await admin.disconnect();
  expect(connections).toBeGreaterThan(1);
  expect(String(error)).not.toMatch(/buffer|bounds/i);
});
