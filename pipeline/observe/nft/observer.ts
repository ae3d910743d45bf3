import PQueue from 'p-queue';

import type { Config } from '../../../infra/config.ts';
import type { Consumption, Kafka, LogBatch } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
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
import { createLruCache } from '../../../infra/lru.ts';
import { createLogReaderRetry, jsonOf, placeInLog } from '../../log-reading.ts';
import type { Node } from '../../node/types.ts';
import { createAlarms } from '../alarms.ts';
import type { ObserverMetrics } from '../metrics.ts';
import { readPosition } from '../positions.ts';
import type { Position } from '../positions.ts';
import type { ObserverRun } from '../tokens.ts';
import { startWorker } from '../worker.ts';
import { attemptNft } from './attempt.ts';
import { startCatchUp } from './catch-up.ts';
import type { MetadataFailure } from './failure.ts';
import { GATEWAY, createFetcher } from './fetch.ts';
import { createHosts } from './hosts.ts';
import { nftsOf } from './news.ts';
import { OBSERVER, createNftStore } from './store.ts';
import type { NftClaim, NftTask } from './store.ts';
import type { Spelling } from './token-uri.ts';

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
  /** To whatever host a contract names. */
  readonly egress: Egress;
  /** To the gateway of the settings. */
  readonly gatewayEgress: Egress;
  /** Of the served read model of metadata; null while there is none. */
  readonly schema: () => Promise<string | null>;
  /** NFTs that were transferred, in an order of their own. */
  readonly nftsAfter: (after: KnownNft | null, limit: number) => Promise<KnownNft[]>;
  readonly log: Logger;
  readonly observers: ObserverMetrics;
  readonly metrics: Registry;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Longest time between looks for what is due. */
  readonly pollMs?: number;
}

/** Compressed: what a fetch brings is held in memory tenfold. */
const FETCH_BYTES = 2_000_000;
/** Nobody waits so long: who still wants to know asks again. */
const PATIENCE_MS = 60_000;
/** The gateway has this share of all places. */
const GATEWAY_SHARE = 0.75;
/** So many calls in a row that failed are no accident. */
const GATEWAY_FAILURES = 20;
const ALARM = 'nft.gateway';

/**
 * Fetches the metadata of every NFT that the log tells a transfer of, of those that the API asks for, and of those that
 * nobody has tried, and publishes what came of each attempt. What failed is tried again with growing pauses, and after
 * the last attempt by nobody.
 */
export async function runNftObserver(options: NftObserverOptions): Promise<ObserverRun> {
  const { config, pool, kafka, log, now = Date.now } = options;
  const outcomes = new Counter({
    name: 'tds_nft_attempts_total',
    help: 'Attempts to fetch metadata of NFTs, by outcome: fetched, reverted, unavailable',
    labelNames: ['outcome'] as const,
    registers: [options.metrics],
  });
  const gatewayPlaces = Math.max(1, Math.floor(config.nftConcurrency * GATEWAY_SHARE));
  const hosts = createHosts((host) => (host === GATEWAY ? gatewayPlaces : config.nftHostConcurrency));
  const store = createNftStore(pool, options.schema, () => hosts.full());
  /** NFTs that are written down already, so that most blocks cost no more than moving the position. */
  const seen = createLruCache<string, true>(100_000);
  const topicIds = {
    [topics.chainBlocks.name]: await kafka.topicId(topics.chainBlocks),
    [topics.requests.name]: await kafka.topicId(topics.requests),
  };
  const publisher = kafka.publisher();
  const stopping = new AbortController();
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});

  const calls = new PQueue({ interval: 1000, intervalCap: config.nftCallsPerSecond });
  const node: Pick<Node, 'call'> = {
    call: (request, at, callOptions = {}) =>
      calls.add(
        () => options.node.call(request, at, callOptions),
        callOptions.signal === undefined ? {} : { signal: callOptions.signal },
      ),
  };

  const deps = {
    node,
    spellings: createLruCache<Felt, Spelling>(10_000),
    fetcher: createFetcher({
      egress: options.egress,
      gatewayEgress: options.gatewayEgress,
      gateway: config.ipfsGatewayUrl,
      timeoutMs: config.nftTimeoutMs,
    }),
    hosts,
    backoff: {
      baseMs: config.nftRetryBaseSeconds * 1000,
      mostMs: config.nftRetryMaxSeconds * 1000,
      attempts: config.nftAttempts,
    },
    now,
    onFound: store.found,
    onGateway: watchGateway(createAlarms(pool), log),
  };

  const worker = startWorker<NftMessage, NftClaim>(
    {
      observer: OBSERVER,
      attempts: store,
      concurrency: config.nftConcurrency,
      log,
      metrics: options.observers,
      now,
      ...(options.pollMs === undefined ? {} : { pollMs: options.pollMs }),
      observe: (_, task, signal) => attemptNft(deps, task, signal),
      async publish(subject, message) {
        await publisher.publish(topics.nft, [{ key: subject, value: message }]);
        const outcome = message.type === 'nft.metadata_fetched' ? 'fetched' : message.cause;
        outcomes.inc({ outcome });
      },
      readMessage: (written) => nftMessage.parse(written),
    },
    ending.reject,
  );
  const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, stopping.signal);

  async function onBlocks({ messages, partition }: LogBatch, position: Position): Promise<void> {
    const tasks = new Map<string, NftTask>();
    for (const { offset, value } of messages) {
      const found = nftsOf(value);
      // The projections halt at such a message and keep it; the observer has nothing to lose by it.
      if (found === null) log.warn({ partition, offset }, 'passed over a message that cannot be read');
      for (const task of found ?? []) {
        const key = nftKey(task);
        if (task.isMint !== true && (tasks.has(key) || seen.get(key) === true)) continue;
        tasks.set(key, task);
      }
    }
    const added = await retryWhileUnavailable(() => store.add([...tasks.values()], position, now()));
    for (const key of tasks.keys()) seen.set(key, true);
    if (added > 0) worker.wake();
  }

  async function onRequests({ messages, partition }: LogBatch, position: Position): Promise<void> {
    const asked = new Map<string, Nft>();
    for (const { value, timestamp, offset } of messages) {
      const { data: request } = requestsMessage.safeParse(jsonOf(value));
      if (request === undefined) log.warn({ partition, offset }, 'passed over a request that cannot be read');
      if (request?.type !== 'nft.metadata_requested' || now() - timestamp > PATIENCE_MS) continue;
      const nft = { token: request.token, tokenId: request.token_id };
      asked.set(nftKey(nft), nft);
    }
    await retryWhileUnavailable(() => store.ask([...asked.values()], position, now()));
    if (asked.size > 0) worker.wake();
  }

  const consume = async (
    topic: typeof topics.chainBlocks | typeof topics.requests,
    onBatch: (batch: LogBatch, position: Position) => Promise<void>,
  ): Promise<Consumption> => {
    const topicId = topicIds[topic.name] ?? '';
    const consumption: Consumption = await kafka.consume({
      groupId: `observe-${OBSERVER}-${topic.name}`,
      topics: [topic],
      async startAt(_, partition) {
        const place = { topic: topic.name, topicId, partition };
        const position = await retryWhileUnavailable(() => readPosition(pool, OBSERVER, place));
        return await placeInLog(kafka, topic, partition, position);
      },
      async onBatch(batch) {
        const { partition, messages } = batch;
        const nextOffset = (messages.at(-1)?.offset ?? -1) + 1;
        await onBatch(batch, { topic: topic.name, topicId, partition, nextOffset });
        consumption.commit(topic.name, partition, nextOffset).catch(() => {}); // for the display of lag alone
      },
      ...(topic === topics.chainBlocks ? { fetchBytes: FETCH_BYTES } : {}),
      onCrash: ending.reject,
    });
    return consumption;
  };
  const consumptions = await Promise.all([
    consume(topics.chainBlocks, onBlocks),
    consume(topics.requests, onRequests),
  ]);

  const catchUp = startCatchUp({
    pool,
    log,
    everyMs: config.nftCatchUpSeconds * 1000,
    nftsAfter: options.nftsAfter,
    async add(tasks) {
      const added = await store.add(tasks, null, now());
      if (added > 0) worker.wake();
      return added;
    },
    onFatal: ending.reject,
  });

  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      await Promise.all([...consumptions.map((one) => one.stop()), catchUp.stop()]);
      await worker.stop();
      await publisher.close();
      ending.resolve();
    })());
  options.signal?.addEventListener('abort', () => void stop().catch(ending.reject), { once: true });
  return { done: ending.promise, stop };
}

/** Raises an alarm once the gateway has failed for long, and takes it back when it answers. */
function watchGateway(
  alarms: ReturnType<typeof createAlarms>,
  log: Logger,
): (failure: MetadataFailure | null) => void {
  let failures = 0;
  const tell = (telling: Promise<void>): void =>
    void telling.catch((error: unknown) => log.warn({ err: error }, 'cannot tell of the gateway'));
  tell(alarms.clear([ALARM]));
  return (failure) => {
    const before = failures;
    failures = failure === null ? 0 : failures + 1;
    if (failures === GATEWAY_FAILURES && failure !== null)
      tell(alarms.raise(ALARM, `the last ${failures} calls failed: ${failure.message}`));
    if (failures === 0 && before >= GATEWAY_FAILURES) tell(alarms.clear([ALARM]));
  };
}
