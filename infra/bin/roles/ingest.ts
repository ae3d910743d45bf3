import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { withBlockChecks } from '../../../pipeline/ingest/block-checks.ts';
import { createCommitmentChecks } from '../../../pipeline/ingest/commitments.ts';
import { createCommitmentStore } from '../../../pipeline/ingest/store/commitments.ts';
import { startIngester } from '../../../pipeline/ingest/ingest.ts';
import { headSubscriptions } from '../../../pipeline/node/head-subscription.ts';
import { LEASE_MS } from '../../../pipeline/ingest/lease.ts';
import { createIngestMetrics } from '../../../pipeline/ingest/metrics.ts';
import { createStandards } from '../../../pipeline/ingest/contracts/standards.ts';
import { createBlockLog } from '../../../pipeline/ingest/reconcile/block-log.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { topics } from '../../../schemas/topics.ts';
import { systemClock } from '../../clock.ts';
import { startCommitmentThread } from '../../commitment-thread.ts';
import { blockReaders } from './block-reader.ts';
import type { StartRole } from '../role.ts';
import { openClickHouse, openKafka, openNode, openPool } from '../connect.ts';

/** How long a node that does not answer delays the role, in milliseconds. */
const FIRST_ATTEMPT_MS = 2000;

export const start: StartRole = async (context) => {
  const { config, log, metrics, releasers, signal, fail } = context;
  const kafka = openKafka(context, 'tds-ingest');
  const pool = openPool(context, 'tds-ingest', 8);
  const clickhouse = openClickHouse(context, 'tds-ingest');
  const node = openNode(context, metrics);
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  // A publisher connects with its first message: a wrong log-in is reported now.
  await kafka.topicId(topics.chainBlocks);
  const ingestMetrics = createIngestMetrics(metrics);
  const checks = createCommitmentChecks({
    store: createCommitmentStore(pool),
    metrics: ingestMetrics,
    clock: systemClock,
    log,
  });
  releasers.push('commitment checks', () => checks.flush());
  const thread = startCommitmentThread();
  releasers.push('commitment thread', () => thread.close());
  const ingester = startIngester(
    {
      node: withBlockChecks({
        node,
        checks,
        mode: config.verifyEvents,
        incomplete: config.verifyIncomplete,
        compute: thread.compute,
        clock: systemClock,
        log,
      }),
      subscribeToHeads: config.starknetWsUrl === null ? null : headSubscriptions(config.starknetWsUrl, log),
      store: createIngestStore(pool),
      publisher,
      checks,
      standards: createStandards({ node, pool, log }),
      createBlockReader: blockReaders({ pool, clickhouse, kafka }),
      blockLog: createBlockLog(kafka),
      clock: systemClock,
      log,
      metrics: ingestMetrics,
      settings: {
        indexFrom: config.indexFrom,
        backfillChunkBlocks: config.backfillChunkBlocks,
        backfillConcurrency: config.backfillConcurrency,
        prefetchBytes: config.prefetchBytes,
        prefetchConcurrency: config.rpcConcurrency,
        headPollMs: config.headPollMs,
        l1PollMs: config.l1PollSeconds * 1000,
        stallMs: config.stallSeconds * 1000,
        headStallMs: config.headStallSeconds * 1000,
        leaseMs: LEASE_MS,
        holder: `${hostname()}:${process.pid}:${randomUUID().slice(0, 8)}`,
      },
    },
    signal,
  );
  releasers.push('ingester', () => ingester.stop());
  // A role of another chain fails before it says that it is ready.
  await Promise.race([ingester.attempted, systemClock.sleep(FIRST_ATTEMPT_MS, signal)]);
  ingester.done.catch(fail);
  return { url: null };
};
