import { randomUUID } from 'node:crypto';

import type { Command } from 'commander';

import { LEASE_MS } from '../../../pipeline/ingest/lease.ts';
import { createCommitmentChecks } from '../../../pipeline/ingest/commitments.ts';
import { createCommitmentStore } from '../../../pipeline/ingest/store/commitments.ts';
import { createIngestMetrics } from '../../../pipeline/ingest/metrics.ts';
import { createBlockLog } from '../../../pipeline/ingest/reconcile/block-log.ts';
import { revertOrphan } from '../../../pipeline/ingest/reconcile/revert.ts';
import { requestRepairs } from '../../../pipeline/ingest/repair/requests.ts';
import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import type { BlockPoint } from '../../../pipeline/node/types.ts';
import { AppError } from '../../../schemas/errors.ts';
import { parseFelt } from '../../../schemas/felt.ts';
import { systemClock } from '../../clock.ts';
import type { Logger } from '../../log.ts';
import { createMetrics } from '../../metrics.ts';
import { commandConfig } from '../command-config.ts';
import { openNode, withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { nonNegativeInteger } from './arguments.ts';

export function revertCommand(program: Command, log: Logger, say: (line: string) => void): void {
  program
    .command('revert')
    .description(
      'revert an orphaned block that the log still lists as accepted, with all blocks on top of it',
    )
    .argument('<height>', '', nonNegativeInteger)
    .argument('<hash>', 'hash of the orphaned block; refused if the node has this block')
    .action(async (height: number, hashText: string) => {
      const hash = parseFelt(hashText);
      if (hash === null) throw new AppError('INVALID', `Not a block hash: ${hashText}`);
      const summary = await withStores(commandConfig(process.env), 'tds-revert', log, (stores) =>
        revert(stores, { height, hash }),
      );
      say(summary);
    });
}

/** Reverts the orphan and returns a summary. */
async function revert(stores: Stores, orphan: BlockPoint): Promise<string> {
  const { pool, kafka, log, releasers } = stores;
  const metrics = createMetrics('revert');
  const ingestMetrics = createIngestMetrics(metrics);
  const store = createIngestStore(pool);
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const { heights } = await revertOrphan(
    {
      node: openNode(stores, metrics, { maxConcurrent: 4, checkChain: createChainCheck(store) }),
      store,
      publisher,
      checks: createCommitmentChecks({
        store: createCommitmentStore(pool),
        metrics: ingestMetrics,
        clock: systemClock,
        log,
      }),
      blockLog: createBlockLog(kafka),
      clock: systemClock,
      log,
      metrics: ingestMetrics,
      settings: { leaseMs: LEASE_MS, holder: `tds-revert:${randomUUID().slice(0, 8)}` },
      requestRepairs: (finals) =>
        requestRepairs(pool, finals, `revert ${orphan.height} ${orphan.hash}`, {
          reread: true,
          replacesOrphan: true,
        }),
    },
    orphan,
  );
  const [first, last] = [heights[0], heights.at(-1)];
  if (first === undefined) return `Block ${orphan.height} ${orphan.hash} was reverted already.`;
  const which = first === last ? `block ${first}` : `${heights.length} blocks, ${first} to ${last}`;
  return `Reverted ${which}; the ingester will publish the canonical blocks at these heights.`;
}
