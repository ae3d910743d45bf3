import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { chainName } from '../../../pipeline/node/chain-id.ts';
import { errorMessage } from '../../../schemas/errors.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import { createMetrics } from '../../metrics.ts';
import { openCommandPool, openNode, withConnections } from '../connect.ts';

/** Of the only attempt to reach the node. */
const NODE_TIMEOUT_MS = 5000;

/**
 * Checks once which chain the node serves. An unavailable node is no error: the roles retry.
 *
 * @returns the line to print
 * @throws `CHAIN_MISMATCH` if the stores hold another chain
 */
export async function checkNode(config: Config, log: Logger): Promise<string> {
  // Only the host is printed: the path of a provider's URL is a secret.
  const { host } = new URL(required(config, 'starknetRpcUrl'));
  return await withConnections(config, log, async (connecting) => {
    const options = { timeoutMs: NODE_TIMEOUT_MS, maxConcurrent: 1, attempts: 1 };
    const node = openNode(connecting, createMetrics('start'), options);
    const [answer] = await Promise.allSettled([node.chainId()]);
    if (answer.status === 'rejected') {
      return `the node at ${host} does not answer yet (${errorMessage(answer.reason)}); retrying`;
    }
    const pool = openCommandPool(connecting, 'tds-start', 1);
    await createChainCheck(createIngestStore(pool))(answer.value);
    return `${chainName(answer.value)} at ${host}`;
  });
}
