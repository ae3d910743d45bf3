import { AppError, isRetryable } from '../../schemas/errors.ts';
import { runChunk } from './chunk-writer.ts';
import { createHealth } from './health.ts';
import { identifyChain } from './start.ts';
import { takeLease } from './lease.ts';
import { LIVE, planChunks } from './start.ts';
import type { IngestDeps } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';
import { createRepairer } from './repair/repairer.ts';

export interface Ingester {
  /** Ends when it is stopped; rejects when it must not go on (another chain, a bug in the start). */
  readonly done: Promise<void>;
  stop(): Promise<void>;
}

/** Pause between looks for chunks to take, and for stalls. */
const TICK_MS = 1000;
/** Repairs looked at in one tick for finished chunks that have one. */
const REPAIRS_LOOKED_AT = 1000;

/**
 * The ingester of one process. It makes sure of the chain, cuts history into chunks, and keeps a writer on `live` and on
 * some chunks of backfill: any number of processes share the chunks by their leases. Everything it needs is given to it.
 */
export function startIngester(deps: IngestDeps, stopping?: AbortSignal): Ingester {
  const { store, clock, log, settings } = deps;
  const health = createHealth(deps);
  const stopped = new AbortController();
  const signal = stopping === undefined ? stopped.signal : AbortSignal.any([stopped.signal, stopping]);
  /** Chunks this process writes, by name. */
  const writing = new Map<string, Promise<void>>();
  const halted = new Set<string>();
  /** Ends the pause between two ticks. */
  let wake = (): void => {};

  /** False when another process has the chunk. */
  const write = async (name: string): Promise<boolean> => {
    const lease = await takeLease(deps, name);
    if (lease === null) return false;
    const giveUp = (): void => lease.giveUp();
    signal.addEventListener('abort', giveUp, { once: true });
    try {
      if (signal.aborted) return false;
      if (lease.taken.finished) return (await createRepairer(deps, lease).run()) > 0;
      log.info({ chunk: name, epoch: lease.epoch, cursor: lease.taken.cursor }, 'writing chunk');
      health.watch(name, lease);
      if ((await runChunk(deps, health, lease)) === 'halted') halted.add(name);
      return true;
    } finally {
      signal.removeEventListener('abort', giveUp);
      health.unwatch(name);
      await lease.release();
    }
  };

  const begin = (name: string): void => {
    const run = async (): Promise<void> => {
      try {
        if (await write(name)) wake();
      } catch (error) {
        log.warn({ chunk: name, err: error }, 'chunk let go');
      } finally {
        writing.delete(name);
      }
    };
    writing.set(name, run());
  };

  /** Starts writers for what is not written yet: live, the lowest chunks of backfill, finished chunks with repairs to do. */
  const takeChunks = async (): Promise<void> => {
    const chunks = (await store.chunks()).filter(({ name }) => !writing.has(name) && !halted.has(name));
    for (const { name } of chunks.filter(({ end }) => end === null)) begin(name);
    const open = chunks.filter(({ end, finished }) => end !== null && !finished);
    for (const { name } of open) {
      if ([...writing.keys()].filter((other) => other !== LIVE).length >= settings.backfillConcurrency) break;
      begin(name);
    }
    const repairs = await store.pendingRepairs({ start: 0, end: null }, REPAIRS_LOOKED_AT);
    for (const { name, start, end } of chunks.filter(({ finished }) => finished)) {
      if (repairs.some(({ height }) => height >= start && height <= (end ?? height))) begin(name);
    }
  };

  const plan = async (): Promise<void> => {
    const { indexFrom, backfillChunkBlocks: chunkBlocks } = settings;
    const existing = await store.chunks();
    const l1 = existing.length > 0 ? null : await deps.node.l1Accepted(null, { signal });
    const missing = planChunks({ existing, indexFrom, l1, chunkBlocks });
    if (missing.length > 0 && !(await store.createChunks(missing))) return await plan();
    for (const { name, start, end, opened } of await store.chunks()) {
      if (opened) continue;
      await publishStatus(deps, [{ type: 'chunk.opened', ...statusStamp(clock), name, start, end }]);
      await store.markOpened(name);
    }
  };

  /** Asks until it is answered; `refused` errors end the ingester. */
  const untilDone = async (what: string, work: () => Promise<void>): Promise<void> => {
    for (let tries = 1; !signal.aborted; tries += 1) {
      try {
        await work();
        await health.progress(what);
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof AppError && error.code === 'CHAIN_MISMATCH')
          await health.alarm(what, error.message);
        if (!isRetryable(error)) throw error;
        log.warn({ err: error, tries }, `${what}: not yet`);
        await health.check();
        await clock.sleep(Math.min(TICK_MS * tries, 5000), signal);
      }
    }
  };

  const run = async (): Promise<void> => {
    health.watch('start');
    await untilDone('start', async () => {
      await identifyChain(deps, signal);
      await plan();
    });
    health.unwatch('start');
    while (!signal.aborted) {
      try {
        await takeChunks();
      } catch (error) {
        log.warn({ err: error }, 'chunks not looked for');
      }
      await health.check();
      const woken = new AbortController();
      wake = () => woken.abort();
      await clock.sleep(TICK_MS, AbortSignal.any([signal, woken.signal]));
    }
    await Promise.all(writing.values());
  };

  const done = run();
  // Whoever waits for `done` hears of it; nobody else need.
  done.catch(() => {});
  return {
    done,
    async stop() {
      stopped.abort();
      await done.catch(() => {});
    },
  };
}
