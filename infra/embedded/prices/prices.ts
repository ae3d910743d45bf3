import type { EmbeddedService } from '../service.ts';
import { startSimulated } from '../simulated.ts';
import type { SimulatedOptions } from '../simulated.ts';

/** Starts the simulated price feed in a process of its own; its `url` is the base of DefiLlama's coins API. */
export async function startPrices(options: SimulatedOptions): Promise<EmbeddedService> {
  return await startSimulated(options, {
    name: 'prices',
    server: new URL('server.ts', import.meta.url),
    graceMs: 2000,
    async probe(url, signal) {
      const response = await fetch(`${url}/v1/starknet/tokens?page=0&size=1`, { signal });
      if (!response.ok) throw new TypeError(`the simulated feed answered ${response.status}`);
      await response.json();
    },
  });
}

/** URL of the token list of the simulated feed. */
export function tokenListUrl(feedUrl: string): string {
  return `${feedUrl}/v1/starknet/tokens`;
}
