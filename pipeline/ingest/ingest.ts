import { retry } from '../../infra/retry.ts';
import { isRetryable } from '../../schemas/errors.ts';
import { writeChunk } from './chunk-writer.ts';
import { codeOf, createHealth } from './health.ts';
import type { Health } from './health.ts';
import type { Chunk, IngestDeps } from './ports.ts';
import { LIVE } from '../../schemas/messages/chain-blocks.ts';
import { identifyChain, openChunks } from './start.ts';

export interface Ingester {
  /** Resolves when stopped; rejects if it cannot continue (another chain, or a bug at startup). */
  readonly done: Promise<void>;
  /** Resolves when the first attempt to start has ended; rejects if the ingester cannot continue. */
  readonly attempted: Promise<void>;
  stop(): Promise<void>;
}

/** Milliseconds between checks for chunks to write and for stalled ones. */
const TICK_MS = 1000;
const START_BACKOFF = { baseMs: TICK_MS, maxMs: 5000 };

/**
 * Runs the ingester of one process: identifies the chain, splits history into chunks, and keeps a writer on `live` and on
 * some backfill chunks. Any number of processes share the chunks through leases.
 */
export function startIngester(deps: IngestDeps, stopping?: AbortSignal): Ingester {
  const stopped = new AbortController();
  const signal = stopping === undefined ? stopped.signal : AbortSignal.any([stopped.signal, stopping]);
  const health = createHealth(deps);
  const attempted = Promise.withResolvers<void>();
  const run = async (): Promise<void> => {
    await startUp(deps, health, signal, attempted.resolve);
    attempted.resolve();
    await writeChunks(deps, health, signal);
  };
  const done = run();
  // Callers that need the error wait for `done` or `attempted`.
  done.catch(attempted.reject);
  attempted.promise.catch(() => {});
  return {
    done,
    attempted: attempted.promise,
    async stop() {
      stopped.abort();
      await done.catch(() => {});
    },
  };
}

async function startUp(
  deps: IngestDeps,
  health: Health,
  signal: AbortSignal,
  onFailure: () => void,
): Promise<void> {
  const { clock, log } = deps;
  health.watch('start');
  try {
    await retry(
      async (attempt) => {
        try {
          await health.check();
          await identifyChain(deps, signal);
          await openChunks(deps, signal);
        } catch (error) {
          // While a store is unavailable, an alarm may be stored late, after it was cleared; a long outage is a stall.
          const isStore = codeOf(error) === 'STORE_UNAVAILABLE';
          if (!signal.aborted && !isStore) await health.failed('start', error, attempt);
          throw error;
        }
      },
      {
        ...START_BACKOFF,
        // A node that refuses calls now, for example with HTTP 403, may accept them later.
        isRetryable: (error) => isRetryable(error) || codeOf(error).startsWith('NODE_'),
        signal,
        clock,
        onRetry: (error, { attempt }) => {
          log.warn({ err: error, attempt }, 'ingester start failed; retrying');
          onFailure();
        },
      },
    );
    await health.progress('start');
  } catch (error) {
    if (!signal.aborted) throw error;
    // Another process that still fails raises its alarm of failures again.
    await health.clearFinished(['start']);
    return;
  }
  health.unwatch('start');
}

/** Keeps writers running on the chunks this process can lease, until the signal aborts. */
async function writeChunks(deps: IngestDeps, health: Health, signal: AbortSignal): Promise<void> {
  const { store, clock, log, settings } = deps;
  const writers = new Map<string, Promise<void>>();
  const halted = new Set<string>();
  const isWrittenElsewhere = createWrittenElsewhere(settings.holder);
  /** Ends the wait between two ticks. */
  let wake = (): void => {};

  const run = async (name: string): Promise<void> => {
    try {
      const outcome = await writeChunk(deps, health, name, signal);
      if (outcome === 'halted') halted.add(name);
      if (outcome !== 'idle') wake();
    } catch (error) {
      log.warn({ chunk: name, err: error }, 'chunk writer failed');
    } finally {
      writers.delete(name);
    }
  };
  const startWriter = (name: string): void => void writers.set(name, run(name));

  /**
   * Starts writers for `live`, for the lowest open backfill chunks that no other process writes, and for finished chunks with
   * pending repairs.
   */
  const startWriters = async (): Promise<void> => {
    const chunks = (await store.chunks()).filter(({ name }) => !writers.has(name) && !halted.has(name));
    for (const { name } of chunks.filter(({ end }) => end === null)) startWriter(name);
    const backfill = chunks.filter((chunk) => chunk.end !== null && !chunk.finished);
    for (const { name } of backfill.filter((chunk) => !isWrittenElsewhere(chunk))) {
      const backfilling = [...writers.keys()].filter((other) => other !== LIVE).length;
      if (backfilling >= settings.backfillConcurrency) break;
      startWriter(name);
    }
    const finished = chunks.filter((chunk) => chunk.finished);
    await health.clearFinished(finished.map(({ name }) => name));
    const repairable = new Set(await store.finishedChunksToRepair());
    for (const { name } of finished) if (repairable.has(name)) startWriter(name);
  };

  while (!signal.aborted) {
    try {
      await startWriters();
    } catch (error) {
      log.warn({ err: error }, 'could not list chunks; retrying');
    }
    await health.check();
    const woken = new AbortController();
    wake = () => woken.abort();
    await clock.sleep(TICK_MS, AbortSignal.any([signal, woken.signal]));
  }
  await Promise.all(writers.values());
}

/**
 * Returns a check that is true while another process writes a chunk: its lease was acquired or renewed since the first check.
 * The lease of a process that crashed before then does not move, so a restarted process tries that chunk until the lease
 * expires, rather than one above it.
 */
function createWrittenElsewhere(holder: string): (chunk: Chunk) => boolean {
  /** By chunk, when its lease expires according to the first check. */
  const firstUntil = new Map<string, number | null>();
  return ({ name, lease }) => {
    const until = lease?.until ?? null;
    const first = firstUntil.get(name);
    if (first === undefined) firstUntil.set(name, until);
    return first !== undefined && lease !== null && lease.holder !== holder && lease.until !== first;
  };
}
