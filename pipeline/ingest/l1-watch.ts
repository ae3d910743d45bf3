import type { BlockPoint } from '../node/types.ts';
import type { Lease } from './lease.ts';
import type { OurChain } from './our-chain.ts';
import type { IngestDeps } from './ports.ts';
import { publishStatus, statusStamp } from './publish.ts';

/** Follows what is accepted on L1 beside the live chunk, and makes it count between two steps of its writer. */
export interface L1Watch {
  /** The highest block the node has named; null before the first. */
  newest(): BlockPoint | null;
  /**
   * Announces a new height, and drops what was recorded for blocks that can no longer be reverted - once our block at that
   * height is seen to be the very one accepted. Where it is not, there is a fork to be left first.
   */
  settle(ours: OurChain): Promise<void>;
  stop(): void;
}

export function createL1Watch(deps: IngestDeps, lease: Lease, known: number): L1Watch {
  const { node, store, clock, log, metrics, settings } = deps;
  const stopped = new AbortController();
  const signal = AbortSignal.any([stopped.signal, lease.signal]);
  const options = { signal, priority: 1 };
  let newest: BlockPoint | null = null;
  let announced = -1;

  const poll = async (): Promise<void> => {
    while (!signal.aborted) {
      try {
        const point = await node.l1Accepted(newest?.height ?? (known < 0 ? null : known), options);
        // A node that is behind names a lower one.
        if (point !== null && point.height > (newest?.height ?? -1)) newest = point;
      } catch (error) {
        if (!signal.aborted) log.warn({ err: error }, 'the height accepted on L1 is not known');
      }
      await clock.sleep(settings.l1PollMs, signal);
    }
  };
  void poll();

  return {
    newest: () => newest,
    async settle(ours) {
      const point = newest;
      if (point === null || ours.revertingFrom() !== null) return;
      const at = Math.min(point.height, ours.cursor() - 1);
      if (at > ours.floor().height && point.height > announced) {
        // Asked a second time, by number: what is final is never given up, so one answer is not enough.
        const { hash, status } = await node.getBlockHeader(at, options);
        const agreed = status === 'ACCEPTED_ON_L1' && (at < point.height || hash === point.hash);
        if (!agreed || hash !== ours.hashAt(at)) {
          log.warn({ height: at, hash, status }, 'what is accepted on L1 is not what is held');
          return;
        }
        await store.setFinal(lease, { height: at, hash });
        ours.finalised({ height: at, hash });
      }
      if (point.height <= announced) return;
      await publishStatus(deps, [{ type: 'l1.accepted', ...statusStamp(clock), height: point.height }]);
      announced = point.height;
      metrics.l1(point.height);
    },
    stop: () => stopped.abort(),
  };
}
