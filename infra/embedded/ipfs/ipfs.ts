import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { makeClosedFolder } from '../data-dir.ts';
import { freePort } from '../ports.ts';
import { startService } from '../service.ts';
import type { EmbeddedService, ServiceLog } from '../service.ts';

/** Starts the simulated IPFS gateway in a process of its own; its `url` is the base before `/ipfs/…`. */
export async function startIpfs(options: {
  /** Its own folder. */
  readonly dataDir: string;
  /** Default: any free port. */
  readonly port?: number | undefined;
  readonly log: ServiceLog;
  readonly args?: readonly string[];
}): Promise<EmbeddedService> {
  const { dataDir, log, args = [] } = options;
  makeClosedFolder(dataDir);
  const port = options.port ?? (await freePort());
  const url = `http://127.0.0.1:${port}`;
  const server = fileURLToPath(new URL('server.ts', import.meta.url));
  return await startService({
    name: 'ipfs',
    url,
    program: {
      command: process.execPath,
      args: [server, '--port', String(port), '--watch-stdin', ...args],
      stopSignal: 'SIGTERM',
      graceMs: 2000,
    },
    watch: 'stdin',
    pidFile: join(dataDir, 'ipfs.pids'),
    answers: async (signal) => {
      const response = await fetch(`${url}/ipfs/`, { signal });
      await response.text();
      if (response.status !== 404) throw new TypeError(`the gateway answered ${response.status}`);
    },
    readyMs: 15_000,
    log,
  });
}
