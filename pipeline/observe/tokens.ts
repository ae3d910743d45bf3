import PQueue from 'p-queue';

import type { Config } from '../../infra/config.ts';
import type { Consumption, Kafka, LogBatch } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { felt } from '../../schemas/messages/common.ts';
import { tokensMessage } from '../../schemas/messages/tokens.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { topics } from '../../schemas/topics.ts';
import { createLruCache } from '../../infra/lru.ts';
import type { Node } from '../node/types.ts';
import { createAttempts } from './attempts.ts';
import type { Task } from './attempts.ts';
import { readBlockNews } from './block-news.ts';
import type { BlockNews } from './block-news.ts';
import { describeToken, tokenTask } from './describe.ts';
import type { TokenTask } from './describe.ts';
import { createLogReaderRetry, placeInLog } from '../log-reading.ts';
import type { ObserverMetrics } from './metrics.ts';
import { readPosition } from './positions.ts';
import { startWorker } from './worker.ts';

export interface TokenObserverOptions {
  readonly config: Pick<Config, 'observerConcurrency' | 'observerCallsPerSecond'>;
  readonly node: Pick<Node, 'call'>;
  readonly pool: Pool;
  readonly kafka: Kafka;
  readonly log: Logger;
  readonly metrics: ObserverMetrics;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  readonly pollMs?: number;
}

export interface ObserverRun {
  /** Rejects when the run cannot go on. */
  readonly done: Promise<void>;
  stop(): Promise<void>;
}

const OBSERVER = 'tokens';

/** Compressed: what a fetch brings is held in memory tenfold. */
const FETCH_BYTES = 2_000_000;

/**
 * Describes every contract that a block's `contracts` map names: reads name, symbol and decimals from the chain and
 * publishes `token.described`, once a token however often its blocks are replayed. Reading the log only writes tasks
 * down; a worker does them at the pace of the node.
 */
export async function runTokenObserver(options: TokenObserverOptions): Promise<ObserverRun> {
  const { config, node, pool, kafka, log, metrics, now = Date.now } = options;
  const topic = topics.chainBlocks;
  const attempts = createAttempts(pool, OBSERVER);
  /** Tokens with facts that are written down already, so that most blocks cost no more than moving the position. */
  const seen = createLruCache<string, true>(100_000);
  const topicId = await kafka.topicId(topic);
  const publisher = kafka.publisher();
  const stopping = new AbortController();
  let consumption: Consumption | null = null;
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});

  const calls = new PQueue({
    concurrency: config.observerConcurrency,
    interval: 1000,
    intervalCap: config.observerCallsPerSecond,
  });
  const pacedNode: Pick<Node, 'call'> = {
    call: (request, at, callOptions = {}) =>
      calls.add(
        () => node.call(request, at, callOptions),
        callOptions.signal === undefined ? {} : { signal: callOptions.signal },
      ),
  };

  const worker = startWorker<TokensMessage>(
    {
      observer: OBSERVER,
      attempts,
      concurrency: config.observerConcurrency,
      log,
      metrics,
      now,
      ...(options.pollMs === undefined ? {} : { pollMs: options.pollMs }),
      observe: (subject, task, signal) =>
        describeToken(pacedNode, felt.parse(subject), tokenTask.parse(task), now, { signal }),
      publish: async (token, message) => {
        await publisher.publish(topics.tokens, [{ key: token, value: message }]);
      },
      readMessage: (written) => tokensMessage.parse(written),
    },
    ending.reject,
  );

  const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, stopping.signal);

  async function startAt(partition: number): Promise<number | 'beginning'> {
    const place = { topic: topic.name, topicId, partition };
    const position = await retryWhileUnavailable(() => readPosition(pool, OBSERVER, place));
    const begin = await placeInLog(kafka, topic, partition, position);
    if (position !== null && begin === 'beginning')
      log.warn({ partition, position }, 'the position lies outside the log; reading from its beginning');
    return begin;
  }

  async function onBatch({ partition, messages }: LogBatch): Promise<void> {
    const tasks = new Map<string, Task>();
    for (const { offset, value } of messages) {
      const news = readBlockNews(value);
      // The projections halt at such a message and keep it; the observer has nothing to lose by it.
      if (news === null) log.warn({ partition, offset }, 'passed over a message that cannot be read');
      for (const task of news === null ? [] : tasksOf(news)) {
        const key = `${task.subject}:${task.facts}`;
        if (seen.get(key) === true && task.revision === 0) continue;
        if (task.revision > (tasks.get(task.subject)?.revision ?? -1)) tasks.set(task.subject, task);
      }
    }
    const nextOffset = (messages.at(-1)?.offset ?? -1) + 1;
    const added = await retryWhileUnavailable(() =>
      attempts.add([...tasks.values()], { topic: topic.name, topicId, partition, nextOffset }, now()),
    );
    for (const { subject, facts } of tasks.values()) seen.set(`${subject}:${facts}`, true);
    if (added > 0) worker.wake();
    consumption?.commit(topic.name, partition, nextOffset).catch(() => {}); // for the display of lag alone
  }

  consumption = await kafka.consume({
    groupId: `observe-${OBSERVER}`,
    topics: [topic],
    startAt: (_, partition) => startAt(partition),
    onBatch,
    fetchBytes: FETCH_BYTES,
    onCrash: ending.reject,
  });

  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      await consumption?.stop();
      await worker.stop();
      await publisher.close();
      ending.resolve();
    })());
  options.signal?.addEventListener('abort', () => void stop().catch(ending.reject), { once: true });
  return { done: ending.promise, stop };
}

function tasksOf({ type, seq, cause, block, contracts }: BlockNews): Task[] {
  if (type !== 'block.accepted') return [];
  return Object.entries(contracts).map(([subject, facts]) => {
    const task: TokenTask = { ...facts, block: block.height };
    return { subject, task, facts: facts.standard, revision: cause === 'repair' ? seq : 0 };
  });
}
