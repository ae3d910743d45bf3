import { join } from 'node:path';

import { startIpfs } from '../../embedded/ipfs/ipfs.ts';
import { keepRunning } from '../../embedded/keep-running.ts';
import { takePorts } from '../../embedded/ports.ts';
import { startPrices, tokenListUrl } from '../../embedded/prices/prices.ts';
import type { EmbeddedService } from '../../embedded/service.ts';
import type { SimulatedOptions } from '../../embedded/simulated.ts';
import { startStarknet } from '../../embedded/starknet/starknet.ts';
import type { Logger } from '../../log.ts';

type Part = 'starknet' | 'prices' | 'ipfs';

export interface SimulatedPartsOptions {
  readonly dataDir: string;
  /** The settings; URLs of the parts started here are added. */
  readonly env: NodeJS.ProcessEnv;
  readonly log: Logger;
  readonly onRestart: () => void;
  /** Prints one line about a part. */
  readonly show: (part: string, text: string) => void;
}

/** Starts the simulated chain, price feed and IPFS gateway whose URLs are unset; beside a real node none of them. */
export async function startSimulatedParts(options: SimulatedPartsOptions): Promise<EmbeddedService[]> {
  const { dataDir, env, log, onRestart, show } = options;
  const isSet = (name: string): boolean => env[name] !== undefined;
  if (isSet('STARKNET_RPC_URL')) {
    if (!isSet('PRICE_FEED_URL')) show('Prices', 'none: set PRICE_FEED_URL and TOKEN_LIST_URL');
    return [];
  }
  // Clients keep links to the gateway, so its port is stable across starts.
  const ports = await takePorts(dataDir, ['starknet', 'prices', 'ipfs']);
  const start = (
    part: Part,
    run: (options: SimulatedOptions) => Promise<EmbeddedService>,
  ): Promise<EmbeddedService> =>
    keepRunning(() => run({ dataDir: join(dataDir, part), log, port: ports[part] }), { log, onRestart });
  const [chain, feed, gateway] = await Promise.all([
    start('starknet', startStarknet),
    isSet('PRICE_FEED_URL') && isSet('TOKEN_LIST_URL') ? null : start('prices', startPrices),
    isSet('IPFS_GATEWAY_URL') ? null : start('ipfs', startIpfs),
  ]);
  const services = [chain, feed, gateway].filter((service) => service !== null);

  env['STARKNET_RPC_URL'] = chain.url;
  env['STARKNET_WS_URL'] = chain.url.replace('http', 'ws');
  env['INDEX_FROM'] ??= '0';
  show('Starknet', `simulated chain at ${chain.url}`);
  if (feed !== null) {
    env['PRICE_FEED_URL'] ??= feed.url;
    env['TOKEN_LIST_URL'] ??= tokenListUrl(feed.url);
    show('Prices', `simulated at ${feed.url}`);
  }
  if (gateway !== null) {
    env['IPFS_GATEWAY_URL'] = gateway.url;
    show('IPFS', `simulated gateway at ${gateway.url}`);
  }
  return services;
}
