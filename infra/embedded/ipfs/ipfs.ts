import type { EmbeddedService } from '../service.ts';
import { startSimulated } from '../simulated.ts';
import type { SimulatedOptions } from '../simulated.ts';

/** Starts the simulated IPFS gateway in a process of its own; its `url` is the base before `/ipfs/…`. */
export async function startIpfs(options: SimulatedOptions): Promise<EmbeddedService> {
  return await startSimulated(options, {
    name: 'ipfs',
    server: new URL('server.ts', import.meta.url),
    graceMs: 2000,
    async probe(url, signal) {
      const response = await fetch(`${url}/ipfs/`, { signal });
      await response.text();
      if (response.status !== 404) throw new TypeError(`the simulated gateway answered ${response.status}`);
    },
  });
}
