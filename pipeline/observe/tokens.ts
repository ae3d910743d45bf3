import type { Config } from '../../infra/config.ts';
import { felt } from '../../schemas/messages/common.ts';
import { topics } from '../../schemas/topics.ts';
import type { Node } from '../node/types.ts';
import type { IsBackfilling } from './backfill.ts';
import type { BlockFeed, LoggedBlock } from './block-feed.ts';
import { paceCalls } from './calls.ts';
import type { ObserverMetrics } from './metrics.ts';
import { startObserver } from './observer.ts';
import type { ObserverOptions, ObserverRun } from './observer.ts';
import { createTaskPace } from './pace.ts';
import { createTaskStore } from './task-store.ts';
import type { Task } from './task-store.ts';
import { readTokenMetadata, tokenTask } from './token-metadata.ts';
import type { TokenTask } from './token-metadata.ts';
import { createTaskHandler, startWorker } from './worker.ts';

export interface TokenObserverOptions extends ObserverOptions {
  readonly config: Pick<Config, 'observerConcurrency' | 'observerCallsPerSecond'>;
  readonly node: Pick<Node, 'call'>;
  readonly blocks: Pick<BlockFeed, 'subscribe' | 'sinceNewestMs'>;
  readonly isBackfilling: IsBackfilling;
  readonly metrics: ObserverMetrics;
}

const OBSERVER = 'tokens';

/**
 * Publishes `token.described` with name, symbol and decimals of every contract in a block's `contracts` map, once per token
 * however often blocks are replayed. Blocks only lead to stored tasks; a worker calls the node at its own pace.
 */
export async function runTokenObserver(options: TokenObserverOptions): Promise<ObserverRun> {
  const { config, metrics, blocks, isBackfilling } = options;
  const { observerConcurrency: concurrency, observerCallsPerSecond: callsPerSecond } = config;
  return await startObserver(OBSERVER, options, (observer) => {
    const store = createTaskStore(observer.pool, OBSERVER);
    const node = paceCalls(options.node, { callsPerSecond, concurrency });
    const worker = startWorker(observer, {
      store,
      topic: topics.tokens,
      concurrency,
      metrics,
      isBackfilling,
      pace: createTaskPace(blocks),
      observe: (subject, task, signal, failures) => {
        const about = { task: tokenTask.parse(task), failures, now: observer.now };
        return readTokenMetadata(node, felt.parse(subject), about, { signal });
      },
    });
    const storeTasks = createTaskHandler<Task>(observer, worker, {
      tasksOf,
      keyOf: ({ subject, facts, revision }) => `${subject}:${facts}:${revision}`,
      mayReset: ({ revision }) => revision > 0,
      add: (tasks, now) => store.add(tasks, now),
    });
    blocks.subscribe(storeTasks);
  });
}

function tasksOf({ seq, cause, block, contracts }: LoggedBlock): Task[] {
  return Object.entries(contracts).map(([subject, facts]) => {
    const isRepair = cause === 'repair';
    const task: TokenTask = { ...facts, block: block.height, ...(isRepair && { cause }) };
    return { subject, task, facts: facts.standard, revision: isRepair ? seq : 0 };
  });
}
