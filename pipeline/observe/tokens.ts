import type { Config } from '../../infra/config.ts';
import type { Kafka, LogBatch } from '../../infra/kafka/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { felt } from '../../schemas/messages/common.ts';
import { tokensMessage } from '../../schemas/messages/tokens.ts';
import type { TokensMessage } from '../../schemas/messages/tokens.ts';
import { topics } from '../../schemas/topics.ts';
import { createLruCache } from '../../infra/lru.ts';
import { createLogReaderRetry } from '../log-reading.ts';
import type { Node } from '../node/types.ts';
import { readBlockContracts } from './block-contracts.ts';
import type { BlockContracts } from './block-contracts.ts';
import { paceCalls } from './calls.ts';
import { consumeTopics } from './consume.ts';
import { startObserver } from './loops.ts';
import type { ObserverRun } from './loops.ts';
import type { ObserverMetrics } from './metrics.ts';
import { createTaskStore } from './task-store.ts';
import type { Task } from './task-store.ts';
import { readTokenMetadata, tokenTask } from './token-metadata.ts';
import type { TokenTask } from './token-metadata.ts';
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

const OBSERVER = 'tokens';

/** Compressed; a fetch takes about ten times as much memory. */
const FETCH_BYTES = 2_000_000;

/**
 * Publishes `token.described` with name, symbol and decimals of every contract in a block's `contracts` map, once per token
 * however often blocks are replayed. The consumer only stores tasks; a worker calls the node at its own pace.
 */
export async function runTokenObserver(options: TokenObserverOptions): Promise<ObserverRun> {
  const { config, pool, kafka, log, metrics, now = Date.now } = options;
  return await startObserver(options.signal, async (context) => {
    const { releasers, fail } = context;
    const store = createTaskStore(pool, OBSERVER);
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const node = paceCalls(options.node, {
      callsPerSecond: config.observerCallsPerSecond,
      concurrency: config.observerConcurrency,
    });
    const worker = startWorker<TokensMessage>(
      {
        observer: OBSERVER,
        store,
        concurrency: config.observerConcurrency,
        log,
        metrics,
        now,
        ...(options.pollMs === undefined ? {} : { pollMs: options.pollMs }),
        observe: (subject, task, taskSignal) =>
          readTokenMetadata(node, felt.parse(subject), tokenTask.parse(task), now, { signal: taskSignal }),
        publish: async (token, message) => {
          await publisher.publish(topics.tokens, [{ key: token, value: message }]);
        },
        parseMessage: (stored) => tokensMessage.parse(stored),
      },
      fail,
    );
    releasers.push('worker', () => worker.stop());

    /** Tokens whose task is stored, so that most blocks cost no write but the checkpoint. */
    const stored = createLruCache<string, true>(100_000);
    const retryWhileUnavailable = createLogReaderRetry(OBSERVER, log, context.signal);

    async function handle({ partition, messages }: LogBatch): Promise<void> {
      const tasks = new Map<string, Task>();
      for (const { offset, value } of messages) {
        const block = readBlockContracts(value);
        // The projections halt at this message and report it.
        if (block === null) log.warn({ partition, offset }, 'invalid message skipped');
        for (const task of block === null ? [] : tasksOf(block)) {
          const key = `${task.subject}:${task.facts}`;
          if (stored.get(key) === true && task.revision === 0) continue;
          if (task.revision > (tasks.get(task.subject)?.revision ?? -1)) tasks.set(task.subject, task);
        }
      }
      const added = await retryWhileUnavailable(() => store.add([...tasks.values()], now()));
      for (const { subject, facts } of tasks.values()) stored.set(`${subject}:${facts}`, true);
      if (added > 0) worker.wake();
    }

    await consumeTopics(
      {
        kafka,
        pool,
        log,
        observer: OBSERVER,
        topics: [topics.chainBlocks],
        fetchBytes: FETCH_BYTES,
        handle,
        retryWhileUnavailable,
      },
      context,
    );
  });
}

function tasksOf({ type, seq, cause, block, contracts }: BlockContracts): Task[] {
  if (type !== 'block.accepted') return [];
  return Object.entries(contracts).map(([subject, facts]) => {
    const task: TokenTask = { ...facts, block: block.height };
    return { subject, task, facts: facts.standard, revision: cause === 'repair' ? seq : 0 };
  });
}
