import type { Config } from '../../../infra/config.ts';
import { createLruCache } from '../../../infra/lru.ts';
import { metricsIn } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { nftKey } from '../../../projections/nft-metadata/queries.ts';
import type { KnownNft } from '../../../projections/nft-transfers/queries.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Egress } from '../../egress/egress.ts';
import type { Loop } from '../../../infra/loop.ts';
import type { Node } from '../../node/types.ts';
import { createAlarms } from '../../../infra/health/alarms.ts';
import type { IsBackfilling } from '../backfill.ts';
import type { BlockFeed } from '../block-feed.ts';
import { paceCalls } from '../calls.ts';
import type { ObserverMetrics } from '../metrics.ts';
import { createTaskPace } from '../pace.ts';
import { readRequests, startObserver } from '../observer.ts';
import type { Observer, ObserverOptions, ObserverRun } from '../observer.ts';
import { createTaskHandler, startWorker } from '../worker.ts';
import { attemptNft } from './attempt.ts';
import type { AttemptDeps } from './attempt.ts';
import { startCatchUp } from './catch-up.ts';
import { GATEWAY, createFetcher } from './fetch.ts';
import { createGatewayAlarm } from './gateway-alarm.ts';
import { createHostSlots } from './host-slots.ts';
import { OBSERVER, createNftStore } from './store.ts';
import type { NftStore, NftTask } from './store.ts';
import type { CallForm } from './token-uri.ts';
import { transferredNfts } from './transferred.ts';

export interface NftObserverOptions extends ObserverOptions {
  readonly config: Pick<
    Config,
    | 'ipfsGatewayUrl'
    | 'nftRetryBaseSeconds'
    | 'nftRetryMaxSeconds'
    | 'nftAttempts'
    | 'nftTimeoutMs'
    | 'nftConcurrency'
    | 'nftHostConcurrency'
    | 'nftCallsPerSecond'
    | 'nftCatchUpSeconds'
  >;
  readonly node: Pick<Node, 'call'>;
  readonly blocks: Pick<BlockFeed, 'subscribe' | 'sinceNewestMs'>;
  readonly isBackfilling: IsBackfilling;
  /** For the hosts that contracts name. */
  readonly egress: Egress;
  /** For the configured gateway. */
  readonly gatewayEgress: Egress;
  /** Schema of the served read model of metadata; null while none is served. */
  readonly schema: () => Promise<string | null>;
  /** A page of all transferred NFTs, in a stable order, after `after`. */
  readonly nftsAfter: (after: KnownNft | null, limit: number) => Promise<KnownNft[]>;
  readonly observers: ObserverMetrics;
  readonly metrics: Registry;
}

/** Share of all download slots that the gateway may take. */
const GATEWAY_SHARE = 0.75;

/**
 * Publishes the outcome of every attempt to fetch NFT metadata: of NFTs transferred in the log, requested by clients, or
 * found without a task. Failed attempts are repeated with a growing delay, up to `NFT_ATTEMPTS`.
 */
export async function runNftObserver(options: NftObserverOptions): Promise<ObserverRun> {
  const { config, blocks, nftsAfter } = options;
  return await startObserver(OBSERVER, options, async (observer) => {
    const { pool, now } = observer;
    const gatewaySlots = Math.max(1, Math.floor(config.nftConcurrency * GATEWAY_SHARE));
    const hosts = createHostSlots((host) => (host === GATEWAY ? gatewaySlots : config.nftHostConcurrency));
    const store = createNftStore(pool, options.schema, () => hosts.full(), config.nftRetryMaxSeconds * 1000);
    const worker = startNftWorker(observer, options, store, hosts);
    const add = (tasks: readonly NftTask[]): Promise<number> => store.add(tasks, now());

    blocks.subscribe(
      createTaskHandler<NftTask>(observer, worker, {
        tasksOf: transferredNfts,
        keyOf: nftKey,
        mayReset: ({ isMint }) => isMint === true,
        add,
      }),
    );
    await observer.consume(
      [topics.requests],
      async (batch) => {
        const requests = readRequests(observer, batch, 'nft.metadata_requested').map(
          ({ token, token_id: tokenId, caller }) => ({ token, tokenId, caller }),
        );
        store.request(requests, now());
        if (requests.length > 0) worker.wake();
      },
      { groupId: `observe-${OBSERVER}-${topics.requests.name}` },
    );
    startCatchUp(observer, {
      everyMs: config.nftCatchUpSeconds * 1000,
      nftsAfter,
      async add(tasks) {
        const added = await add(tasks);
        if (added > 0) worker.wake();
        return added;
      },
    });
  });
}

function startNftWorker(
  observer: Observer,
  { config, node, blocks, isBackfilling, egress, gatewayEgress, metrics, observers }: NftObserverOptions,
  store: NftStore,
  hosts: AttemptDeps['hosts'],
): Loop {
  const { pool, log, now } = observer;
  const outcomes = metricsIn(metrics).counter(
    'tds_nft_attempts_total',
    'Attempts to fetch NFT metadata, by outcome: fetched, reverted or unavailable',
    ['outcome'],
  );
  const gatewayAlarm = createGatewayAlarm(createAlarms(pool), log);
  observer.releasers.push('gateway alarm', () => gatewayAlarm.stop());
  const deps: AttemptDeps = {
    node: paceCalls(node, { callsPerSecond: config.nftCallsPerSecond }),
    callForms: createLruCache<Felt, CallForm>(10_000),
    fetcher: createFetcher({
      egress,
      gatewayEgress,
      gateway: config.ipfsGatewayUrl,
      timeoutMs: config.nftTimeoutMs,
    }),
    hosts,
    retrySchedule: {
      baseMs: config.nftRetryBaseSeconds * 1000,
      maxMs: config.nftRetryMaxSeconds * 1000,
      attempts: config.nftAttempts,
    },
    now,
    onNoMetadata: (task, host) => store.setHost(task, host),
    onGatewayResult: (failure) => gatewayAlarm.report(failure),
  };
  return startWorker(observer, {
    store,
    topic: topics.nft,
    concurrency: config.nftConcurrency,
    metrics: observers,
    isBackfilling,
    pace: createTaskPace(blocks),
    observe: (_, task, signal) => attemptNft(deps, task, signal),
    onPublished: (message) =>
      outcomes.inc({ outcome: message.type === 'nft.metadata_fetched' ? 'fetched' : message.cause }),
  });
}
