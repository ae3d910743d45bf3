import type { Clock } from '../../infra/clock.ts';
import { AppError } from '../../schemas/errors.ts';
import type { SimClock } from './clock.ts';
import type { Count } from './coverage.ts';
import type { Random } from '../support/random.ts';

/** Probabilities in thousandths. */
export interface FaultRates {
  /** A call fails: not applied, applied, or applied later. */
  faults: number;
  /** The store that fails five times as often. */
  worst: Part | null;
  /** The process is killed during a call. What it sent may still arrive. */
  kills: number;
  /** The node answers from another fork, or from a shorter chain. */
  staleViews: number;
  /** The node, whose headers have no event count, omits an event of a block that is not final. */
  short: number;
  /** An insert into ClickHouse takes seconds. */
  slow: number;
}

export type Part = 'node' | 'store' | 'log' | 'clickhouse' | 'state';

interface CallOptions {
  /** The call may be applied after its failure was reported, as when a client times out and the server continues. */
  readonly mayBeLate?: boolean;
  /** Reads at once but writes so much later, with outdated input. */
  readonly late?: (ms: number) => Promise<unknown>;
  readonly error?: () => Error;
}

/** One process of the service: all its effects go through `call`, and its time through `clock`. */
export interface SimProcess {
  readonly name: string;
  /** Sleeps of a killed process never end. */
  readonly clock: Clock;
  isKilled(): boolean;
  /** `kill -9`. */
  kill(): void;
  /** SIGSTOP, and SIGCONT later. */
  pause(ms: number): void;
  isPaused(): boolean;
  /** Paused for so long that servers have closed its connections. */
  isFrozen(): boolean;
  /** True from the first pause of that length on. */
  wasFrozen(): boolean;
  /** Isolated from its consumer group only: it keeps writing, unaware of a rebalance. */
  isolate(ms: number): void;
  /** False while its heartbeats do not arrive. */
  sendsHeartbeats(): boolean;
  /** Its group has reassigned its partitions, and it does not know yet. */
  isExpelled: boolean;
  onKill(work: () => void): void;
  call<T>(part: Part, name: string, work: () => Promise<T>, options?: CallOptions): Promise<T>;
  /** Resolves when the process runs: at once, after a pause, or never if it was killed. */
  awake(): Promise<void>;
}

export interface ProcessWorld {
  readonly clock: SimClock;
  readonly random: Random;
  readonly faultRates: FaultRates;
  readonly count: Count;
  readonly trace: (event: string) => void;
  /** True for parts whose calls may fail. */
  readonly isFaulty: (part: Part) => boolean;
}

/** Shorter than a lease: Kafka checks no epochs, so nothing sent under a lease may arrive after its end. */
const LATE_MS = 4000;
/** As projections/served-lock.ts has it. */
const IDLE_MS = 10_000;

export function createProcess(world: ProcessWorld, name: string): SimProcess {
  const { clock, random, faultRates, count, trace } = world;
  const never = new Promise<never>(() => {});
  const onKill: (() => void)[] = [];
  let killed = false;
  let pausedAt = 0;
  let pausedUntil = 0;
  let stoodStill = false;
  let isolatedUntil = 0;

  const awake = async (): Promise<void> => {
    if (killed) await never;
    while (clock.now() < pausedUntil) await clock.sleep(pausedUntil - clock.now());
    if (killed) await never;
  };

  const kill = (): void => {
    if (killed) return;
    killed = true;
    count('process killed');
    trace(`${name} is killed`);
    for (const work of onKill) work();
  };

  const applyLater = (work: () => Promise<unknown>): void =>
    void clock
      .sleep(random.below(LATE_MS))
      .then(work)
      .catch(() => {});

  const call: SimProcess['call'] = async (part, what, work, options = {}) => {
    const label = `${name} ${part}.${what}`;
    if (killed) return await never;
    if (random.chance(faultRates.kills)) {
      kill();
      const sent = random.chance(500);
      trace(`${label} killed during the call${sent ? ', sent' : ''}`);
      if (sent) {
        count('write of a killed process');
        applyLater(work);
      }
      return await never;
    }
    await clock.sleep(1 + random.below(15));
    if (killed) {
      if (random.chance(500)) work().catch(() => {});
      return await never;
    }
    const fails =
      world.isFaulty(part) && random.chance(faultRates.faults * (part === faultRates.worst ? 5 : 1));
    const kind = fails ? random.below(options.mayBeLate === true ? 3 : 2) : -1;
    if (kind === -1) {
      try {
        const value = await work();
        trace(label);
        return value;
      } catch (error) {
        trace(`${label} refused`);
        throw error;
      } finally {
        if (random.chance(100)) await clock.sleep(random.below(200));
        await awake();
      }
    }
    trace(`${label} ${['fails', 'answer lost', 'late'][kind]}`);
    count(`${part}: ${['call failed', 'answer lost', 'applied late'][kind]}`);
    if (kind === 1) await work().catch(() => {});
    if (kind === 2 && options.late !== undefined) options.late(random.below(LATE_MS)).catch(() => {});
    else if (kind === 2) applyLater(work);
    await awake();
    throw (options.error ?? lost)();
  };

  return {
    name,
    isExpelled: false,
    awake,
    call,
    kill,
    isKilled: () => killed,
    pause(ms) {
      count('process paused');
      trace(`${name} is paused for ${ms}`);
      if (clock.now() >= pausedUntil) pausedAt = clock.now();
      pausedUntil = Math.max(pausedUntil, clock.now() + ms);
      stoodStill ||= pausedUntil - pausedAt >= IDLE_MS;
    },
    isPaused: () => clock.now() < pausedUntil,
    isFrozen: () => clock.now() < pausedUntil && clock.now() - pausedAt >= IDLE_MS,
    wasFrozen: () => stoodStill,
    isolate(ms) {
      count('process isolated from its group');
      trace(`${name} is isolated for ${ms}`);
      isolatedUntil = Math.max(isolatedUntil, clock.now() + ms);
    },
    sendsHeartbeats: () => !killed && clock.now() >= pausedUntil && clock.now() >= isolatedUntil,
    onKill: (work) => void onKill.push(work),
    clock: {
      now: () => clock.now(),
      wallTime: () => clock.wallTime(),
      random: () => clock.random(),
      async sleep(ms, signal) {
        await clock.sleep(ms, signal);
        await awake();
      },
      async turn() {
        await clock.turn();
        await awake();
      },
    },
  };
}

function lost(): AppError {
  return new AppError('STORE_UNAVAILABLE', 'answer lost', { retryable: true });
}
