import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { makeClosedFolder } from '../data-dir.ts';
import { freePort } from '../ports.ts';
import { startService, type EmbeddedService, type ServiceLog } from '../service.ts';

export type StarknetOptions = {
  /** Its own folder: the chain's state is kept there, so that the next start resumes the same chain. */
  dataDir: string;
  /** Default: any free port. */
  port?: number | undefined;
  log: ServiceLog;
  seed?: string | undefined;
  /** Replaces the demo's choices below, by the names of server.ts. */
  args?: readonly string[] | undefined;
};

/** The demo: a block every two seconds, now and then a reorg of up to five blocks, and a few unreadable events. */
const demoArgs = ['--head', '300', '--reorg-every', '150', '--reorg-depth', '5', '--malformed', '0.002'];

/** Starts the simulated Starknet node in a process of its own; its `url` speaks JSON-RPC 0.10. */
export async function startStarknet(options: StarknetOptions): Promise<EmbeddedService> {
  const { dataDir, log, seed = 'demo', args = demoArgs } = options;
  makeClosedFolder(dataDir);
  const port = options.port ?? (await freePort());
  const url = `http://127.0.0.1:${port}`;
  const server = fileURLToPath(new URL('server.ts', import.meta.url));
  const state = join(dataDir, 'chain.json');
  return await startService({
    name: 'starknet',
    url,
    program: {
      command: process.execPath,
      args: [server, '--port', String(port), '--seed', seed, '--state', state, '--watch-stdin', ...args],
      stopSignal: 'SIGTERM',
      graceMs: 3000,
    },
    watch: 'stdin',
    pidFile: join(dataDir, 'starknet.pids'),
    answers: (signal) => answers(url, signal),
    readyMs: 15_000,
    log,
  });
}

async function answers(url: string, signal: AbortSignal): Promise<void> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'starknet_blockNumber', params: [] });
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
    signal,
  });
  if (!response.ok) throw new TypeError(`the node answered ${response.status}`);
  await response.json();
}
