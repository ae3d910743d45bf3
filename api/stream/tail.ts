import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Logger } from '../../infra/log.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { startLoop, withRest } from '../../infra/loop.ts';
import { createYielding } from '../../infra/yielding.ts';
import { chunkRows, finalHeight } from '../../projections/chain-status/queries.ts';
import { newestLinked } from '../../projections/indexed-blocks/queries.ts';
import type { LinkedBlock } from '../../projections/indexed-blocks/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { unavailable } from '../http/errors.ts';
import { readAhead, withAllTransfers } from './blocks.ts';
import type { StreamedBlock } from './blocks.ts';
import { findUndo } from './undo.ts';
import type { BlockPoint, Undo } from './undo.ts';

/** The newest end of the index at one moment. */
export interface TailView {
  /** Counts the views. */
  readonly version: number;
  /** `finalHeight`, read before the blocks. */
  readonly l1Height: number | null;
  /** The lowest height of the index, whether or not it is indexed yet; null: nothing is to be indexed yet. */
  readonly first: number | null;
  /** The newest block and those before it, lowest first, each the parent of the next. */
  readonly blocks: readonly TailBlock[];
}

export interface TailBlock {
  readonly block: LinkedBlock;
  /** With all transfers of the block; null: not read. */
  readonly whole: StreamedBlock | null;
}

/** The one reader of the newest blocks, shared by all streams of the process. */
export interface Tail {
  /** Reads while at least one stream has joined. Returns how to leave. */
  join(): () => void;
  /**
   * The newest view, the first one as soon as it is read.
   *
   * @throws 503 if none can be read
   */
  view(): Promise<TailView>;
  /** Resolves when there is a view after this version, or after `ms`, or when the signal fires. */
  changed(version: number, ms: number, signal: AbortSignal): Promise<void>;
  /** The newest view; null: none is read yet. */
  newest(): TailView | null;
  /** `findUndo` of the newest view. */
  undoOf(newest: BlockPoint): Promise<Undo | 'unknown' | null>;
  /** Notifies that the index may have changed. */
  notify(): void;
  close(): Promise<void>;
}

export interface TailDeps {
  readonly clickhouse: ClickHouse;
  readonly pool: Sql;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly log: Logger;
}

/** Blocks in a view. */
const BLOCKS = 64;
/** Transfers that a view holds, some kB each; of a burst of blocks with more, each stream reads its own. */
export const TRANSFERS = 20_000;
/** Heights whose transfers are read before it is known whether blocks are there. */
const AHEAD = 4;
/** A notification may be lost. */
const POLL_MS = 1000;
/** For the first view. */
const VIEW_MS = 5000;

export function createTail(deps: TailDeps): Tail {
  const stop = new AbortController();
  let streams = 0;
  let isNotified = false;
  let current: TailView | null = null;
  /** The view that was read last: `current`, unless an undo has shown that it is outdated. */
  let latest: TailView | null = null;
  let version = 0;
  let outdated = 0;
  const undos = createUndos(deps, (undo) => {
    if (current === null || !hasUndone(current, undo)) return;
    current = null;
    outdated += 1;
    reading.wake();
  });
  const waiting = createWaiting();

  const refresh = async (): Promise<void> => {
    const wasNotified = isNotified;
    isNotified = false;
    const outdatedBefore = outdated;
    const next = await readView(deps, latest, wasNotified);
    // It may have been read before the undo.
    if (outdated !== outdatedBefore) return;
    if (current !== null && isSame(current, next)) return;
    version += 1;
    latest = current = { version, ...next };
    undos.clear();
    void waiting.resumeAll();
  };
  const readAgain = async (): Promise<void> => {
    if (streams === 0) return;
    await refresh().catch((error: unknown) => deps.log.debug({ err: error }, 'could not read the tail'));
  };
  const reading = startLoop({ round: withRest(readAgain, POLL_MS) });

  const changed: Tail['changed'] = async (since, ms, signal) => {
    if (signal.aborted || (current !== null && current.version > since)) return;
    await waiting.wait(ms, signal);
  };

  return {
    join() {
      streams += 1;
      if (streams === 1) {
        // The last one may be old.
        latest = current = null;
        reading.wake();
      }
      let hasLeft = false;
      return () => {
        if (!hasLeft) streams -= 1;
        hasLeft = true;
      };
    },
    async view() {
      const deadline = performance.now() + VIEW_MS;
      while (current === null) {
        if (performance.now() >= deadline) throw unavailable('unavailable', 'The index cannot be read.', 2);
        await changed(0, POLL_MS, stop.signal);
        stop.signal.throwIfAborted();
      }
      return current;
    },
    newest: () => current,
    changed,
    undoOf: (newest) => undos.of(newest, latest?.first ?? 0),
    notify() {
      isNotified = true;
      reading.wake();
    },
    async close() {
      stop.abort();
      await reading.stop();
    },
  };
}

/** Each undo is found once for all streams. */
function createUndos({ servedBuilds, clickhouse }: TailDeps, onFound: (undo: Undo) => void) {
  let undos = new Map<string, ReturnType<Tail['undoOf']>>();
  return {
    clear: (): void => void (undos = new Map()),
    of(newest: BlockPoint, first: number): ReturnType<Tail['undoOf']> {
      const known = undos;
      const key = `${newest.height} ${newest.hash}`;
      const earlier = known.get(key);
      if (earlier !== undefined) return earlier;
      const find = async (): ReturnType<Tail['undoOf']> => {
        const undo = await findUndo(clickhouse, await servedBuilds(), newest, first);
        if (undo !== null && undo !== 'unknown') onFound(undo);
        return undo;
      };
      const found = find();
      known.set(key, found);
      const forget = (): boolean => known.delete(key);
      found.then((undo) => (undo === null || undo === 'unknown' ? forget() : null), forget);
      return found;
    },
  };
}

/** Streams that wait for the next view. */
function createWaiting() {
  const waiting = new Set<() => void>();
  return {
    wait: (ms: number, signal: AbortSignal): Promise<void> =>
      new Promise((resolve) => {
        const resume = (): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', resume);
          waiting.delete(resume);
          resolve();
        };
        const timer = setTimeout(resume, ms);
        signal.addEventListener('abort', resume, { once: true });
        waiting.add(resume);
      }),
    /** A few at a time: what the first streams write is sent before the last ones read. */
    async resumeAll(): Promise<void> {
      const yielding = createYielding();
      // A copy: streams that wait again meanwhile are not resumed twice.
      const streams = [...waiting];
      for (const resume of streams) {
        resume();
        await yielding();
      }
    },
  };
}

/** @param isNewer the index has changed since: the next transfers are read beside the blocks, not after them */
async function readView(
  deps: TailDeps,
  before: TailView | null,
  isNewer: boolean,
): Promise<Omit<TailView, 'version'>> {
  const { clickhouse, pool, servedBuilds } = deps;
  const served = await servedBuilds();
  const schema = served.schema('chain-status');
  const l1Height = await finalHeight(pool, schema);
  const head = before?.blocks.at(-1)?.block.height;
  const [chunks, blocks, ahead] = await Promise.all([
    chunkRows(pool, schema),
    newestLinked(clickhouse, served, BLOCKS),
    isNewer && head !== undefined
      ? readAhead({ clickhouse, served }, { from: head + 1, to: head + AHEAD }, TRANSFERS)
      : null,
  ]);
  const known = new Map((before?.blocks ?? []).map((one) => [`${one.block.hash} ${one.block.seq}`, one]));
  const isKnown = (block: LinkedBlock): TailBlock | undefined => known.get(`${block.hash} ${block.seq}`);
  const firstNew = before === null ? -1 : blocks.findIndex((block) => isKnown(block) === undefined);
  const fresh = firstNew < 0 ? [] : blocks.slice(firstNew);
  const isBurst = fresh.reduce((sum, { transfers }) => sum + transfers, 0) > TRANSFERS;
  const whole = isBurst ? [] : await withAllTransfers({ clickhouse, pool, served }, fresh, ahead);
  const read = new Map(whole.map((one) => [one.block.hash, one]));
  const all = blocks.map((block): TailBlock => ({
    block,
    whole: isKnown(block)?.whole ?? read.get(block.hash) ?? null,
  }));
  // Blocks whose transfers cannot be read yet are left to the next view.
  const isShort = !isBurst && whole.length < fresh.length;
  return {
    l1Height,
    first: chunks[0]?.start ?? null,
    blocks: bounded(isShort ? all.slice(0, firstNew + whole.length) : all),
  };
}

/** Drops the transfers of the oldest blocks above the bound. */
function bounded(blocks: readonly TailBlock[]): TailBlock[] {
  let transfers = 0;
  return blocks
    .toReversed()
    .map(({ block, whole }) => {
      transfers += whole?.transfers.length ?? 0;
      return { block, whole: transfers > TRANSFERS ? null : whole };
    })
    .toReversed();
}

/** Whether a view was read before blocks of it were reverted. */
function hasUndone({ blocks }: TailView, { hashes, seq }: Undo): boolean {
  const gone = new Set(hashes);
  // A block that is there again since has a newer version.
  return blocks.some(({ block }) => gone.has(block.hash) && block.seq < seq);
}

function isSame(a: TailView, b: Omit<TailView, 'version'>): boolean {
  const [x, y] = [a.blocks.at(-1)?.block, b.blocks.at(-1)?.block];
  return (
    a.l1Height === b.l1Height &&
    a.first === b.first &&
    a.blocks.length === b.blocks.length &&
    x?.hash === y?.hash &&
    x?.seq === y?.seq
  );
}
