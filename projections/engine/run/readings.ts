import type { Reading, Target } from './batch.ts';
import type { LogIdentity } from '../../../infra/kafka/checkpoints.ts';
import type { RetryWhileUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { ProjectionState } from '../state.ts';

/** Assigned partitions, each read from the lowest checkpoint of its targets. */
export interface Readings {
  /** Throws when a checkpoint is outside the log. */
  check(): Promise<void>;
  /**
   * The current reading of a partition, or a new one from the stored checkpoints: what the old one gathered then moves no
   * checkpoint.
   */
  open(partition: number): Promise<Reading>;
  get(partition: number): Reading | undefined;
  drop(partition: number): void;
  all(): Iterable<Reading>;
}

export function createReadings(
  state: Pick<ProjectionState, 'checkpoints'>,
  identity: LogIdentity,
  targets: readonly Target[],
  retryWhileUnavailable: RetryWhileUnavailable,
): Readings {
  const readings = new Map<number, Reading>();
  let loading: Promise<Map<Target, ReadonlyMap<number, number>>> | null = null;

  /** Shared by all partitions of one assignment, which ask at once. */
  const load = async (): Promise<Map<Target, ReadonlyMap<number, number>>> => {
    const stored = new Map<Target, ReadonlyMap<number, number>>();
    for (const target of targets) {
      stored.set(target, await state.checkpoints(identity, target.build));
    }
    return stored;
  };
  const begin = async (partition: number): Promise<Reading> => {
    loading ??= retryWhileUnavailable(load).finally(() => {
      loading = null;
    });
    const stored = await loading;
    const planned = new Map(targets.map((target) => [target, stored.get(target)?.get(partition) ?? 0]));
    const next = Math.min(...planned.values());
    const reading: Reading = {
      partition,
      current: true,
      next,
      planned,
      stored: new Map(planned),
      halt: null,
    };
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
    get: (partition) => readings.get(partition),
    drop,
    all: () => readings.values(),
  };
}
