import { Tinypool } from 'tinypool';

import type { CommitmentInput, ComputeCommitment } from '../schemas/commitment/compute.ts';
import type { Felt } from '../schemas/felt.ts';

export interface CommitmentThread {
  readonly compute: ComputeCommitment;
  close(): Promise<void>;
}

/** A thread that computes commitments, so that the one that fetches, decodes and publishes blocks does not wait for hashes. */
export function startCommitmentThread(): CommitmentThread {
  const pool = new Tinypool({
    filename: new URL('../schemas/commitment/compute.ts', import.meta.url).href,
    name: 'computeCommitment',
    minThreads: 1,
    maxThreads: 1,
  });
  return {
    compute: async (input: CommitmentInput) => (await pool.run(input)) as Felt | null,
    close: () => pool.destroy(),
  };
}
