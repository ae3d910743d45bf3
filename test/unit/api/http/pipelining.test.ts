import { once } from 'node:events';
import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest';

import { MAX_UNANSWERED, limitPipelining } from '../../../../api/http/pipelining.ts';

const REQUEST = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';

const begun: ServerResponse[] = [];
const server = createServer(limitPipelining((_, response) => void begun.push(response)));
beforeAll(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => void (begun.length = 0));

const open = (): Socket => {
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').resume();
  client.on('error', () => {});
  return client;
};

it('closes a connection that has too many unanswered requests, and begins no more of them', async () => {
  const client = open();
  client.write(REQUEST.repeat(10 * MAX_UNANSWERED));
  await once(client, 'close');
  expect(begun).toHaveLength(MAX_UNANSWERED);
  await vi.waitFor(() => expect(begun.every(({ closed }) => closed)).toBe(true));
});

it('counts the requests of a connection that are not answered yet', async () => {
  const [client, other] = [open(), open()];
  other.write(REQUEST);
  await vi.waitFor(() => expect(begun).toHaveLength(1));
  for (let round = 1; round <= 3; round += 1) {
    client.write(REQUEST.repeat(MAX_UNANSWERED));
    await vi.waitFor(() => expect(begun).toHaveLength(1 + round * MAX_UNANSWERED));
    for (const response of begun.slice(1)) response.end();
    await vi.waitFor(() => expect(begun.slice(1).every(({ closed }) => closed)).toBe(true));
  }
  expect([client.closed, other.closed]).toEqual([false, false]);
  for (const socket of [client, other]) socket.destroy();
});
