import type { Lease } from './lease.ts';

/** The writing of one chunk under one lease, as its loop sees it. */
export interface ChunkTask {
  readonly lease: Lease;
  /** Carries out what repairs have been asked of this chunk, between two steps of its writer. */
  runRepairs(): Promise<void>;
  /** To be called after every step that got somewhere, and whenever there is nothing to do. */
  progress(): Promise<void>;
}
