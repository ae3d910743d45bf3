import type { Lease } from './lease.ts';

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
