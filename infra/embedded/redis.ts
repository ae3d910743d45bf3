import { createConnection } from 'node:net';
import { join } from 'node:path';

import { makeClosedFolder } from './data-dir.ts';
import { startService } from './service.ts';
import type { EmbeddedService, ServiceLog } from './service.ts';

/** Starts the machine's `redis-server` on loopback, without persistence: counters in Redis may be lost by design. */
export function startRedis(options: {
  dataDir: string;
  port: number;
  log: ServiceLog;
}): Promise<EmbeddedService> {
  const { port, log } = options;
  const dataDir = join(options.dataDir, 'redis');
  makeClosedFolder(dataDir);
  return startService({
    name: 'redis',
    url: `redis://127.0.0.1:${port}`,
    program: {
      command: 'redis-server',
      args: [
        '--bind',
        '127.0.0.1',
        '--port',
        String(port),
        '--save',
        '',
        '--appendonly',
        'no',
        '--maxmemory',
        '128mb',
        '--maxmemory-policy',
        'volatile-ttl',
        // Looks for expired keys and signals twice a second; the default, ten times, costs 0.1 % of a core.
        '--hz',
        '2',
        '--dir',
        dataDir,
      ],
      stopSignal: 'SIGTERM',
      graceMs: 3000,
    },
    watch: 'guard',
    pidFile: join(dataDir, 'redis.pids'),
    probe: (signal) => ping(port, signal),
    readyMs: 60_000,
    log,
  });
}

function ping(port: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: '127.0.0.1', port, signal });
    socket.on('error', reject);
    socket.on('connect', () => socket.write('PING\r\n'));
    socket.on('data', (data) => {
      socket.destroy();
      if (data.toString().startsWith('+PONG')) resolve();
      else reject(new Error(`redis answered ${data.toString().trim()}`));
    });
    socket.on('close', () => reject(new Error('redis closed the connection')));
  });
}
