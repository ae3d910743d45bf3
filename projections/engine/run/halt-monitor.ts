import type { Clock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { messageId, quarantineResolved } from '../../../schemas/messages/quarantine.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Build } from '../builds.ts';
import { messageQuarantined } from '../halts.ts';
import type { Halt } from '../halts.ts';
import type { ProjectionMetrics } from '../metrics.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { HaltMonitorState } from '../state.ts';

/** What the monitor needs of a partition. */
interface MonitoredPartition {
  readonly partition: number;
  readonly halt: Halt | null;
}

interface Dependencies<R extends MonitoredPartition> {
  readonly kafka: Pick<Kafka, 'offsets' | 'publisher'>;
  readonly state: HaltMonitorState;
  readonly clock: Clock;
  readonly topic: Topic<unknown>;
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
  readonly builds: readonly Build[];
  readings(): Iterable<R>;
  /** Stored checkpoint of a build. */
  checkpoint(reading: R, build: Build): number;
  /** Builds that the poison message halts: those that have not read past it. */
  buildsAt(reading: R, halt: Halt): readonly Build[];
  /** Continues after the poison message. */
  resume(reading: R): Promise<void>;
  /** Continues at the poison message. */
  retry(reading: R): Promise<void> | void;
  /** Commits the group's offset, which only shows lag in Kafka's tools. */
  commit(partition: number, nextOffset: number): Promise<void>;
  onError(error: unknown): void;
}

/** Background work of a run: records halts, ends them as operators decide, and measures the lag of every build. */
export interface HaltMonitor {
  start(): void;
  stop(): Promise<void>;
  /** Called when a partition is halted: checks at once. */
  wake(): void;
  /** Called with the high watermark of every batch. */
  onHighWatermark(partition: number, highWatermark: number): void;
}

const CHECK_MS = 1000;
/** Offsets of the log, also of idle partitions, are fetched at every fifth check. */
const CHECKS_PER_OFFSETS = 5;

export function createHaltMonitor<R extends MonitoredPartition>(dependencies: Dependencies<R>): HaltMonitor {
  const { kafka, state, clock, topic, log } = dependencies;
  const quarantine = kafka.publisher();
  const progress = createProgressMeter(dependencies);
  const stopping = new AbortController();
  let checking: Promise<void> = Promise.resolve();

  /** Halts that were sent to the quarantine, acknowledged or not. */
  const quarantined = new WeakSet<Halt>();

  const publish = async (value: QuarantineMessage): Promise<void> =>
    void (await quarantine.publish(topics.quarantine, [{ key: value.id, value }]));

  /** Records a halt for every process in Postgres, and for the operator in the quarantine. */
  const announce = async (halt: Halt, stopped: readonly Build[]): Promise<void> => {
    const { partition, offset } = halt.message;
    log.error(
      { topic: topic.name, partition, offset, reason: halt.reason },
      'partition halted by a poison message',
    );
    // The quarantine first: the operator's resolution of a recorded halt must come after it.
    quarantined.add(halt);
    await publish(messageQuarantined(halt, clock.now()));
    await state.recordHalt(stopped, halt);
    halt.announced = true;
  };

  const skip = async (reading: R, halt: Halt): Promise<void> => {
    const { partition, offset } = halt.message;
    log.warn({ topic: topic.name, partition, offset }, 'poison message skipped by an operator');
    // In a replay the quarantine has the resolution already.
    if (quarantined.has(halt)) {
      await publish(quarantineResolved(messageId(halt.message), 'skipped', clock.now()));
    }
    await dependencies.resume(reading);
  };

  const retry = async (reading: R, { message: { partition, offset } }: Halt): Promise<void> => {
    log.warn({ topic: topic.name, partition, offset }, 'poison message retried by an operator');
    await dependencies.retry(reading);
  };

  const checkHalts = async (): Promise<void> => {
    for (const reading of dependencies.readings()) {
      const { halt } = reading;
      if (halt === null) continue;
      const stopped = dependencies.buildsAt(reading, halt);
      if (await state.isSkipped(stopped, halt.message)) await skip(reading, halt);
      else if (!halt.announced) await announce(halt, stopped);
      else if (!(await state.isHalted(stopped, halt.message))) await retry(reading, halt);
    }
  };

  const check = async (): Promise<void> => {
    try {
      await checkHalts();
      await progress.measure();
    } catch (error) {
      // The next check retries an unavailable store; everything else is a bug.
      if (isStoreUnavailable(error)) log.warn({ err: error }, 'halt monitor: store unavailable');
      else dependencies.onError(error);
    }
  };

  const checkSoon = (): void => {
    checking = checking.then(check);
  };

  return {
    wake: checkSoon,
    onHighWatermark: progress.onHighWatermark,
    start() {
      const { signal } = stopping;
      void (async () => {
        while (!signal.aborted) {
          await clock.sleep(CHECK_MS, signal);
          if (!signal.aborted) checkSoon();
          await checking;
        }
      })();
    },
    async stop() {
      stopping.abort();
      await checking;
      await quarantine.close();
    },
  };
}

/** Measures how far the builds have read, and commits it to the consumer group. */
function createProgressMeter<R extends MonitoredPartition>(
  dependencies: Dependencies<R>,
): Pick<HaltMonitor, 'onHighWatermark'> & { measure(): Promise<void> } {
  const { kafka, state, topic, metrics, builds } = dependencies;
  const highWatermarks = new Map<number, number>();
  const committed = new Map<number, number>();
  let checks = 0;
  let measured = new Set<number>();

  const compareWithLog = async (): Promise<void> => {
    await state.checkServed(builds);
    for (const { partition, high } of await kafka.offsets(topic)) highWatermarks.set(partition, high);
    for (const reading of dependencies.readings()) {
      const next = Math.min(...builds.map((build) => dependencies.checkpoint(reading, build)));
      if (committed.get(reading.partition) === next) continue;
      committed.set(reading.partition, next);
      // Refused during a rebalance; the next check commits again.
      await dependencies.commit(reading.partition, next).catch(() => committed.delete(reading.partition));
    }
  };

  return {
    onHighWatermark: (partition, highWatermark) => void highWatermarks.set(partition, highWatermark),
    async measure() {
      if (checks % CHECKS_PER_OFFSETS === 0) await compareWithLog();
      checks += 1;
      const read = new Set<number>();
      for (const reading of dependencies.readings()) {
        const { partition, halt } = reading;
        read.add(partition);
        for (const build of builds) {
          const labels = { projection: build.projection, partition };
          const lag = (highWatermarks.get(partition) ?? 0) - dependencies.checkpoint(reading, build);
          metrics.lag.set(labels, Math.max(0, lag));
          metrics.halted.set(labels, halt === null ? 0 : 1);
        }
      }
      // Partitions that another process reads are measured there.
      for (const partition of measured) {
        if (read.has(partition)) continue;
        for (const { projection } of builds) {
          metrics.lag.remove({ projection, partition });
          metrics.halted.remove({ projection, partition });
        }
      }
      measured = read;
    },
  };
}
