import { AppError } from '../../schemas/errors.ts';
import type { Chunk, Fence, IngestDeps } from './ports.ts';
import { leaseLost } from './store/sql.ts';

/** The right to write one chunk, kept alive until it is let go or lost. */
export interface Lease extends Fence {
  readonly seq: Seq;
  /** The chunk as it was when the lease was taken. */
  readonly taken: Chunk;
  /** Fires when the lease is lost or let go: whatever is under way stops. */
  readonly signal: AbortSignal;
  /** Throws `LEASE_LOST` once the lease may have run out. To be asked before every send: Kafka knows no epochs. */
  assertHeld(): void;
  /** Stops what is under way; the lease is kept until it is released. */
  giveUp(): void;
  /** Lets another holder take it at once. To be called when nothing is under way any more. */
  release(): Promise<void>;
}

type LeaseDeps = Pick<IngestDeps, 'store' | 'clock' | 'log' | 'settings'>;

/** Takes the lease of a chunk; null while another holder has it. */
export async function takeLease(deps: LeaseDeps, name: string): Promise<Lease | null> {
  const { store, clock, log, settings } = deps;
  const { holder, leaseMs } = settings;
  // Counted from before the request, so that our own view of the lease never outlasts the store's.
  let heldUntil = clock.now() + leaseMs;
  const grant = await store.acquire({
    name,
    holder,
    ttlMs: leaseMs,
    nowMs: clock.now(),
    reserve: SEQ_RESERVE,
  });
  if (grant === null) return null;
  const fence: Fence = { name, epoch: grant.epoch };
  const stopped = new AbortController();
  const lost = (why: string): void => {
    if (stopped.signal.aborted) return;
    log.warn({ chunk: name, epoch: fence.epoch, why }, 'lease lost');
    stopped.abort();
  };

  const keepAlive = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(leaseMs / 3, stopped.signal);
      if (stopped.signal.aborted) return;
      const asked = clock.now();
      try {
        await store.renew(fence, leaseMs);
        heldUntil = asked + leaseMs;
      } catch (error) {
        if (error instanceof AppError && error.code === 'LEASE_LOST') lost('another holder has it');
        else if (clock.now() >= heldUntil) lost('it could not be renewed in time');
        else log.warn({ chunk: name, err: error }, 'lease not renewed yet');
      }
    }
  };
  const renewing = keepAlive();

  return {
    ...fence,
    seq: createSeq(grant, (ceiling) => store.reserveSeq(fence, ceiling)),
    taken: grant.chunk,
    signal: stopped.signal,
    assertHeld() {
      if (!stopped.signal.aborted && clock.now() >= heldUntil) lost('it ran out');
      if (stopped.signal.aborted) throw leaseLost(fence);
    },
    giveUp: () => stopped.abort(),
    async release() {
      stopped.abort();
      await renewing;
      await store.release(fence);
    },
  };
}

/** Seqs reserved at once: one statement of Postgres for as many reverts and repairs. */
export const SEQ_RESERVE = 1000;

export interface Seq {
  /** What blocks are accepted with: above every revert so far. It stands still between reverts. */
  forAccept(): Promise<number>;
  /** What a revert carries: above everything so far. */
  forRevert(): Promise<number>;
}

/**
 * Orders everything said about a height. Reverts take the next seq (n), what is accepted after them the one after (n + 1),
 * also when it was not heard what became of a revert. So no two messages about one height share a seq, though messages
 * about different heights do. `reserve` writes a ceiling down before anything up to it is used.
 */
export function createSeq(
  grant: { readonly seq: number; readonly seqCeiling: number },
  reserve: (ceiling: number) => Promise<void>,
): Seq {
  let current = grant.seq;
  let ceiling = grant.seqCeiling;
  let reverted = false;

  const next = async (): Promise<number> => {
    if (current + 1 > ceiling) {
      const wanted = current + SEQ_RESERVE;
      await reserve(wanted);
      ceiling = Math.max(ceiling, wanted);
    }
    current += 1;
    return current;
  };

  return {
    async forAccept() {
      if (reverted) await next();
      reverted = false;
      return current;
    },
    async forRevert() {
      const seq = await next();
      reverted = true;
      return seq;
    },
  };
}

/** The writing of one chunk under one lease, as its loop sees it. */
export interface ChunkTask {
  readonly lease: Lease;
  /**
   * Carries out what repairs have been asked of this chunk, between two steps of its writer. True when there were any:
   * what is prefetched may rest on what was known of its contracts before.
   */
  runRepairs(): Promise<boolean>;
  /** To be called after every step that got somewhere, and whenever there is nothing to do. */
  progress(): Promise<void>;
}
