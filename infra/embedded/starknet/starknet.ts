import { join } from 'node:path';

import type { EmbeddedService } from '../service.ts';
import { startSimulated } from '../simulated.ts';
import type { SimulatedOptions } from '../simulated.ts';

/** A block every two seconds, a reorg of up to five blocks about every 150, and a few malformed events. */
const demoArgs = ['--head', '300', '--reorg-every', '150', '--reorg-depth', '5', '--malformed', '0.002'];

/**
 * Starts the simulated Starknet node (JSON-RPC 0.10) in a process of its own. A later start in the same folder resumes
 * the chain. `args` replace those of the demo.
 */
export async function startStarknet({
  args = demoArgs,
  ...options
}: SimulatedOptions): Promise<EmbeddedService> {
  const state = join(options.dataDir, 'chain.json');
  return await startSimulated(
    { ...options, args: ['--state', state, ...args] },
    { name: 'starknet', server: new URL('server.ts', import.meta.url), graceMs: 3000, probe },
  );
}

async function probe(url: string, signal: AbortSignal): Promise<void> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'starknet_blockNumber', params: [] });
  const response = await fetch(url, { method: 'POST', body, signal });
  if (!response.ok) throw new TypeError(`the simulated node answered ${response.status}`);
  await response.json();
}
