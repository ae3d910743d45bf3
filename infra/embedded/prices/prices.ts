import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { makeClosedFolder } from '../data-dir.ts';
import { freePort } from '../ports.ts';
import { startService } from '../service.ts';
import type { EmbeddedService, ServiceLog } from '../service.ts';

/** Starts the simulated price feed in a process of its own; its `url` speaks DefiLlama's coins interface. */
export async function startPrices(options: {
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
    name: 'prices',
    url,
    program: {
      command: process.execPath,
      args: [server, '--port', String(port), '--watch-stdin', ...args],
      stopSignal: 'SIGTERM',
      graceMs: 2000,
    },
    watch: 'stdin',
    pidFile: join(dataDir, 'prices.pids'),
    answers: async (signal) => {
      const response = await fetch(`${url}/v1/starknet/tokens?page=0&size=1`, { signal });
      if (!response.ok) throw new TypeError(`the feed answered ${response.status}`);
      await response.json();
    },
    readyMs: 15_000,
    log,
  });
}

/** Where the embedded feed serves its token list. */
export function tokenListUrl(feedUrl: string): string {
  return `${feedUrl}/v1/starknet/tokens`;
}
