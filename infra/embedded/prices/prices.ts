import type { EmbeddedService } from '../service.ts';
import { startSimulated } from '../simulated.ts';
import type { SimulatedOptions } from '../simulated.ts';

/** Starts the simulated price feed in a process of its own; its `url` speaks DefiLlama's coins interface. */
export async function startPrices(options: SimulatedOptions): Promise<EmbeddedService> {
  return await startSimulated(options, {
    name: 'prices',
    server: new URL('server.ts', import.meta.url),
    graceMs: 2000,
    async probe(url, signal) {
      const response = await fetch(`${url}/v1/starknet/tokens?page=0&size=1`, { signal });
      if (!response.ok) throw new TypeError(`the feed answered ${response.status}`);
      await response.json();
    },
  });
}

/** Where the embedded feed serves its token list. */
export function tokenListUrl(feedUrl: string): string {
  return `${feedUrl}/v1/starknet/tokens`;
}
