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
import type { WatchState } from '../state.ts';

/** A partition as the watch sees it. */
interface Watched {
  readonly partition: number;
  readonly halt: Halt | null;
}

interface Dependencies<R extends Watched> {
  readonly kafka: Pick<Kafka, 'offsets' | 'publisher'>;
  readonly state: WatchState;
  readonly clock: Clock;
  readonly topic: Topic<unknown>;
  readonly log: Logger;
  readonly metrics: ProjectionMetrics;
  readonly builds: readonly Build[];
  readings(): Iterable<R>;
  /** Where a build stands in a partition: everything before it is written. */
  position(reading: R, build: Build): number;
  /** The builds that the message which halts this partition stops: those that have not passed it before. */
  concerned(reading: R, halt: Halt): readonly Build[];
  /** Goes on after the message that halted the partition. */
  resume(reading: R): Promise<void>;
  /** Goes on at the message that halted the partition. */
  readAgain(reading: R): Promise<void> | void;
  /** Moves the group's offset, which Kafka's own tools show lag by. Nothing is read from there. */
  commit(partition: number, nextOffset: number): Promise<void>;
  onError(error: unknown): void;
}

/** Looks after what does not come with messages: halts and their end, and how far behind the log every build is. */
export interface Watch {
  start(): void;
  stop(): Promise<void>;
  /** A partition was halted: look at once. */
  wake(): void;
  /** The high watermark that came with a batch. */
  sawHead(partition: number, highWatermark: number): void;
}

const LOOK_MS = 1000;
/** Every so many looks the log is asked for its ends, also of partitions that bring nothing. */
const LOOKS_PER_OFFSETS = 5;

export function createWatch<R extends Watched>(dependencies: Dependencies<R>): Watch {
  const { kafka, state, clock, topic, log, metrics, builds } = dependencies;
  const quarantine = kafka.publisher();
  const heads = new Map<number, number>();
  const committed = new Map<number, number>();
  const stopping = new AbortController();
  let looking: Promise<void> = Promise.resolve();
  let looks = 0;
  let measured = new Set<number>();

  /** What was sent to the quarantine, though it may not be known whether it arrived. */
  const mayBeTold = new WeakSet<Halt>();

  const tell = async (value: QuarantineMessage): Promise<void> =>
    void (await quarantine.publish(topics.quarantine, [{ key: value.id, value }]));

  /** To every process through Postgres, and to the operator through the quarantine. */
  const announce = async (halt: Halt, stopped: readonly Build[]): Promise<void> => {
    const { partition, offset } = halt.message;
    log.error({ topic: topic.name, partition, offset, reason: halt.reason }, 'a message halts its partition');
    // The quarantine first: an operator settles what is recorded, and that must be the last word of it.
    mayBeTold.add(halt);
    await tell(messageQuarantined(halt, clock.now()));
    await state.recordHalt(stopped, halt);
    halt.announced = true;
  };

  const passOver = async (reading: R, halt: Halt): Promise<void> => {
    const { partition, offset } = halt.message;
    log.warn({ topic: topic.name, partition, offset }, 'passing over a message, as an operator said');
    // A replay meets it again without a word; the quarantine knows already.
    if (mayBeTold.has(halt)) {
      await tell(quarantineResolved(messageId(halt.message), 'skipped', clock.now()));
    }
    await dependencies.resume(reading);
  };

  const readAgain = async (reading: R, { message: { partition, offset } }: Halt): Promise<void> => {
    log.warn({ topic: topic.name, partition, offset }, 'reading a message again, as an operator said');
    await dependencies.readAgain(reading);
  };

  const lookAtHalts = async (): Promise<void> => {
    for (const reading of dependencies.readings()) {
      const { halt } = reading;
      if (halt === null) continue;
      const stopped = dependencies.concerned(reading, halt);
      if (await state.isSkipped(stopped, halt.message)) await passOver(reading, halt);
      else if (!halt.announced) await announce(halt, stopped);
      else if (!(await state.isHalted(stopped, halt.message))) await readAgain(reading, halt);
    }
  };

  const compareWithLog = async (): Promise<void> => {
    await state.checkServed(builds);
    for (const { partition, high } of await kafka.offsets(topic)) heads.set(partition, high);
    for (const reading of dependencies.readings()) {
      const next = Math.min(...builds.map((build) => dependencies.position(reading, build)));
      if (committed.get(reading.partition) === next) continue;
      committed.set(reading.partition, next);
      // Refused during a rebalance; the next one will do.
      await dependencies.commit(reading.partition, next).catch(() => committed.delete(reading.partition));
    }
  };

  const measure = async (): Promise<void> => {
    if (looks % LOOKS_PER_OFFSETS === 0) await compareWithLog();
    const read = new Set<number>();
    for (const reading of dependencies.readings()) {
      const { partition, halt } = reading;
      read.add(partition);
      for (const build of builds) {
        const labels = { projection: build.projection, partition };
        const lag = (heads.get(partition) ?? 0) - dependencies.position(reading, build);
        metrics.lag.set(labels, Math.max(0, lag));
        metrics.halted.set(labels, halt === null ? 0 : 1);
      }
    }
    // What another process reads now is for that process to tell.
    for (const partition of measured) {
      if (read.has(partition)) continue;
      for (const { projection } of builds) {
        metrics.lag.remove({ projection, partition });
        metrics.halted.remove({ projection, partition });
      }
    }
    measured = read;
  };

  const look = async (): Promise<void> => {
    try {
      await lookAtHalts();
      await measure();
      looks += 1;
    } catch (error) {
      // A store that is away is looked for again; everything else is a bug.
      if (isStoreUnavailable(error)) log.warn({ err: error }, 'the watch goes blind');
      else dependencies.onError(error);
    }
  };

  const lookSoon = (): void => {
    looking = looking.then(look);
  };

  return {
    wake: lookSoon,
    sawHead: (partition, highWatermark) => void heads.set(partition, highWatermark),
    start() {
      const { signal } = stopping;
      void (async () => {
        while (!signal.aborted) {
          await clock.sleep(LOOK_MS, signal);
          if (!signal.aborted) lookSoon();
          await looking;
        }
      })();
    },
    async stop() {
      stopping.abort();
      await looking;
      await quarantine.close();
    },
  };
}
