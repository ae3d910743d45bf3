import { AppError } from '../../schemas/errors.ts';
import { isRpcError, rpcCodes } from '../node/errors.ts';
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
  return new Prefetch<ReadyBlock>({
    from,
    concurrency: settings.prefetchConcurrency,
    maxBytes: settings.prefetchBytes,
    maxBlocks: PREFETCH_BLOCKS,
    fetch: async (height, closed) => {
      const { finalOnly, signal, priority } = options;
      const { body, status, bytes } = await node
        .getBlockWithReceipts(height, { signal: AbortSignal.any([closed, signal]), priority })
        .catch((error: unknown) => {
          throw finalOnly && isRpcError(error, rpcCodes.blockNotFound) ? notFinal(height) : error;
        });
      if (finalOnly && status !== 'ACCEPTED_ON_L1') throw notFinal(height);
      return { block: body, contracts: await resolveContracts(deps, body, { priority }), status, bytes };
    },
  });
}

/** Another node behind the load balancer may be behind, or on a dead fork. */
function notFinal(height: number): AppError {
  return new AppError(
    'NODE_INCONSISTENT',
    `the node lacks block ${height}, or does not show it as accepted on L1`,
    {
      retryable: true,
      details: { height },
    },
  );
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
  arrival: Promise<void>;
  item: T | null;
  error: { readonly cause: unknown } | null;
}

/** Assumed size of a block before the first one has arrived. */
const INITIAL_BLOCK_BYTES = 100_000;

/** Blocks of one chunk, fetched ahead of their use and returned in order of height. */
export class Prefetch<T extends { readonly bytes: number }> {
  readonly #options: PrefetchOptions<T>;
  readonly #slots = new Map<number, Slot<T>>();
  readonly #closing = new AbortController();
  /** The first unconsumed height, the next to fetch, and the last. */
  #base: number;
  #next: number;
  #end: number;
  #inFlight = 0;
  #bufferedBytes = 0;
  #meanBytes = INITIAL_BLOCK_BYTES;

  constructor(options: PrefetchOptions<T>) {
    this.#options = options;
    this.#base = options.from;
    this.#next = options.from;
    this.#end = options.from - 1;
  }

  /** Sets the highest height to fetch. */
  setEnd(height: number): void {
    this.#end = height;
    this.#pump();
  }

  /**
   * Returns the fetched blocks from the first unconsumed one on, without a gap; waits for `atLeast` of them (or for all up
   * to the end). Throws the error of a failed fetch; the next call fetches that block again.
   */
  async peek(limit: {
    readonly atLeast: number;
    readonly blocks: number;
    readonly bytes: number;
  }): Promise<T[]> {
    this.#pump();
    const items: T[] = [];
    let size = 0;
    for (let height = this.#base; height <= this.#end && items.length < limit.blocks; height += 1) {
      const isRequired = items.length < limit.atLeast;
      const item = isRequired ? await this.#required(height) : this.#slots.get(height)?.item;
      if (item === undefined || item === null) break;
      size += item.bytes;
      if (!isRequired && size > limit.bytes) break;
      items.push(item);
    }
    return items;
  }

  /** Waits for a block, which may exceed the limits of what is fetched ahead; null if it was dropped meanwhile. */
  async #required(height: number): Promise<T | null> {
    const slot = this.#slots.get(height) ?? this.#start(height);
    await slot.arrival;
    if (slot.error === null) return slot.item;
    this.#drop(height);
    this.#next = Math.min(this.#next, height);
    throw slot.error.cause;
  }

  /** Drops the first `count` blocks. */
  consume(count: number): void {
    for (const done = this.#base + count; this.#base < done; this.#base += 1) this.#drop(this.#base);
    // A failed block has moved it back.
    this.#next = Math.max(this.#next, this.#base);
    this.#pump();
  }

  /** Drops everything and continues at a height, which may have been returned before. */
  restart(from: number): void {
    for (const height of this.#slots.keys()) this.#drop(height);
    this.#base = from;
    this.#next = from;
    this.#pump();
  }

  close(): void {
    this.#closing.abort();
    this.#slots.clear();
  }

  #hasRoom(): boolean {
    const { concurrency, maxBlocks, maxBytes } = this.#options;
    return (
      this.#slots.size === 0 ||
      (this.#inFlight < concurrency &&
        this.#slots.size < maxBlocks &&
        this.#bufferedBytes + this.#meanBytes * (this.#inFlight + 1) <= maxBytes)
    );
  }

  #pump(): void {
    if (this.#closing.signal.aborted) return;
    for (; this.#next <= this.#end && this.#hasRoom(); this.#next += 1) {
      if (!this.#slots.has(this.#next)) this.#start(this.#next);
    }
  }

  #start(height: number): Slot<T> {
    this.#inFlight += 1;
    const slot: Slot<T> = { arrival: Promise.resolve(), item: null, error: null };
    this.#slots.set(height, slot);
    slot.arrival = this.#fetch(height, slot);
    return slot;
  }

  async #fetch(height: number, slot: Slot<T>): Promise<void> {
    try {
      const item = await this.#options.fetch(height, this.#closing.signal);
      this.#meanBytes += (item.bytes - this.#meanBytes) / 16;
      if (this.#slots.get(height) !== slot) return;
      slot.item = item;
      this.#bufferedBytes += item.bytes;
    } catch (cause) {
      slot.error = { cause };
    } finally {
      this.#inFlight -= 1;
      this.#pump();
    }
  }

  #drop(height: number): void {
    this.#bufferedBytes -= this.#slots.get(height)?.item?.bytes ?? 0;
    this.#slots.delete(height);
  }
}
