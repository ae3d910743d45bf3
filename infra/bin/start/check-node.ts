import { Registry } from 'prom-client';

import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { chainName } from '../../../pipeline/node/chain-id.ts';
import { createNodeMetrics } from '../../../pipeline/node/metrics.ts';
import { createNode } from '../../../pipeline/node/node.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import { createPool } from '../../postgres/client.ts';

const NODE_TIMEOUT_MS = 5000;

/**
 * Checks once which chain the node serves. An unavailable node is no error: the roles retry.
 *
 * @returns the line to print
 * @throws `CHAIN_MISMATCH` if the stores hold another chain
 */
export async function checkNode(config: Config): Promise<string> {
  const url = required(config, 'starknetRpcUrl');
  // Only the host is printed: the path of a provider's URL is a secret.
  const { host } = new URL(url);
  const node = createNode({
    url,
    timeoutMs: NODE_TIMEOUT_MS,
    maxConcurrent: 1,
    attempts: 1,
    metrics: createNodeMetrics(new Registry()),
  });
  const pool = createPool(required(config, 'databaseUrl'), { applicationName: 'tds-start', max: 1 });
  try {
    const [answer] = await Promise.allSettled([node.chainId()]);
    if (answer.status === 'rejected') {
      const { reason } = answer;
      const told = reason instanceof Error ? reason.message : String(reason);
      return `the node at ${host} does not answer yet (${told}); retrying`;
    }
    await createChainCheck(createIngestStore(pool))(answer.value);
    return `${chainName(answer.value)} at ${host}`;
  } finally {
    await Promise.all([node.close(), pool.end()]);
  }
}
