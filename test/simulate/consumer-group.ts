import type { ConsumeOptions, Consumption, Handled, LogMessage } from '../../infra/kafka/client.ts';
import type { Topic } from '../../schemas/topics.ts';
import type { SimClock } from './clock.ts';
import type { Count } from './coverage.ts';
import type { FaultRates, SimProcess } from './process.ts';
import type { Random } from '../support/random.ts';

export interface BrokerWorld {
  readonly clock: SimClock;
  readonly random: Random;
  readonly faultRates: FaultRates;
  readonly count: Count;
  readonly trace: (event: string) => void;
}

/** One consumer group of one topic, as implemented by infra/kafka and a broker's coordinator. */
export interface ConsumerGroup {
  consume(
    process: SimProcess,
    topic: Topic<unknown>,
    options: ConsumeOptions,
    read: (partition: number) => readonly LogMessage[],
  ): Promise<Consumption>;
}

const SESSION_MS = 12_000;
const HEARTBEAT_MS = 3000;
/** Members that have not rejoined by then are expelled. */
const REBALANCE_MS = 10_000;
const COORDINATOR_MS = 500;
const MAX_FETCH_WAIT_MS = 250;

interface Member {
  readonly process: SimProcess;
  lastBeat: number;
  /** Set once the member has joined a rebalance; called with its assignment. */
  joining: ((assigned: readonly number[]) => void) | null;
  isMember: boolean;
}

export function createGroup(world: BrokerWorld, partitionCount: number): ConsumerGroup {
  const { clock, random, count, trace } = world;
  let members: Member[] = [];
  let rebalancingSince: number | null = null;
  let isCoordinated = false;

  const rebalance = (): void => {
    rebalancingSince ??= clock.now();
  };

  const leave = (member: Member): void => {
    if (!member.isMember) return;
    member.isMember = false;
    members = members.filter((one) => one !== member);
    if (members.length === 0) rebalancingSince = null;
    else rebalance();
  };

  /** Expels expired members, and completes a rebalance once all have joined or its time is over. */
  const coordinate = (): void => {
    for (const member of members) {
      if (clock.now() - member.lastBeat <= SESSION_MS) continue;
      count('session expired');
      member.process.isExpelled = true;
      leave(member);
    }
    if (rebalancingSince === null) return;
    const isOver = clock.now() - rebalancingSince > REBALANCE_MS;
    const missing = members.filter(({ joining }) => joining === null);
    if (missing.length > 0 && !isOver) return;
    for (const member of missing) {
      member.process.isExpelled = true;
      leave(member);
    }
    rebalancingSince = null;
    if (members.length === 0) return;
    count(members.length > 1 ? 'rebalance among several' : 'rebalance');
    const shift = random.below(members.length);
    const share: number[][] = members.map(() => []);
    for (let partition = 0; partition < partitionCount; partition += 1) {
      share[(partition + shift) % members.length]?.push(partition);
    }
    for (const [index, { joining }] of members.entries()) joining?.(share[index] ?? []);
    for (const member of members) member.joining = null;
  };

  const runCoordinator = async (): Promise<void> => {
    isCoordinated = true;
    while (members.length > 0) {
      await clock.sleep(COORDINATOR_MS);
      coordinate();
    }
    isCoordinated = false;
  };

  const consume: ConsumerGroup['consume'] = async (process, topic, options, read) => {
    /** Next offset of each assigned partition; a promise while it is being looked up. */
    let expected = new Map<number, Promise<number> | number>();
    /** The assigned partitions; a seek on another one has no effect. */
    let assignment: readonly number[] = [];
    const paused = new Set<number>();
    const abandoned = new Set<number>();
    /** Partitions with a seek while their batch was being handled. */
    const sought = new Set<number>();
    const isConsumed = (partition: number): boolean =>
      (options.partitions?.includes(partition) ?? true) &&
      !paused.has(partition) &&
      !abandoned.has(partition);
    let generation = 0;
    let isStopping = false;
    let member: Member = { process, lastBeat: 0, joining: null, isMember: false };

    const crash = (error: unknown): void => {
      if (isStopping) return;
      isStopping = true;
      leave(member);
      options.onCrash(error);
    };

    const onAssigned = (assigned: readonly number[]): void => {
      process.isExpelled = false;
      generation += 1;
      const mine = generation;
      const previous = expected;
      expected = new Map();
      assignment = assigned;
      abandoned.clear();
      for (const partition of assigned.filter(isConsumed)) {
        const start = options.startAt(topic.name, partition);
        expected.set(partition, start);
        start.then(
          (offset) => {
            if (mine === generation) expected.set(partition, offset);
          },
          (error: unknown) => crash(error),
        );
      }
      const lost = [...previous.keys()].filter((partition) => !expected.has(partition));
      if (lost.length > 0) count('partitions reassigned');
      if (lost.length > 0) options.onRevoked?.(lost.map((partition) => ({ topic: topic.name, partition })));
    };

    const join = async (): Promise<void> => {
      if (!member.isMember) {
        member = { process, lastBeat: clock.now(), joining: null, isMember: true };
        members.push(member);
        rebalance();
        if (!isCoordinated) void runCoordinator();
      }
      const own = member;
      const assigned = await new Promise<readonly number[] | null>((resolve) => {
        own.joining = resolve;
        void (async () => {
          // Expelled: it joins again as a new member.
          while (own.isMember && own.joining === resolve) await clock.sleep(COORDINATOR_MS);
          resolve(null);
        })();
      });
      await process.clock.sleep(random.below(100));
      if (assigned !== null && own.isMember && !isStopping) onAssigned(assigned);
    };

    const sendHeartbeats = async (): Promise<void> => {
      while (!isStopping && !process.isKilled()) {
        if (process.sendsHeartbeats()) member.lastBeat = clock.now();
        await clock.sleep(HEARTBEAT_MS / 2 + random.below(HEARTBEAT_MS));
      }
    };

    const deliver = async (partition: number): Promise<void> => {
      const mine = generation;
      // A failed lookup has crashed the consumer already.
      const next = await Promise.resolve(expected.get(partition)).catch(() => undefined);
      if (next === undefined || mine !== generation || isStopping) return;
      const log = read(partition);
      const most = 1 + random.below(random.pick([3, 10, 60]));
      const messages = log.slice(next, next + most);
      const highWatermark = log.length;
      await process.clock.sleep(1 + random.below(random.chance(50) ? 2000 : 20)); // duration of the fetch
      // Discards the fetch after a seek or a rebalance.
      if (messages.length === 0 || mine !== generation || expected.get(partition) !== next || isStopping)
        return;
      trace(`${process.name} reads ${partition}:${next} and ${messages.length - 1} more`);
      let handled: Handled | void;
      sought.delete(partition);
      try {
        handled = await options.onBatch({ topic: topic.name, partition, messages, highWatermark });
      } catch (error) {
        crash(error);
        return;
      }
      if (mine !== generation || sought.has(partition)) return;
      if (handled === 'abandoned') {
        abandoned.add(partition);
        return;
      }
      expected.set(partition, next + messages.length);
    };

    const run = async (): Promise<void> => {
      while (!isStopping) {
        await process.awake();
        if (!member.isMember || rebalancingSince !== null) {
          // Members learn of a rebalance by heartbeat, and only between two batches.
          await process.clock.sleep(random.below(HEARTBEAT_MS));
          await join();
          continue;
        }
        const ready = assignment.filter((partition) => {
          const next = expected.get(partition);
          return (
            next !== undefined &&
            isConsumed(partition) &&
            (typeof next !== 'number' || next < read(partition).length)
          );
        });
        if (ready.length === 0) await process.clock.sleep(1 + random.below(MAX_FETCH_WAIT_MS));
        else await deliver(random.pick(ready));
      }
    };

    void sendHeartbeats();
    const running = run();
    await process.clock.sleep(random.below(50));
    return {
      async stop() {
        isStopping = true;
        await running;
        leave(member);
      },
      seek(_, partition, offset) {
        expected.set(partition, offset);
        sought.add(partition);
        abandoned.delete(partition);
      },
      pause: (_, partition) => void paused.add(partition),
      commit: (_, partition, offset) =>
        process.call('log', 'commit', async () => {
          if (rebalancingSince !== null) throw new Error(`rebalancing: ${partition}:${offset} not committed`);
        }),
      assigned: () => [...expected.keys()].map((partition) => ({ topic: topic.name, partition })),
    };
  };

  return { consume };
}
