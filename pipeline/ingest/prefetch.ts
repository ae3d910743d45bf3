import { AppError } from '../../schemas/errors.ts';
import type { FetchedBlock } from '../node/types.ts';
import { resolveContracts } from './contract-facts.ts';
import type { IngestDeps, PublishedBlock } from './ports.ts';

/** A fetched block with its contracts map, ready to publish. */
export interface ReadyBlock extends PublishedBlock, Pick<FetchedBlock, 'status' | 'bytes'> {}

/** Blocks buffered or in flight, however small they are. */
const PREFETCH_BLOCKS = 2000;

/** Fetches the blocks of a chunk from a height on, several at a time, and resolves their contracts. */
export function createBlockPrefetch(
  deps: Pick<IngestDeps, 'node' | 'standards' | 'settings'>,
  from: number,
  options: { readonly priority: number; readonly finalOnly: boolean; readonly signal: AbortSignal },
): Prefetch<ReadyBlock> {
  const { node, settings } = deps;
  return createPrefetch<ReadyBlock>({
    from,
    concurrency: settings.prefetchConcurrency,
    maxBytes: settings.prefetchBytes,
    maxBlocks: PREFETCH_BLOCKS,
    fetch: async (height, closed) => {
      const { body, status, bytes } = await node.getBlockWithReceipts(height, {
        signal: AbortSignal.any([closed, options.signal]),
        priority: options.priority,
      });
      if (options.finalOnly && status !== 'ACCEPTED_ON_L1') throw notFinal(height);
      return { block: body, contracts: await resolveContracts(deps, body), status, bytes };
    },
  });
}

/** Another node behind the load balancer may be behind, or on a dead fork. */
function notFinal(height: number): AppError {
  return new AppError('NODE_INCONSISTENT', `the node does not show block ${height} as accepted on L1`, {
    retryable: true,
    details: { height },
  });
}

/** Blocks of one chunk, fetched ahead of their use and returned in order of height. */
export interface Prefetch<T extends { readonly bytes: number }> {
  /** Sets the highest height to fetch. */
  setEnd(height: number): void;
  /**
   * Returns the fetched blocks from the first unconsumed one on, without a gap; waits for `atLeast` of them (or for all up
   * to the end). Throws the error of a failed fetch; the next call fetches that block again.
   */
  peek(limit: { readonly atLeast: number; readonly blocks: number; readonly bytes: number }): Promise<T[]>;
  /** Drops the first `count` blocks. */
  consume(count: number): void;
  /** Drops everything and continues at a height, which may have been returned before. */
  restart(from: number): void;
  close(): void;
}

export interface PrefetchOptions<T> {
  readonly fetch: (height: number, signal: AbortSignal) => Promise<T>;
  readonly from: number;
  /** Concurrent requests. */
  readonly concurrency: number;
  /** Bytes of buffered answers; one block is always admitted. A request in flight counts as the mean block so far. */
  readonly maxBytes: number;
  /** Blocks buffered or in flight. */
  readonly maxBlocks: number;
}

interface Slot<T> {
  readonly arrival: Promise<void>;
  item: T | null;
  error: { readonly cause: unknown } | null;
}

/** Assumed size of a block before the first one has arrived. */
const INITIAL_BLOCK_BYTES = 100_000;

export function createPrefetch<T extends { readonly bytes: number }>(
  options: PrefetchOptions<T>,
): Prefetch<T> {
  const { fetch, concurrency, maxBytes, maxBlocks } = options;
  const slots = new Map<number, Slot<T>>();
  const closing = new AbortController();
  let base = options.from;
  let next = options.from;
  let end = options.from - 1;
  let inFlight = 0;
  let bufferedBytes = 0;
  let meanBytes = INITIAL_BLOCK_BYTES;

  const hasRoom = (): boolean =>
    slots.size === 0 ||
    (inFlight < concurrency &&
      slots.size < maxBlocks &&
      bufferedBytes + meanBytes * (inFlight + 1) <= maxBytes);

  const start = (height: number): Slot<T> => {
    inFlight += 1;
    const slot: Slot<T> = { arrival: arrive(), item: null, error: null };
    slots.set(height, slot);
    async function arrive(): Promise<void> {
      // `slot` is initialised after the first await.
      await Promise.resolve();
      try {
        const item = await fetch(height, closing.signal);
        meanBytes += (item.bytes - meanBytes) / 16;
        if (slots.get(height) !== slot) return;
        slot.item = item;
        bufferedBytes += item.bytes;
      } catch (cause) {
        slot.error = { cause };
      } finally {
        inFlight -= 1;
        pump();
      }
    }
    return slot;
  };

  const pump = (): void => {
    if (closing.signal.aborted) return;
    for (; next <= end && hasRoom(); next += 1) {
      if (!slots.has(next)) start(next);
    }
  };

  const drop = (height: number): void => {
    bufferedBytes -= slots.get(height)?.item?.bytes ?? 0;
    slots.delete(height);
  };

  return {
    setEnd(height) {
      end = height;
      pump();
    },
    async peek({ atLeast, blocks, bytes }) {
      pump();
      const items: T[] = [];
      let size = 0;
      for (let height = base; height <= end && items.length < blocks; height += 1) {
        const isRequired = items.length < atLeast;
        let slot = slots.get(height);
        if (slot === undefined) {
          if (!isRequired) break;
          // May exceed the limits: the caller requires this block.
          slot = start(height);
          next = Math.max(next, height + 1);
        }
        if (isRequired) await slot.arrival;
        if (slot.error !== null) {
          if (!isRequired) break;
          drop(height);
          next = Math.min(next, height);
          throw slot.error.cause;
        }
        if (slot.item === null) break;
        size += slot.item.bytes;
        if (!isRequired && size > bytes) break;
        items.push(slot.item);
      }
      return items;
    },
    consume(count) {
      for (const done = base + count; base < done; base += 1) drop(base);
      pump();
    },
    restart(from) {
      for (const height of slots.keys()) drop(height);
      base = from;
      next = from;
      pump();
    },
    close() {
      closing.abort();
      slots.clear();
    },
  };
}
