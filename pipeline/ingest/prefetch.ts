import { AppError } from '../../schemas/errors.ts';
import type { ContractsMap } from '../../schemas/messages/chain-blocks.ts';
import type { FetchedBlock } from '../node/types.ts';
import type { IngestDeps, PublishedBlock } from './ports.ts';
import { resolveContracts } from './publish.ts';

/** A block as it was fetched, with what its contracts are: ready to be published. */
export interface ReadyBlock extends PublishedBlock, Pick<FetchedBlock, 'status' | 'bytes'> {
  readonly contracts: ContractsMap;
}

/** Blocks held or in flight, however small they are. */
const PREFETCH_BLOCKS = 2000;

/** The blocks of a chunk from a height on, whole, with their contracts looked up, several at a time. */
export function createPrefetch(
  deps: Pick<IngestDeps, 'node' | 'standards' | 'settings'>,
  from: number,
  options: { readonly priority: number; readonly finalOnly: boolean; readonly signal: AbortSignal },
): Source<ReadyBlock> {
  const { node, settings } = deps;
  return createSource<ReadyBlock>({
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

/** A range that is final is only taken from a node that knows it to be final: another one may be on a dead fork. */
function notFinal(height: number): AppError {
  return new AppError('NODE_INCONSISTENT', `block ${height} is not accepted on L1, as this node sees it`, {
    retryable: true,
    details: { height },
  });
}

/** What the source knows of what it fetches: its size. */
interface Sized {
  readonly bytes: number;
}

/** Blocks of one chunk, fetched ahead of their use, handed out in the order of heights. */
export interface Source<T extends Sized> {
  /** Nothing is asked for above it. */
  setEnd(height: number): void;
  /**
   * The blocks from the first one not consumed, as many as have arrived without a gap; waits for `atLeast` of them (or
   * for all up to the end). Throws what fetching one of those threw; that one is fetched anew at the next look.
   */
  peek(limit: { readonly atLeast: number; readonly blocks: number; readonly bytes: number }): Promise<T[]>;
  /** The first `count` blocks are done with. */
  consume(count: number): void;
  /** Forgets what was fetched and goes on at a height, which may have been handed out before. */
  restart(from: number): void;
  close(): void;
}

export interface SourceOptions<T extends Sized> {
  readonly fetch: (height: number, signal: AbortSignal) => Promise<T>;
  readonly from: number;
  /** Requests in flight. */
  readonly concurrency: number;
  /** Bytes of answers held; one block is always let through. Requests in flight count as the mean block so far. */
  readonly maxBytes: number;
  /** Blocks held or in flight. */
  readonly maxBlocks: number;
}

interface Slot<T> {
  readonly arrival: Promise<void>;
  item: T | null;
  error: { readonly cause: unknown } | null;
}

const FIRST_GUESS_BYTES = 100_000;

export function createSource<T extends Sized>(options: SourceOptions<T>): Source<T> {
  const { fetch, concurrency, maxBytes, maxBlocks } = options;
  const slots = new Map<number, Slot<T>>();
  const closing = new AbortController();
  let base = options.from;
  let next = options.from;
  let end = options.from - 1;
  let inFlight = 0;
  let heldBytes = 0;
  let meanBytes = FIRST_GUESS_BYTES;

  const hasRoom = (): boolean =>
    slots.size === 0 ||
    (inFlight < concurrency && slots.size < maxBlocks && heldBytes + meanBytes * (inFlight + 1) <= maxBytes);

  const start = (height: number): void => {
    inFlight += 1;
    const slot: Slot<T> = { arrival: arrive(), item: null, error: null };
    slots.set(height, slot);
    async function arrive(): Promise<void> {
      // Begins after `slot` is in its place.
      await Promise.resolve();
      try {
        const item = await fetch(height, closing.signal);
        meanBytes += (item.bytes - meanBytes) / 16;
        if (slots.get(height) !== slot) return;
        slot.item = item;
        heldBytes += item.bytes;
      } catch (cause) {
        slot.error = { cause };
      } finally {
        inFlight -= 1;
        pump();
      }
    }
  };

  const pump = (): void => {
    if (closing.signal.aborted) return;
    for (; next <= end && hasRoom(); next += 1) {
      if (!slots.has(next)) start(next);
    }
  };

  const drop = (height: number): void => {
    const slot = slots.get(height);
    if (slot === undefined) return;
    heldBytes -= slot.item?.bytes ?? 0;
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
        let slot = slots.get(height);
        if (slot === undefined) {
          // No room ahead: what has arrived must do, but the least that was asked for is fetched all the same.
          if (items.length >= atLeast) break;
          start(height);
          next = Math.max(next, height + 1);
          slot = slots.get(height);
          if (slot === undefined) break;
        }
        if (items.length < atLeast) await slot.arrival;
        if (slot.error !== null) {
          if (items.length >= atLeast) break;
          drop(height);
          next = Math.min(next, height);
          throw slot.error.cause;
        }
        if (slot.item === null) break;
        size += slot.item.bytes;
        if (items.length >= atLeast && size > bytes) break;
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
