import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { resolveOptional } from '../optional-package.ts';
import { storedSecret } from '../secrets.ts';
import { makeClosedFolder } from '../data-dir.ts';
import { startService } from '../service.ts';
import type { EmbeddedService, ServiceLog } from '../service.ts';
import { DATABASE, READER, WRITER } from './config.ts';

export interface EmbeddedClickHouse extends EmbeddedService {
  /** The same database as the user `api`, who may only SELECT. */
  readonly apiUrl: string;
}

/** Starts the embedded ClickHouse (server.ts) in a process of its own; its passwords are stored in `dataDir`. */
export async function startClickHouse(options: {
  dataDir: string;
  port: number;
  /** Memory limit of the engine; a query beyond it fails with MEMORY_LIMIT_EXCEEDED (241). */
  memoryMb?: number;
  log: ServiceLog;
}): Promise<EmbeddedClickHouse> {
  const { port, log } = options;
  for (const name of ['chdb', 'ffi-rs'])
    resolveOptional(`${name}/package.json`, 'ClickHouse', 'CLICKHOUSE_URL');
  const home = join(options.dataDir, 'clickhouse');
  makeClosedFolder(home);
  const writer = storedSecret(join(options.dataDir, 'clickhouse.password'));
  const reader = storedSecret(join(options.dataDir, 'clickhouse-api.password'));
  const server = fileURLToPath(new URL('server.ts', import.meta.url));
  const address = `127.0.0.1:${port}/${DATABASE}`;
  const service = await startService({
    name: 'clickhouse',
    url: `http://${WRITER}:${writer}@${address}`,
    program: {
      command: process.execPath,
      args: [server, '--data', home, '--port', String(port), '--memory-mb', String(options.memoryMb ?? 3072)],
      stopSignal: 'SIGTERM',
      graceMs: 4000,
    },
    watch: 'stdin',
    env: {
      EMBEDDED_CLICKHOUSE_PASSWORD: writer,
      EMBEDDED_CLICKHOUSE_API_PASSWORD: reader,
      TZ: 'UTC',
    },
    pidFile: join(home, 'clickhouse.pids'),
    probe: (signal) => ping(`http://127.0.0.1:${port}/ping`, signal),
    readyMs: 30_000,
    log,
  });
  return { ...service, apiUrl: `http://${READER}:${reader}@${address}` };
}

async function ping(url: string, signal: AbortSignal): Promise<void> {
  const response = await fetch(url, { signal });
  await response.text();
  if (!response.ok) throw new Error(`ClickHouse answered ${response.status}`);
}
