import type { Config } from '../../infra/config.ts';
import { felt } from '../../schemas/messages/common.ts';
import { topics } from '../../schemas/topics.ts';
import type { Node } from '../node/types.ts';
import { readBlockContracts } from './block-contracts.ts';
import { paceCalls } from './calls.ts';
import type { ObserverMetrics } from './metrics.ts';
import { startObserver } from './observer.ts';
import type { ObserverOptions, ObserverRun } from './observer.ts';
import { createTaskStore } from './task-store.ts';
import type { Task } from './task-store.ts';
import { readTokenMetadata, tokenTask } from './token-metadata.ts';
import type { TokenTask } from './token-metadata.ts';
import { createTaskHandler, startWorker } from './worker.ts';

export interface TokenObserverOptions extends ObserverOptions {
  readonly config: Pick<Config, 'observerConcurrency' | 'observerCallsPerSecond'>;
  readonly node: Pick<Node, 'call'>;
  readonly metrics: ObserverMetrics;
}

const OBSERVER = 'tokens';

/** Compressed; a fetch takes about ten times as much memory. */
const FETCH_BYTES = 2_000_000;

/**
 * Publishes `token.described` with name, symbol and decimals of every contract in a block's `contracts` map, once per token
 * however often blocks are replayed. The consumer only stores tasks; a worker calls the node at its own pace.
 */
export async function runTokenObserver(options: TokenObserverOptions): Promise<ObserverRun> {
  const { config, metrics } = options;
  const { observerConcurrency: concurrency, observerCallsPerSecond: callsPerSecond } = config;
  return await startObserver(OBSERVER, options, async (observer) => {
    const store = createTaskStore(observer.pool, OBSERVER);
    const node = paceCalls(options.node, { callsPerSecond, concurrency });
    const worker = startWorker(observer, {
      store,
      topic: topics.tokens,
      concurrency,
      metrics,
      observe: (subject, task, signal) =>
        readTokenMetadata(node, felt.parse(subject), tokenTask.parse(task), observer.now, { signal }),
    });
    const storeTasks = createTaskHandler<Task>(observer, worker, {
      tasksOf,
      keyOf: ({ subject, facts }) => `${subject}:${facts}`,
      mayReset: ({ revision }) => revision > 0,
      add: (tasks, now) => store.add(tasks, now),
    });
    await observer.consume([topics.chainBlocks], storeTasks, { fetchBytes: FETCH_BYTES });
  });
}

function tasksOf(message: Buffer): Task[] | null {
  const block = readBlockContracts(message);
  if (block === null) return null;
  if (block.type !== 'block.accepted') return [];
  return Object.entries(block.contracts).map(([subject, facts]) => {
    const task: TokenTask = { ...facts, block: block.block.height };
    return { subject, task, facts: facts.standard, revision: block.cause === 'repair' ? block.seq : 0 };
  });
}
