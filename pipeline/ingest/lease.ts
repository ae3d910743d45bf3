import { AppError } from '../../schemas/errors.ts';
import { SEQ_RESERVE, createSeq } from './seq.ts';
import type { Seq } from './seq.ts';
import { leaseLost } from './store/sql.ts';
import type { Chunk, Fence, IngestDeps } from './ports.ts';

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
