import type { LogBatch } from '../../infra/kafka/client.ts';
import { sleep } from '../../infra/lifecycle.ts';
import { topics } from '../../schemas/topics.ts';
import { pauseMs } from './backfill.ts';
import type { IsBackfilling } from './backfill.ts';
import { readBlockContracts } from './block-contracts.ts';
import type { BlockContracts } from './block-contracts.ts';
import { startObserver } from './observer.ts';
import type { Observer, ObserverOptions, ObserverRun } from './observer.ts';

/** An accepted block in the log. */
export interface LoggedBlock extends BlockContracts {
  readonly partition: number;
  readonly offset: number;
  /** The whole message. */
  readonly value: Buffer;
}

/** Idempotent: after a crash a block is handled again. */
export type BlockHandler = (blocks: readonly LoggedBlock[]) => Promise<void>;

/** Reads `chain.blocks` once for several observers. */
export interface BlockFeed {
  /** Adds a handler, before `start`. */
  subscribe(handle: BlockHandler): void;
  /** Milliseconds since a block at the end of the log was read; Infinity: none was. */
  sinceNewestMs(): number;
  /** Starts reading. Stop it before its observers. */
  start(): Promise<ObserverRun>;
}

/** The consumer's name, with its checkpoints, is that of the token observer, which once read alone. */
const NAME = 'tokens';
/**
 * Between two batches during a backfill. At least: so that a batch, its statements and its checkpoint cover many blocks. At
 * most: all partitions in turn stay well below STALL_SECONDS.
 */
const PAUSE_MS = { min: 500, max: 2000 };
/** Before a batch at the end of the log: while a new block is projected and read, the machine is left to that. */
const LATER_MS = 250;

export function createBlockFeed(
  options: ObserverOptions & { readonly isBackfilling: IsBackfilling },
): BlockFeed {
  const handlers: BlockHandler[] = [];
  let newestAt = -Infinity;
  const onNewest = (): void => void (newestAt = performance.now());
  return {
    subscribe: (handle) => void handlers.push(handle),
    sinceNewestMs: () => performance.now() - newestAt,
    start: () =>
      startObserver(NAME, options, (observer) =>
        observer.consume(
          [topics.chainBlocks],
          createBatchHandler(observer, { handlers, onNewest, isBackfilling: options.isBackfilling }),
        ),
      ),
  };
}

/** Returns a handler of batches that passes accepted blocks to every handler, and pauses during a backfill. */
export function createBatchHandler(
  { log, signal, retryWhileUnavailable }: Pick<Observer, 'log' | 'signal' | 'retryWhileUnavailable'>,
  {
    handlers,
    onNewest,
    isBackfilling,
  }: {
    readonly handlers: readonly BlockHandler[];
    /** Called when a batch at the end of the log comes. */
    readonly onNewest: () => void;
    readonly isBackfilling: IsBackfilling;
  },
): (batch: LogBatch) => Promise<void> {
  return async ({ partition, messages, highWatermark }) => {
    const isAtEnd = (messages.at(-1)?.offset ?? -1) + 1 >= highWatermark;
    if (isAtEnd) {
      onNewest();
      await sleep(LATER_MS, signal);
    }
    const began = performance.now();
    const blocks = messages.flatMap(({ offset, value }): LoggedBlock[] => {
      const block = readBlockContracts(value);
      // The projections halt at this message and report it.
      if (block === null) log.warn({ partition, offset }, 'invalid message skipped');
      return block?.type === 'block.accepted' ? [{ ...block, partition, offset, value }] : [];
    });
    await Promise.all(handlers.map((handle) => handle(blocks)));
    if (!(await retryWhileUnavailable(isBackfilling))) return;
    await sleep(pauseMs(performance.now() - began, PAUSE_MS), signal);
  };
}
