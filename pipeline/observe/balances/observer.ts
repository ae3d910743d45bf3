import PQueue from 'p-queue';

import type { Config } from '../../../infra/config.ts';
import type { Consumption, Kafka, LogBatch } from '../../../infra/kafka/client.ts';
import { pause } from '../../../infra/lifecycle.ts';
import type { Logger } from '../../../infra/log.ts';
import { Counter, Gauge } from '../../../infra/metrics.ts';
import type { Registry } from '../../../infra/metrics.ts';
import { isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import type { Felt } from '../../../schemas/felt.ts';
import type { BalancesMessage } from '../../../schemas/messages/balances.ts';
import { requestsMessage } from '../../../schemas/messages/requests.ts';
import { storable } from '../../../schemas/text.ts';
import { topics } from '../../../schemas/topics.ts';
import { createLruCache } from '../../../infra/lru.ts';
import type { Node } from '../../node/types.ts';
import { createLogReaderRetry, jsonOf, placeInLog } from '../../log-reading.ts';
import { movePosition, readPosition } from '../positions.ts';
import type { ObserverRun } from '../tokens.ts';
import { createPending, keyOf } from './pending.ts';
import type { Wanted } from './pending.ts';
import { readBalances } from './read.ts';
import type { BalanceReading, EntryPoint } from './read.ts';

export interface BalanceObserverOptions {
  readonly config: Pick<Config, 'observerCallsPerSecond'>;
  readonly node: Pick<Node, 'callMany'>;
  readonly pool: Pool;
  readonly kafka: Kafka;
  /** The newest block that is indexed; null before the first. Balances are read at it, so that deltas can follow them. */
  readonly newestBlock: () => Promise<{ readonly height: number; readonly hash: Felt } | null>;
  /** The height accepted on L1, as far as the log has told; null: not yet. */
  readonly l1Height: () => Promise<number | null>;
  readonly log: Logger;
  readonly metrics: Registry;
  readonly signal?: AbortSignal;
  /** Unix milliseconds. */
  readonly now?: () => number;
  /** Longest time between looks for pairs that are due again. */
  readonly pollMs?: number;
}

const OBSERVER = 'balances';

/** Pairs of one request to the node, and requests side by side. */
const BATCH_PAIRS = 50;
const SIDE_BY_SIDE = 4;
/** One request to the node, its repeats included; then another is made, at a newer block. */
const READ_MS = 15_000;
/** Nobody waits so long: who still wants to know asks again. */
const PATIENCE_MS = 60_000;
const RETRY_MS = 1000;
/** Who asks for a pair within so long of its reading gets that one, at the block that still is the newest. */
const WINDOW_MS = 1000;

/**
 * Reads balances from the chain when the log asks for them, and publishes `balance.observed`. A read is at a block's
 * hash, many pairs in one request to the node, and answers all who asked before it began.
 */
export async function runBalanceObserver(options: BalanceObserverOptions): Promise<ObserverRun> {
  const { config, node, pool, kafka, log, now = Date.now, pollMs = 250 } = options;
  const topic = topics.requests;
  const counts = createBalanceMetrics(options.metrics);
  const pending = createPending({
    patienceMs: PATIENCE_MS,
    onGivenUp: () => counts.reads.inc({ outcome: 'given_up' }),
  });
  const names = createLruCache<Felt, EntryPoint>(10_000);
  const read = createLruCache<string, { readonly at: number; readonly message: BalancesMessage }>(10_000);
  const topicId = await kafka.topicId(topic);
  const publisher = kafka.publisher();
  const stopping = new AbortController();
  const { signal } = stopping;
  const running = new Set<Promise<void>>();
  let waiting = new AbortController();
  let consumption: Consumption | null = null;
  const ending = Promise.withResolvers<void>();
  ending.promise.catch(() => {});

  // Each call of a batch counts: providers count them so.
  const pace = new PQueue({ interval: 1000, intervalCap: config.observerCallsPerSecond });
  const pacedNode: Pick<Node, 'callMany'> = {
    async callMany(requests, at, callOptions) {
      await Promise.all(requests.map(() => pace.add(async () => {})));
      return await node.callMany(requests, at, callOptions);
    },
  };

  const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, signal);

  async function startAt(partition: number): Promise<number | 'beginning'> {
    const place = { topic: topic.name, topicId, partition };
    // Requests are kept for a day: a position that is older is no loss.
    return await placeInLog(
      kafka,
      topic,
      partition,
      await retryWhileUnavailable(() => readPosition(pool, OBSERVER, place)),
    );
  }

  async function onBatch({ partition, messages }: LogBatch): Promise<void> {
    for (const { value, timestamp, offset } of messages) {
      const { data: request } = requestsMessage.safeParse(jsonOf(value));
      if (request === undefined) log.warn({ partition, offset }, 'passed over a request that cannot be read');
      if (request?.type !== 'balance.requested' || now() - timestamp > PATIENCE_MS) continue;
      const { account, token, requested_at } = request;
      pending.add({ account, token, requestedAt: requested_at }, now());
    }
    waiting.abort();
    const nextOffset = (messages.at(-1)?.offset ?? -1) + 1;
    const position = { topic: topic.name, topicId, partition, nextOffset };
    await retryWhileUnavailable(() => movePosition(pool, OBSERVER, position));
    consumption?.commit(topic.name, partition, nextOffset).catch(() => {}); // for the display of lag alone
  }

  /** What was read of these pairs, and what is to be tried again. */
  async function observe(batch: readonly Wanted[]): Promise<{ messages: BalancesMessage[]; left: Wanted[] }> {
    const [block, l1Height] = await Promise.all([options.newestBlock(), options.l1Height()]);
    if (block === null) return { messages: [], left: [...batch] };
    const known = (wanted: Wanted): BalancesMessage | null => {
      const last = read.get(keyOf(wanted));
      const isNew =
        last !== undefined && now() - last.at < WINDOW_MS && last.message.block_hash === block.hash;
      return isNew ? { ...last.message, requested_at: wanted.requestedAt } : null;
    };
    const again = batch.flatMap((wanted) => known(wanted) ?? []);
    const fresh = batch.filter((wanted) => known(wanted) === null);
    if (fresh.length === 0) return { messages: again, left: [] };
    const at = now();
    const readings = await readBalances(pacedNode, fresh, { hash: block.hash }, names, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(READ_MS)]),
    });
    const messages = [...again];
    const left: Wanted[] = [];
    for (const [i, wanted] of fresh.entries()) {
      const reading = readings[i];
      counts.reads.inc({ outcome: reading?.kind ?? 'unanswered' });
      const message = reading === undefined ? null : messageOf(wanted, reading, block, l1Height, at);
      if (message === null) {
        left.push(wanted);
        continue;
      }
      read.set(keyOf(wanted), { at, message });
      messages.push(message);
    }
    return { messages, left };
  }

  async function work(batch: readonly Wanted[]): Promise<void> {
    let left: readonly Wanted[] = batch;
    try {
      const observed = await observe(batch);
      const messages = observed.messages.map((value) => ({ key: keyOf(value), value }));
      if (messages.length > 0) await publisher.publish(topics.balances, messages);
      left = observed.left;
    } catch (error) {
      // An error that does not call itself passing is worth an operator's look; it is tried again all the same.
      const what = { err: error, observer: OBSERVER, pairs: batch.length };
      const isPassing = isRetryable(error) || isPostgresUnavailable(error) || signal.aborted;
      log[isPassing ? 'warn' : 'error'](what, 'balances were not read; trying again');
      counts.reads.inc({ outcome: 'failed' }, batch.length);
    }
    const failed = new Set(left);
    for (const wanted of batch) pending.end(wanted, failed.has(wanted) ? now() + RETRY_MS : null);
  }

  const looping = (async () => {
    while (!signal.aborted) {
      waiting = new AbortController();
      while (running.size < SIDE_BY_SIDE) {
        const batch = pending.take(BATCH_PAIRS, now());
        if (batch.length === 0) break;
        const run = work(batch).finally(() => {
          running.delete(run);
          waiting.abort();
        });
        running.add(run);
      }
      counts.waiting.set(pending.size());
      await pause(pollMs, waiting.signal);
    }
  })();
  looping.catch(ending.reject);

  consumption = await kafka.consume({
    groupId: `observe-${OBSERVER}`,
    topics: [topic],
    startAt: (_, partition) => startAt(partition),
    onBatch,
    onCrash: ending.reject,
  });

  let stopped: Promise<void> | null = null;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      stopping.abort();
      waiting.abort();
      await consumption?.stop();
      await looping.catch(() => {});
      await Promise.all(running);
      await publisher.close();
      ending.resolve();
    })());
  options.signal?.addEventListener('abort', () => void stop().catch(ending.reject), { once: true });
  return { done: ending.promise, stop };
}

/** null where the chain did not answer. */
function messageOf(
  { account, token, requestedAt }: Wanted,
  reading: BalanceReading,
  block: { readonly height: number; readonly hash: Felt },
  l1Height: number | null,
  at: number,
): BalancesMessage | null {
  const read = {
    v: 1 as const,
    account,
    token,
    block: block.height,
    block_hash: block.hash,
    observed_at: at,
    requested_at: requestedAt,
    l1_height: l1Height,
  };
  switch (reading.kind) {
    case 'balance':
      return { type: 'balance.observed', ...read, balance: reading.balance.toString() };
    case 'refused':
      return { type: 'balance.refused', ...read, reason: storable(reading.reason) };
    case 'unanswered':
      return null;
  }
}

function createBalanceMetrics(registry: Registry) {
  return {
    reads: new Counter({
      name: 'tds_balance_reads_total',
      help: 'Balances asked of the chain, by what came of it',
      labelNames: ['outcome'],
      registers: [registry],
    }),
    waiting: new Gauge({
      name: 'tds_balance_reads_waiting',
      help: 'Pairs that are to be read, or are being read',
      registers: [registry],
    }),
  };
}
