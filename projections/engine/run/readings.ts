import type { Build } from '../builds.ts';
import type { Halt } from '../halts.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { ProjectionState } from '../state.ts';

/** What a run knows of a partition, from an assignment or a checkpoint conflict to the next. */
export interface Reading {
  readonly partition: number;
  /** False once the partition is revoked or reopened: its gathered messages then move no checkpoint. */
  current: boolean;
  /** Next offset to take from the consumer. */
  next: number;
  /** By build, its checkpoint once all gathered messages are written. A build ahead of `next` skips messages. */
  readonly planned: Map<Build, number>;
  /** By build, its stored checkpoint. */
  readonly stored: Map<Build, number>;
  /** The poison message that halts this partition. */
  halt: Halt | null;
}

/** Assigned partitions, each read from the lowest checkpoint of the builds. */
export interface Readings {
  /** Throws when a checkpoint is outside the log. */
  check(): Promise<void>;
  /**
   * The current reading of a partition, or a new one from the stored checkpoints: what the old one gathered then moves no
   * checkpoint.
   */
  open(partition: number): Promise<Reading>;
  /** Those whose stored checkpoint has moved back: PostgreSQL has lost transactions in a fail-over. */
  rewound(): Promise<Reading[]>;
  get(partition: number): Reading | undefined;
  drop(partition: number): void;
  all(): Iterable<Reading>;
}

export function createReadings(
  state: Pick<ProjectionState, 'checkpoints'>,
  identity: LogIdentity,
  builds: readonly Build[],
  retryWhileUnavailable: RetryWhileUnavailable,
): Readings {
  const readings = new Map<number, Reading>();
  let loading: Promise<Map<Build, ReadonlyMap<number, number>>> | null = null;

  const load = async (): Promise<Map<Build, ReadonlyMap<number, number>>> => {
    const stored = new Map<Build, ReadonlyMap<number, number>>();
    for (const build of builds) stored.set(build, await state.checkpoints(identity, build));
    return stored;
  };
  const begin = async (partition: number): Promise<Reading> => {
    // Shared by all partitions of one assignment, which ask at once.
    loading ??= retryWhileUnavailable(load).finally(() => {
      loading = null;
    });
    const stored = await loading;
    const planned = new Map(builds.map((build) => [build, stored.get(build)?.get(partition) ?? 0]));
    const next = Math.min(...planned.values());
    const reading = { partition, current: true, next, planned, stored: new Map(planned), halt: null };
    drop(partition);
    readings.set(partition, reading);
    return reading;
  };
  const drop = (partition: number): void => {
    const reading = readings.get(partition);
    if (reading !== undefined) reading.current = false;
    readings.delete(partition);
  };

  return {
    check: async () => void (await retryWhileUnavailable(load)),
    async open(partition) {
      const existing = readings.get(partition);
      return existing?.current === true ? existing : await begin(partition);
    },
    async rewound() {
      const before = [...readings.values()].map((reading) => ({ reading, stored: new Map(reading.stored) }));
      const now = await load();
      return before.flatMap(({ reading, stored }) => {
        const isBehind = ([build, next]: [Build, number]): boolean =>
          (now.get(build)?.get(reading.partition) ?? 0) < next;
        return reading.current && [...stored].some(isBehind) ? [reading] : [];
      });
    },
    get: (partition) => readings.get(partition),
    drop,
    all: () => readings.values(),
  };
}
