import { Tinypool } from 'tinypool';

import type { CommitmentInput, ComputeCommitment } from '../schemas/commitment/compute.ts';
import type { Felt } from '../schemas/felt.ts';

export interface CommitmentThread {
  readonly compute: ComputeCommitment;
  /** Rejects computations in progress, and later ones. */
  close(): Promise<void>;
}

/** A thread that computes commitments, so that the one that fetches, decodes and publishes blocks does not wait for them. */
export function startCommitmentThread(): CommitmentThread {
  const pool = new Tinypool({
    filename: new URL('../schemas/commitment/compute.ts', import.meta.url).href,
    name: 'computeCommitment',
    minThreads: 1,
    maxThreads: 1,
  });
  let isClosed = false;
  return {
    async compute(input: CommitmentInput) {
      // The pool would start another thread.
      if (isClosed) throw new Error('the thread for commitments is closed');
      return (await pool.run(input)) as Felt | null;
    },
    async close() {
      isClosed = true;
      await pool.destroy();
    },
  };
}
