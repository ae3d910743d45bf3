import { createChainCheck } from '../../../pipeline/ingest/start.ts';
import { createIngestStore } from '../../../pipeline/ingest/store/store.ts';
import { createBackfillCheck } from '../../../pipeline/observe/backfill.ts';
import { isRebuilding } from '../../../projections/engine/builds.ts';
import { createBlockFeed } from '../../../pipeline/observe/block-feed.ts';
import { createObserverMetrics } from '../../../pipeline/observe/metrics.ts';
import { runTokenObserver } from '../../../pipeline/observe/tokens.ts';
import { startBalanceObserver } from './observe-balances.ts';
import { startNftObserver } from './observe-nfts.ts';
import { startPriceObservers } from './observe-prices.ts';
import { isPermanent } from '../process/run-process.ts';
import type { StartRole } from '../role.ts';
import { openClickHouse, openKafka, openNode, openPool } from '../connect.ts';

export const start: StartRole = async (context) => {
  const { config, log, metrics, releasers, signal, fail } = context;
  const kafka = openKafka(context, 'tds-observe');
  const pool = openPool(context, 'tds-observe', 8);
  const checkChain = createChainCheck(createIngestStore(pool));
  const node = openNode(context, metrics, {
    checkChain: async (chain) =>
      await checkChain(chain).catch((error: unknown) => {
        if (isPermanent(error)) fail(error);
        throw error;
      }),
  });
  const observers = createObserverMetrics(metrics);
  const isBackfilling = createBackfillCheck(pool, kafka, () => isRebuilding(pool));
  const blocks = createBlockFeed({ pool, kafka, log, signal, isBackfilling });
  const observer = await runTokenObserver({
    config,
    node,
    pool,
    kafka,
    log,
    blocks,
    isBackfilling,
    metrics: observers,
    signal,
  });
  observer.done.catch(fail);
  releasers.push('token observer', () => observer.stop());
  const clickhouse = openClickHouse(context, 'tds-observe');
  await startBalanceObserver(context, { kafka, pool, clickhouse, node });
  await startPriceObservers(context, { kafka, pool });
  await startNftObserver(context, { kafka, pool, clickhouse, node, blocks, isBackfilling, observers });
  const feed = await blocks.start();
  feed.done.catch(fail);
  releasers.push('block feed', () => feed.stop());
  return { url: null };
};
