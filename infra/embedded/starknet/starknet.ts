import { join } from 'node:path';

import type { EmbeddedService } from '../service.ts';
import { startSimulated } from '../simulated.ts';
import type { SimulatedOptions } from '../simulated.ts';

/** In its folder the chain's state is kept, so that the next start resumes the same chain. */
export interface StarknetOptions extends SimulatedOptions {
  readonly seed?: string | undefined;
  /** Replaces the demo's choices below, by the names of server.ts. */
  readonly args?: readonly string[] | undefined;
}

/** The demo: a block every two seconds, now and then a reorg of up to five blocks, and a few unreadable events. */
const demoArgs = ['--head', '300', '--reorg-every', '150', '--reorg-depth', '5', '--malformed', '0.002'];

/** Starts the simulated Starknet node in a process of its own; its `url` speaks JSON-RPC 0.10. */
export async function startStarknet({
  seed = 'demo',
  args = demoArgs,
  ...options
}: StarknetOptions): Promise<EmbeddedService> {
  const state = join(options.dataDir, 'chain.json');
  return await startSimulated(
    { ...options, args: ['--seed', seed, '--state', state, ...args] },
    { name: 'starknet', server: new URL('server.ts', import.meta.url), graceMs: 3000, answers },
  );
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
