import type { Config } from '../../../infra/config.ts';
import type { Kafka, LogBatch } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { createLruCache } from '../../../infra/lru.ts';
import { Counter } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { Nft } from '../../../projections/nft-metadata/queries.ts';
import { nftKey } from '../../../projections/nft-metadata/queries.ts';
import type { KnownNft } from '../../../projections/nft-transfers/queries.ts';
import type { Felt } from '../../../schemas/felt.ts';
import { nftMessage } from '../../../schemas/messages/nft.ts';
import type { NftMessage } from '../../../schemas/messages/nft.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Egress } from '../../egress/egress.ts';
import { createLogReaderRetry, jsonOf } from '../../log-reading.ts';
import type { Node } from '../../node/types.ts';
import { createAlarms } from '../alarms.ts';
import { paceCalls } from '../calls.ts';
import { consumeTopics } from '../consume.ts';
import { startObserver } from '../loops.ts';
import type { ObserverRun } from '../loops.ts';
import type { ObserverMetrics } from '../metrics.ts';
import { startWorker } from '../worker.ts';
import { attemptNft } from './attempt.ts';
import type { AttemptDeps } from './attempt.ts';
import { startCatchUp } from './catch-up.ts';
import { GATEWAY, createFetcher } from './fetch.ts';
import { createGatewayAlarm } from './gateway-alarm.ts';
import { createHostSlots } from './host-slots.ts';
import { OBSERVER, createNftStore } from './store.ts';
import type { NftClaim, NftTask } from './store.ts';
import type { CallForm } from './token-uri.ts';
import { transferredNfts } from './transferred.ts';

export interface NftObserverOptions {
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
  readonly pool: Pool;
  readonly kafka: Kafka;
  /** For the hosts that contracts name. */
  readonly egress: Egress;
  /** For the configured gateway. */
  readonly gatewayEgress: Egress;
  /** Schema of the served read model of metadata; null while none is served. */
  readonly schema: () => Promise<string | null>;
  /** A page of all transferred NFTs, in a stable order, after `after`. */
  readonly nftsAfter: (after: KnownNft | null, limit: number) => Promise<KnownNft[]>;
  readonly log: Logger;
  readonly observers: ObserverMetrics;
  readonly metrics: Registry;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Upper bound of the delay until a due task is noticed. */
  readonly pollMs?: number;
}

/** Compressed; a fetch takes about ten times as much memory. */
const FETCH_BYTES = 2_000_000;
/** The API stops waiting long before; a client repeats its request. */
const REQUEST_TTL_MS = 60_000;
/** Share of all download slots that the gateway may take. */
const GATEWAY_SHARE = 0.75;

/**
 * Publishes the outcome of every attempt to fetch NFT metadata: of NFTs transferred in the log, requested by clients, or
 * found without a task. Failed attempts are repeated with a growing delay, up to `NFT_ATTEMPTS`.
 */
export async function runNftObserver(options: NftObserverOptions): Promise<ObserverRun> {
  const { config, pool, kafka, log, now = Date.now } = options;
  return await startObserver(options.signal, async (context) => {
    const { signal, releasers, fail } = context;
    const gatewaySlots = Math.max(1, Math.floor(config.nftConcurrency * GATEWAY_SHARE));
    const hosts = createHostSlots((host) => (host === GATEWAY ? gatewaySlots : config.nftHostConcurrency));
    const store = createNftStore(pool, options.schema, () => hosts.full());
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const outcomes = new Counter({
      name: 'tds_nft_attempts_total',
      help: 'Attempts to fetch NFT metadata, by outcome: fetched, reverted or unavailable',
      labelNames: ['outcome'] as const,
      registers: [options.metrics],
    });
    const deps: AttemptDeps = {
      node: paceCalls(options.node, { callsPerSecond: config.nftCallsPerSecond }),
      callForms: createLruCache<Felt, CallForm>(10_000),
      fetcher: createFetcher({
        egress: options.egress,
        gatewayEgress: options.gatewayEgress,
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
      onLocated: (task, host) => store.setHost(task, host),
      onGatewayResult: createGatewayAlarm(createAlarms(pool), log),
    };
    const worker = startWorker<NftMessage, NftClaim>(
      {
        observer: OBSERVER,
        store,
        concurrency: config.nftConcurrency,
        log,
        metrics: options.observers,
        now,
        ...(options.pollMs === undefined ? {} : { pollMs: options.pollMs }),
        observe: (_, task, taskSignal) => attemptNft(deps, task, taskSignal),
        async publish(subject, message) {
          await publisher.publish(topics.nft, [{ key: subject, value: message }]);
          outcomes.inc({ outcome: message.type === 'nft.metadata_fetched' ? 'fetched' : message.cause });
        },
        parseMessage: (stored) => nftMessage.parse(stored),
      },
      fail,
    );
    releasers.push('worker', () => worker.stop());
    const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, signal);
    /** NFTs whose task is stored, so that most blocks cost no write but the checkpoint. */
    const stored = createLruCache<string, true>(100_000);

    async function handleBlocks({ messages, partition }: LogBatch): Promise<void> {
      const tasks = new Map<string, NftTask>();
      for (const { offset, value } of messages) {
        const nfts = transferredNfts(value);
        // The projections halt at this message and report it.
        if (nfts === null) log.warn({ partition, offset }, 'invalid message skipped');
        for (const task of nfts ?? []) {
          const key = nftKey(task);
          if (task.isMint !== true && (tasks.has(key) || stored.get(key) === true)) continue;
          tasks.set(key, task);
        }
      }
      const added = await retryWhileUnavailable(() => store.add([...tasks.values()], now()));
      for (const key of tasks.keys()) stored.set(key, true);
      if (added > 0) worker.wake();
    }

    async function handleRequests({ messages, partition }: LogBatch): Promise<void> {
      const requested = new Map<string, Nft>();
      for (const { value, timestamp, offset } of messages) {
        const { data: request } = requestsMessage.safeParse(jsonOf(value));
        if (request === undefined) log.warn({ partition, offset }, 'invalid message skipped');
        if (request?.type !== 'nft.metadata_requested' || now() - timestamp > REQUEST_TTL_MS) continue;
        const nft = { token: request.token, tokenId: request.token_id };
        requested.set(nftKey(nft), nft);
      }
      if (requested.size === 0) return;
      await retryWhileUnavailable(() => store.request([...requested.values()], now()));
      worker.wake();
    }

    const consumer = { kafka, pool, log, observer: OBSERVER, retryWhileUnavailable };
    await consumeTopics(
      {
        ...consumer,
        groupId: `observe-${OBSERVER}-${topics.chainBlocks.name}`,
        topics: [topics.chainBlocks],
        fetchBytes: FETCH_BYTES,
        handle: handleBlocks,
      },
      context,
    );
    await consumeTopics(
      {
        ...consumer,
        groupId: `observe-${OBSERVER}-${topics.requests.name}`,
        topics: [topics.requests],
        handle: handleRequests,
      },
      context,
    );

    const catchUp = startCatchUp({
      pool,
      log,
      everyMs: config.nftCatchUpSeconds * 1000,
      nftsAfter: options.nftsAfter,
      async add(tasks) {
        const added = await store.add(tasks, now());
        if (added > 0) worker.wake();
        return added;
      },
      onFatal: fail,
    });
    releasers.push('catch-up', () => catchUp.stop());
  });
}
