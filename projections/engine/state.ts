import type { Kafka, LogMessage } from '../../infra/kafka/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import type { Build } from './builds.ts';
import { loadCheckpoints, moveCheckpoints } from './checkpoints.ts';
import type { LogIdentity } from '../../infra/kafka/checkpoints.ts';
import type { CheckpointMove } from './checkpoints.ts';
import { isHalted, isSkipped, recordHalt } from './halts.ts';
import type { Halt } from './halts.ts';
import { checkServed, lockServed } from './served-lock.ts';
import type { ServedLock } from './served-lock.ts';

/**
 * What projecting into ClickHouse keeps in Postgres, as the runner sees it: the very same runner works on virtual time
 * in a seeded simulation. Each method is one transaction.
 */
export interface ProjectionState extends WatchState {
  /** Where a build goes on, by partition; `CHECKPOINT_OUTSIDE_LOG` when the log does not hold that. */
  checkpoints(log: LogIdentity, build: Build): Promise<ReadonlyMap<number, number>>;
  /** Compare-and-set; gives the moves that were refused, because another process has moved that checkpoint. */
  move(log: LogIdentity, moves: readonly CheckpointMove[]): Promise<CheckpointMove[]>;
  /** Keeps what is served from changing while a batch is written; `BUILD_RETIRED` when one of these is served no more. */
  hold(builds: readonly Build[]): Promise<ServedLock>;
}

/** What the watch over a run asks. */
export interface WatchState {
  recordHalt(builds: readonly Build[], halt: Halt): Promise<void>;
  /** True when an operator has told every one of these projections to pass over this message. */
  isSkipped(builds: readonly Build[], message: LogMessage): Promise<boolean>;
  /** False once an operator has taken a recorded halt away: the message is to be read again. */
  isHalted(builds: readonly Build[], message: LogMessage): Promise<boolean>;
  /** Throws `BUILD_RETIRED` when one of these is served no more. */
  checkServed(builds: readonly Build[]): Promise<void>;
}

export function watchState(pool: Pool): WatchState {
  return {
    recordHalt: (builds, halt) => recordHalt(pool, builds, halt),
    isSkipped: (builds, message) => isSkipped(pool, builds, message),
    isHalted: (builds, message) => isHalted(pool, builds, message),
    checkServed: (builds) => checkServed(pool, builds),
  };
}

export function projectionState(pool: Pool, kafka: Pick<Kafka, 'offsets'>): ProjectionState {
  return {
    ...watchState(pool),
    checkpoints: (log, build) => loadCheckpoints(pool, kafka, log, build),
    move: (log, moves) => moveCheckpoints(pool, log, moves),
    hold: (builds) => lockServed(pool, builds),
  };
}
