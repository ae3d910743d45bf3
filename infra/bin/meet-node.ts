import { Registry } from 'prom-client';

import { chainHeldIn, chainName } from '../../pipeline/node/held-chain.ts';
import { createNodeMetrics } from '../../pipeline/node/metrics.ts';
import { createNode } from '../../pipeline/node/node.ts';
import { AppError } from '../../schemas/errors.ts';
import { required } from '../config.ts';
import type { Config } from '../config.ts';
import { createPool } from '../postgres/client.ts';

/** Who starts waits no longer for a word of the node. */
const PATIENCE_MS = 5000;

/**
 * Asks the node once which chain it serves. One that does not answer is no hindrance: it may come later.
 *
 * @returns what to say of it
 * @throws `CHAIN_MISMATCH` where the stores hold another chain
 */
export async function meetNode(config: Config): Promise<string> {
  const url = required(config, 'starknetRpcUrl');
  // The path of a provider's URL is a password.
  const { host } = new URL(url);
  const pool = createPool(required(config, 'databaseUrl'), { applicationName: 'tds-start', max: 1 });
  const node = createNode({
    url,
    timeoutMs: PATIENCE_MS,
    maxConcurrent: 1,
    attempts: 1,
    metrics: createNodeMetrics(new Registry()),
  });
  try {
    const served = await node.chainId();
    await chainHeldIn(pool)(served);
    return `${chainName(served)} at ${host}`;
  } catch (error) {
    if (error instanceof AppError && error.code === 'CHAIN_MISMATCH') throw error;
    const reason = error instanceof Error ? error.message : String(error);
    return `the node at ${host} does not answer yet (${reason}); it is asked again and again`;
  } finally {
    await Promise.all([node.close(), pool.end()]);
  }
}
