import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { expect, test } from 'vitest';

import { unavailableStores } from '../../../../infra/health/unavailable-stores.ts';
import { loadConfig } from '../../../../infra/config.ts';
import { createLogger } from '../../../../infra/log.ts';

test('a probe closes its connection to a PostgreSQL that accepts it and does not answer', async () => {
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket.on('error', () => {}));
    socket.once('close', () => open.delete(socket));
    // AuthenticationOk, ReadyForQuery: from then on the server is silent, as a pooler without a free session.
    socket.once('data', () => socket.write(Buffer.from('5200000008000000005a0000000549', 'hex')));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const { port } = server.address() as AddressInfo;
    const config = loadConfig({ DATABASE_URL: `postgres://u:p@127.0.0.1:${port}/d` });
    expect(await unavailableStores(config, createLogger('test', 'silent'))).toEqual(['PostgreSQL']);
    await expect.poll(() => open.size, { timeout: 5000 }).toBe(0);
  } finally {
    for (const socket of open) socket.destroy();
    server.close();
  }
});
