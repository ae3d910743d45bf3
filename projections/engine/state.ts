import type { Kafka, LogMessage } from '../../infra/kafka/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { Build } from './builds.ts';
import { announceIndexed, loadCheckpoints, moveBuildCheckpoints } from './checkpoints.ts';
import type { LogIdentity } from '../../infra/kafka/checkpoints.ts';
import type { BuildCheckpointMove } from './checkpoints.ts';
import { isHalted, isSkipped, recordHalt } from './halts.ts';
import type { Halt } from './halts.ts';
import { checkServed, lockServed } from './served-lock.ts';
import type { ServedLock } from './served-lock.ts';

/** The runner's state in PostgreSQL; simulations replace it. Each method is one transaction. */
export interface ProjectionState {
  /** Next offsets of a build by partition; throws `CHECKPOINT_OUTSIDE_LOG`. */
  checkpoints(log: LogIdentity, build: Build): Promise<ReadonlyMap<number, number>>;
  /** Moves checkpoints by compare-and-set. Returns the refused moves: another process moved those checkpoints. */
  move(log: LogIdentity, moves: readonly BuildCheckpointMove[]): Promise<BuildCheckpointMove[]>;
  /** Notifies the API that blocks were indexed or reverted, so that it need not look for them. */
  announceIndexed(): Promise<void>;
  /** Takes a writer's lock, which blocks swaps while a batch is written; throws `BUILD_RETIRED` when a build is no longer served. */
  lockServed(builds: readonly Build[]): Promise<ServedLock>;
  /** Throws `BUILD_RETIRED` when a build is no longer served. */
  checkServed(builds: readonly Build[]): Promise<void>;
  recordHalt(builds: readonly Build[], halt: Halt): Promise<void>;
  /** True when an operator skipped the message for each of these projections. */
  isSkipped(builds: readonly Build[], message: LogMessage): Promise<boolean>;
  /** False once an operator cleared a recorded halt: the message is read again. */
  isHalted(builds: readonly Build[], message: LogMessage): Promise<boolean>;
}

export function projectionState(pool: Pool, kafka: Pick<Kafka, 'offsets'>): ProjectionState {
  return {
    checkpoints: (log, build) => loadCheckpoints(pool, kafka, log, build),
    move: (log, moves) => moveBuildCheckpoints(pool, log, moves),
    announceIndexed: () => announceIndexed(pool),
    lockServed: (builds) => lockServed(pool, builds),
    checkServed: (builds) => checkServed(pool, builds),
    recordHalt: (builds, halt) => recordHalt(pool, builds, halt),
    isSkipped: (builds, message) => isSkipped(pool, builds, message),
    isHalted: (builds, message) => isHalted(pool, builds, message),
  };
}
