import { Registry } from 'prom-client';

import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { chainName } from '../../../pipeline/node/chain-id.ts';
import { createNodeMetrics } from '../../../pipeline/node/metrics.ts';
import { createNode } from '../../../pipeline/node/node.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import { createPool } from '../../postgres/client.ts';

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
  const node = createNode({
    url,
    timeoutMs: PATIENCE_MS,
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
      return `the node at ${host} does not answer yet (${told}); it is asked again and again`;
    }
    await createChainCheck(createIngestStore(pool))(answer.value);
    return `${chainName(answer.value)} at ${host}`;
  } finally {
    await Promise.all([node.close(), pool.end()]);
  }
}
