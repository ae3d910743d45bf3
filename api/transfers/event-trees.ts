import { setImmediate } from 'node:timers/promises';

import type { BlockEvents } from '../../projections/block-events/queries.ts';
import { hashEvents } from '../../schemas/commitment/events.ts';
import type { HashedTransaction } from '../../schemas/commitment/events.ts';
import type { Tree } from '../../schemas/commitment/tree.ts';

/** Longest work between two turns of the event loop: an event takes some 60 µs, and a block has up to thousands. */
const SLICE_MS = 5;
/** Of all trees that are kept together; some 570 bytes each. */
const MAX_EVENTS = 30_000;

export interface EventTrees {
  /** The tree of a block's events; rejects when the signal is aborted. */
  of(
    block: Pick<BlockEvents, 'hash' | 'version'>,
    transactions: readonly HashedTransaction[],
    signal: AbortSignal,
  ): Promise<Tree>;
}

/** Hashes the events of blocks without holding up other requests, and keeps the last trees. */
export function createEventTrees({ maxEvents = MAX_EVENTS } = {}): EventTrees {
  // In the order of their last use.
  const kept = new Map<string, Tree>();
  const keep = (key: string, tree: Tree): void => {
    kept.delete(key);
    kept.set(key, tree);
    let events = [...kept.values()].reduce((sum, one) => sum + one.leaves, 0);
    for (const [oldest, one] of kept) {
      if (events <= maxEvents) break;
      kept.delete(oldest);
      events -= one.leaves;
    }
  };
  return {
    async of({ hash, version }, transactions, signal) {
      const key = `${hash} ${version}`;
      const tree = kept.get(key) ?? (await build(transactions, signal));
      keep(key, tree);
      return tree;
    },
  };
}

async function build(transactions: readonly HashedTransaction[], signal: AbortSignal): Promise<Tree> {
  const work = hashEvents(transactions);
  let sliceEnd = performance.now() + SLICE_MS;
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    if (performance.now() < sliceEnd) continue;
    await setImmediate();
    signal.throwIfAborted();
    sliceEnd = performance.now() + SLICE_MS;
  }
}
