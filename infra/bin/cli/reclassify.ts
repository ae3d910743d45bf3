import { Argument } from 'commander';
import type { Command } from 'commander';

import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { reclassifyContract } from '../../../pipeline/ingest/repair/requests.ts';
import { createStandards, setStandard } from '../../../pipeline/ingest/contracts/standards.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { quarantinedHeights } from '../../../projections/quarantine/queries.ts';
import { transferHeights } from '../../../projections/transfers/queries.ts';
import type { Node } from '../../../pipeline/node/types.ts';
import type { Standards } from '../../../pipeline/ingest/ports.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { tokenStandard } from '../../../schemas/messages/common.ts';
import type { TokenStandard } from '../../../schemas/messages/common.ts';
import type { Logger } from '../../log.ts';
import { createMetrics } from '../../metrics.ts';
import { commandConfig } from '../command-config.ts';
import { openNode, withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { addressOf } from './arguments.ts';

export function reclassifyCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('reclassify')
    .description('read the standard of a contract from the node again, and repair the blocks with its events')
    .argument('<address>', '', addressOf)
    .action(async (contract: Felt) => {
      const summary = await withStores(commandConfig(process.env), 'tds-reclassify', log, (stores) =>
        reclassify(stores, contract, (node) => createStandards({ ...stores, node })),
      );
      say(summary);
    });
}

export function contractsCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('contracts')
    .description('manage the token standards of contracts')
    .command('set')
    .description(
      'set the standard of a contract that the node cannot classify, and repair the blocks with its events',
    )
    .argument('<address>', '', addressOf)
    .addArgument(new Argument('<standard>', 'standard of the contract').choices(tokenStandard.options))
    .action(async (contract: Felt, standard: TokenStandard) => {
      const summary = await withStores(commandConfig(process.env), 'tds-contracts', log, (stores) =>
        reclassify(stores, contract, () => ({
          reclassify: (token, at) => setStandard(stores, token, standard, at),
        })),
      );
      say(summary);
    });
}

/** Replaces the classification of a contract and requests a repair of its blocks; returns a summary. */
async function reclassify(
  stores: Stores,
  contract: Felt,
  replacedBy: (node: Node) => Pick<Standards, 'reclassify'>,
): Promise<string> {
  const { pool, clickhouse } = stores;
  const checkChain = createChainCheck(createIngestStore(pool));
  const node = openNode(stores, createMetrics('reclassify'), { maxConcurrent: 4, checkChain });
  const head = await node.blockHashAndNumber();
  if (head === null) throw new AppError('NOT_FOUND', 'The node has no block yet');
  const heightsOf = async (token: Felt): Promise<number[]> => {
    const served = await servedBuilds(pool);
    const [indexed, quarantined] = await Promise.all([
      transferHeights(clickhouse, served, token),
      quarantinedHeights(pool, served.schema('quarantine'), token),
    ]);
    return [...new Set([...indexed, ...quarantined])].toSorted((a, b) => a - b);
  };
  const { before, after, heights } = await reclassifyContract(
    { pool, standards: replacedBy(node), heightsOf, head },
    contract,
  );
  const previous = before?.standard ?? 'unknown';
  return `${contract} is ${after.standard} (was ${previous}); the ingester will repair ${heights} blocks.`;
}
