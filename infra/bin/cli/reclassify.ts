import type { Command } from 'commander';

import { pause } from '../../lifecycle.ts';
import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { reclassifyContract } from '../../../pipeline/ingest/repair/requests.ts';
import { createStandards } from '../../../pipeline/ingest/contracts/standards.ts';
import { createNodeMetrics } from '../../../pipeline/node/metrics.ts';
import { createNode } from '../../../pipeline/node/node.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { quarantinedHeights } from '../../../projections/quarantine/queries.ts';
import { transferHeights } from '../../../projections/transfers/queries.ts';
import { AppError } from '../../../schemas/errors.ts';
import { parseFelt } from '../../../schemas/felt.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { createClickHouse } from '../../clickhouse/client.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import { createMetrics } from '../../metrics.ts';
import { createPool } from '../../postgres/client.ts';
import { commandConfig } from '../command-config.ts';

export function reclassifyCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('reclassify')
    .description('classify a contract again by asking the node, and repair the blocks with its events')
    .argument('<address>')
    .action(async (address: string) => {
      const contract = parseFelt(address);
      if (contract === null) throw new AppError('INVALID', `Not an address: ${address}`);
      say(await reclassify(commandConfig(process.env), contract, log));
    });
}

/** Classifies a contract again and requests a repair of its blocks; returns a summary. */
async function reclassify(config: Config, contract: Felt, log: Logger): Promise<string> {
  const pool = createPool(required(config, 'databaseUrl'), { applicationName: 'tds-reclassify', max: 3 });
  const clickhouse = createClickHouse(required(config, 'clickhouseUrl'), { application: 'tds-reclassify' });
  const node = createNode({
    url: required(config, 'starknetRpcUrl'),
    timeoutMs: config.rpcTimeoutMs,
    maxConcurrent: 4,
    metrics: createNodeMetrics(createMetrics('reclassify')),
    checkChain: createChainCheck(createIngestStore(pool)),
  });
  try {
    const head = await node.blockHashAndNumber();
    if (head === null) throw new AppError('NOT_FOUND', 'The node has no block yet');
    const { before, after, heights } = await reclassifyContract(
      {
        pool,
        standards: createStandards({ node, pool, log }),
        heightsOf: async (token) => {
          const served = await servedBuilds(pool);
          const [indexed, quarantined] = await Promise.all([
            transferHeights(clickhouse, served, token),
            quarantinedHeights(pool, served.schema('quarantine'), token),
          ]);
          return [...new Set([...indexed, ...quarantined])].toSorted((a, b) => a - b);
        },
        head,
        sleep: pause,
      },
      contract,
    );
    return `${contract} is ${after.standard} (was ${before?.standard ?? 'not known'}); the ingester is asked to repair ${heights} blocks.`;
  } finally {
    await Promise.all([pool.end(), clickhouse.close(), node.close()]);
  }
}
