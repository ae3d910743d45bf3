import { AppError } from '../../schemas/errors.ts';
import type { Clock } from '../../infra/clock.ts';
import { leaseLost } from './ports.ts';
import type { Fence, IngestDeps, Lease, LeaseGrant, Seq } from './ports.ts';

/** Seqs reserved by one PostgreSQL statement: one per revert and repair. */
export const SEQ_RESERVE = 1000;

/** The lease of a chunk expires this many milliseconds after its last renewal. */
export const LEASE_MS = 10_000;

export interface LeaseDeps extends Pick<IngestDeps, 'store' | 'clock' | 'log'> {
  readonly settings: Pick<IngestDeps['settings'], 'holder' | 'leaseMs'>;
}

/**
 * Acquires the lease of a chunk; null while another holder has it, unless `takeOver`: that holder's writes then fail, but for
 * the length of a lease it may still publish.
 */
export async function acquireLease(
  deps: LeaseDeps,
  name: string,
  { takeOver = false } = {},
): Promise<Lease | null> {
  const { store, clock, settings } = deps;
  const { holder, leaseMs } = settings;
  // Measured from before the request, so that this process never believes in the lease for longer than the store does.
  const isOver = startTimeLimit(clock, leaseMs);
  const grant = await store.acquire({
    name,
    holder,
    ttlMs: leaseMs,
    nowMs: clock.wallTime(),
    reserve: SEQ_RESERVE,
    takeOver,
  });
  return grant === null ? null : keepLease(deps, grant, isOver);
}

/** By both clocks: one stands still while the machine is suspended, the other can be set back. */
function startTimeLimit(clock: Clock, ms: number): () => boolean {
  const [end, wallEnd] = [clock.now() + ms, clock.wallTime() + ms];
  return () => clock.now() >= end || clock.wallTime() >= wallEnd;
}

function keepLease(
  { store, clock, log, settings }: LeaseDeps,
  grant: LeaseGrant,
  isAcquisitionOver: () => boolean,
): Lease {
  const { leaseMs } = settings;
  const fence: Fence = { name: grant.chunk.name, epoch: grant.epoch };
  const stopped = new AbortController();
  let isOver = isAcquisitionOver;

  const lose = (reason: string): void => {
    if (stopped.signal.aborted) return;
    log.warn({ chunk: fence.name, epoch: fence.epoch, reason }, 'lease lost');
    stopped.abort();
  };

  const renew = async (): Promise<void> => {
    for (;;) {
      await clock.sleep(leaseMs / 3, stopped.signal);
      if (stopped.signal.aborted) return;
      const isRenewalOver = startTimeLimit(clock, leaseMs);
      try {
        await store.renew(fence, leaseMs);
        isOver = isRenewalOver;
      } catch (error) {
        if (error instanceof AppError && error.code === 'LEASE_LOST')
          lose('acquired by another holder, or lost by PostgreSQL in a fail-over');
        else if (isOver()) lose('not renewed in time');
        else log.warn({ chunk: fence.name, err: error }, 'lease renewal failed; retrying');
      }
    }
  };
  const renewing = renew();

  return {
    ...fence,
    seq: createSeq(grant, (ceiling) => store.reserveSeq(fence, ceiling)),
    chunk: grant.chunk,
    signal: stopped.signal,
    assertValid() {
      if (isOver()) lose('expired');
      if (stopped.signal.aborted) throw leaseLost(fence);
    },
    abort: () => stopped.abort(),
    async release() {
      stopped.abort();
      await renewing;
      await store.release(fence);
    },
  };
}

/**
 * Versions all messages about a height. A revert takes the next seq n and blocks accepted after it n + 1, even if the
 * revert's publish failed, so no two messages about one height share a seq; messages about different heights may.
 * `reserve` stores a ceiling before any seq up to it is used.
 */
export function createSeq(
  grant: Pick<LeaseGrant, 'seq' | 'seqCeiling'>,
  reserve: (ceiling: number) => Promise<void>,
): Seq {
  let current = grant.seq;
  let ceiling = grant.seqCeiling;
  /** The current seq is taken: by a revert, or by a message of another holder. */
  let taken = false;

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
      if (taken) await next();
      taken = false;
      return current;
    },
    async forRevert() {
      const seq = await next();
      taken = true;
      return seq;
    },
    exceed(seq) {
      if (seq < current) return;
      current = seq;
      taken = true;
    },
  };
}
