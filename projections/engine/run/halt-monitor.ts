import type { Kafka, LogMessage } from '../../../infra/kafka/client.ts';
import { messageId, quarantineResolved } from '../../../schemas/messages/quarantine.ts';
import type { QuarantineMessage } from '../../../schemas/messages/quarantine.ts';
import { topics } from '../../../schemas/topics.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Build } from '../builds.ts';
import { messageQuarantined } from '../halts.ts';
import type { Halt } from '../halts.ts';
import { isStoreUnavailable } from '../../../infra/retry-while-unavailable.ts';
import type { ProjectionState } from '../state.ts';
import type { StoreRetryDeps } from '../store-retry.ts';
import type { Reading, Readings } from './readings.ts';
import type { TopicReader } from './topic-reader.ts';

interface HaltMonitorDeps extends Omit<StoreRetryDeps, 'signal'> {
  readonly kafka: Pick<Kafka, 'offsets' | 'publisher'>;
  readonly state: ProjectionState;
  readonly topic: Topic<unknown>;
  readonly builds: readonly Build[];
  readonly readings: Pick<Readings, 'all' | 'rewound'>;
  readonly reader: Pick<TopicReader, 'resume' | 'reopen' | 'commit'>;
  /** Continues after the poison message. */
  skip(reading: Reading, message: LogMessage): Promise<void>;
  onError(error: unknown): void;
}

/**
 * Background work of a run: records halts, ends them as operators decide, measures the lag of every build, and reads again
 * where stored checkpoints have moved back.
 */
export interface HaltMonitor {
  start(): void;
  stop(): Promise<void>;
  /** Halts a partition at a poison message, and checks at once. */
  readonly halt: (reading: Reading, message: LogMessage, reason: string) => void;
  /** Called with the high watermark of every batch. */
  onHighWatermark(partition: number, highWatermark: number): void;
}

const CHECK_MS = 1000;
/** Builds are looked up, and their checkpoints committed to the consumer group, at every fifth check. */
const CHECKS_PER_COMMIT = 5;
/** At every fifteenth the ends of all partitions are fetched, as those without batches do not report theirs. */
const CHECKS_PER_OFFSETS = 15;
/** The stored checkpoints are compared with those in memory at every thirtieth; a new message shows a difference at once. */
const CHECKS_PER_CHECKPOINTS = 30;

export function createHaltMonitor(deps: HaltMonitorDeps): HaltMonitor {
  const { clock, log, readings, reader } = deps;
  const halts = createHaltResolver(deps);
  const progress = createProgressMeter(deps);
  const stopping = new AbortController();
  let checking: Promise<void> = Promise.resolve();
  let checks = 0;
  let isAvailable = true;

  const check = async (): Promise<void> => {
    try {
      await halts.check();
      await progress.measure();
      checks += 1;
      isAvailable = true;
      if (checks % CHECKS_PER_CHECKPOINTS !== 0) return;
      for (const reading of await readings.rewound()) await reader.reopen(reading);
    } catch (error) {
      // The next check retries an unavailable store; everything else is a bug.
      if (!isStoreUnavailable(error)) return deps.onError(error);
      if (isAvailable) log.warn({ err: error }, 'halt monitor: store unavailable');
      isAvailable = false;
    }
  };
  const checkSoon = (): void => {
    checking = checking.then(check);
  };

  return {
    halt(reading, message, reason) {
      reading.halt = { message, reason, announced: false };
      checkSoon();
    },
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
      await halts.close();
    },
  };
}

/** Records halts, and ends them as operators decide. */
function createHaltResolver(deps: HaltMonitorDeps): { check(): Promise<void>; close(): Promise<void> } {
  const { kafka, state, clock, topic, log, builds, readings, reader } = deps;
  const quarantine = kafka.publisher();
  /** Halts that were sent to the quarantine, acknowledged or not. */
  const quarantined = new WeakSet<Halt>();

  const publish = async (value: QuarantineMessage): Promise<void> =>
    void (await quarantine.publish(topics.quarantine, [{ key: value.id, value }]));

  /** Records a halt for every process in Postgres, and for the operator in the quarantine. */
  const announce = async (halt: Halt, stopped: readonly Build[]): Promise<void> => {
    const { partition, offset } = halt.message;
    const { reason } = halt;
    log.error({ topic: topic.name, partition, offset, reason }, 'partition halted by a poison message');
    // The quarantine first: the operator's resolution of a recorded halt must come after it.
    quarantined.add(halt);
    await publish(messageQuarantined(halt, clock.wallTime()));
    await state.recordHalt(stopped, halt);
    halt.announced = true;
  };

  const checkHalt = async (reading: Reading, halt: Halt): Promise<void> => {
    const { message } = halt;
    const { partition, offset } = message;
    const stopped = builds.filter((build) => (reading.planned.get(build) ?? 0) <= offset);
    if (await state.isSkipped(stopped, message)) {
      log.warn({ topic: topic.name, partition, offset }, 'poison message skipped by an operator');
      // In a replay the quarantine has the resolution already.
      if (quarantined.has(halt)) {
        await publish(quarantineResolved(messageId(message), 'skipped', clock.wallTime()));
      }
      await deps.skip(reading, message);
    } else if (!halt.announced) {
      await announce(halt, stopped);
    } else if (!(await state.isHalted(stopped, message))) {
      log.warn({ topic: topic.name, partition, offset }, 'poison message retried by an operator');
      await reader.resume(reading);
    }
  };

  return {
    async check() {
      for (const reading of readings.all()) {
        if (reading.halt !== null) await checkHalt(reading, reading.halt);
      }
    },
    close: () => quarantine.close(),
  };
}

/** Measures how far the builds have read, and commits it to the consumer group. */
function createProgressMeter(
  deps: HaltMonitorDeps,
): Pick<HaltMonitor, 'onHighWatermark'> & { measure(): Promise<void> } {
  const { kafka, state, topic, metrics, builds, readings, reader } = deps;
  const highWatermarks = new Map<number, number>();
  const committed = new Map<number, number>();
  let checks = 0;
  let measured = new Set<number>();

  const fetchEnds = async (): Promise<void> => {
    for (const { partition, high } of await kafka.offsets(topic)) highWatermarks.set(partition, high);
  };
  const commitProgress = async (): Promise<void> => {
    for (const reading of readings.all()) {
      const next = Math.min(...reading.stored.values());
      if (committed.get(reading.partition) === next) continue;
      committed.set(reading.partition, next);
      // Refused during a rebalance; the next check commits again.
      await reader.commit(reading.partition, next).catch(() => committed.delete(reading.partition));
    }
  };

  return {
    onHighWatermark: (partition, highWatermark) => void highWatermarks.set(partition, highWatermark),
    async measure() {
      if (checks % CHECKS_PER_COMMIT === 0) {
        await state.checkServed(builds);
        if (checks % CHECKS_PER_OFFSETS === 0) await fetchEnds();
        await commitProgress();
      }
      checks += 1;
      const read = new Set<number>();
      for (const reading of readings.all()) {
        const { partition, halt } = reading;
        read.add(partition);
        for (const build of builds) {
          const labels = { projection: build.projection, partition };
          const lag = (highWatermarks.get(partition) ?? 0) - (reading.stored.get(build) ?? 0);
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
