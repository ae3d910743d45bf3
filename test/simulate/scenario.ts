import { HEIGHT_RANGE, partitionOfHeight, topics } from '../../schemas/topics.ts';
import { chainProjections } from '../../projections/index.ts';
import type { Coverage } from './coverage.ts';
import { poisonMessage } from './poison.ts';
import { checkReprojection } from './reproject.ts';
import type { Running } from './stage.ts';
import { checkWorld } from './checks.ts';
import { createWorld } from './world.ts';
import type { SimWorld } from './world.ts';

export interface ScenarioReport {
  readonly seed: number;
  /** Violated invariants; empty if the seed passes. */
  readonly violations: readonly string[];
  /** Hash of the trace. */
  readonly hash: string;
  readonly coverage: Coverage;
  readonly virtualMs: number;
}

const ROUNDS = 40;
const RECOVERY_STEP_MS = 2000;
const RECOVERY_STEPS = 300;

/**
 * Runs one scenario: reorgs, faults, kills, swaps and poison messages drawn from the seed, then a recovery without faults.
 * Then compares the stores with the canonical chain, and with another projection of the same log.
 */
export async function runScenario(seed: number, onTrace?: (line: string) => void): Promise<ScenarioReport> {
  // A chain across two ranges of heights is in two partitions.
  const base = seed % 4 === 0 ? 0 : HEIGHT_RANGE * (seed % 11) + HEIGHT_RANGE - 15;
  const world = createWorld({ seed, onTrace, base });
  const { random, clock, chain, faultRates } = world;
  chain.acceptOnL1(base + random.below(20) - 3);
  faultRates.faults = random.pick([0, 10, 60]);
  faultRates.worst = random.pick([null, 'clickhouse', 'clickhouse', 'state', 'log']);
  faultRates.kills = random.pick([0, 1, 4]);
  faultRates.staleViews = random.pick([0, 20, 200]);
  faultRates.slow = random.pick([0, 50, 300]);
  faultRates.short = seed % 5 === 3 ? 150 : 0;
  const processes = createProcesses(world);
  const startedAt = clock.now();

  for (let round = 0; round < ROUNDS; round += 1) {
    processes.restartStopped();
    if (random.below(4) === 0) processes.replica?.promote();
    await clock.run(random.below(3000));
    random.pick(actions)(world, processes);
  }
  processes.replica?.promote();
  if (faultRates.short > 0) {
    // Prefetched blocks may be incomplete, too: let them be published, then repair all as `tds verify --repair` does.
    faultRates.short = 0;
    await clock.run(5000);
    for (let height = base; height <= chain.head(); height += 1) world.store.requestRepair(height, true);
  }
  // Leaves something half done before the recovery.
  random.pick([isolate, isolate, pause, kill])(world, processes);
  Object.assign(faultRates, { faults: 0, kills: 0, staleViews: 0, slow: 0 });
  chain.advance(1);
  const isIdle = await recover(world, processes);
  const violations = [...world.violations];
  if (isIdle) {
    violations.push(...checkWorld(world));
    violations.push(...(await checkReprojection(world)));
  } else {
    violations.push(
      `not idle after ${(RECOVERY_STEPS * RECOVERY_STEP_MS) / 1000} s without faults`,
      ...checkWorld(world),
    );
  }
  return {
    seed,
    violations,
    hash: world.traceHash(),
    coverage: world.coverage,
    virtualMs: clock.now() - startedAt,
  };
}

/** The processes of an installation: at least one of each kind, restarted when killed. */
interface Processes {
  ingesters: Running[];
  projectors: Running[];
  rebuild: Running | null;
  /** A replica of PostgreSQL that receives nothing any more. */
  replica: Replica | null;
  startIngester(): void;
  startProjector(): void;
  /** Starts missing processes; by chance not yet unless `atOnce`. */
  restartStopped(atOnce?: boolean): void;
}

interface Replica {
  /** A contract was reclassified since: the operator must repeat it after a fail-over. */
  lacksRepairs: boolean;
  /** Fails over to it. */
  promote(): void;
}

function createProcesses(world: SimWorld): Processes {
  const { random, count } = world;
  const isAlive = ({ process }: Running): boolean => !process.isKilled();
  const processes: Processes = {
    ingesters: [],
    projectors: [],
    rebuild: null,
    replica: null,
    startIngester() {
      processes.ingesters.push(world.startIngester());
      if (processes.ingesters.length > 1) count('two ingesters');
    },
    startProjector() {
      processes.projectors.push(
        world.startProjector({
          rows: random.pick([1, 5, 40, 50_000]),
          bytes: random.pick([800, 20_000, 48_000_000]),
          waitMs: random.pick([20, 300, 1000]),
          gapMs: random.pick([0, 150]),
        }),
      );
      if (processes.projectors.length > 1) count('two projectors');
    },
    restartStopped(atOnce = false) {
      processes.ingesters = processes.ingesters.filter(isAlive);
      processes.projectors = processes.projectors.filter(isAlive);
      if (processes.rebuild !== null && !isAlive(processes.rebuild)) processes.rebuild = null;
      if (processes.ingesters.length === 0 && (atOnce || random.below(3) > 0)) processes.startIngester();
      if (processes.projectors.length === 0 && (atOnce || random.below(3) > 0)) processes.startProjector();
    },
  };
  return processes;
}

type Action = (world: SimWorld, processes: Processes) => void;

const pickProcess = ({ random }: SimWorld, { ingesters, projectors, rebuild }: Processes): Running | null => {
  const all = [...ingesters, ...projectors, ...projectors, ...(rebuild === null ? [] : [rebuild])];
  return all.length === 0 ? null : random.pick(all);
};

const advance: Action = ({ chain, random }) => chain.advance(1 + random.below(3));
const shallowReorg: Action = ({ chain, random }) => chain.reorg(1 + random.below(3), 1 + random.below(4));
const deepReorg: Action = ({ chain, random }) => chain.reorg(1 + random.below(30), 1 + random.below(35));
const returnToFork: Action = ({ chain }) => chain.returnToFork();
const acceptOnL1: Action = ({ chain, random }) =>
  chain.acceptOnL1(Math.max(chain.l1(), chain.base) + random.below(6));

const requestRepairs = ({ chain, store }: SimWorld): void => {
  // Also above the head: prefetched blocks may carry the previous answer.
  for (let height = chain.base; height < chain.head() + 60; height += 1) store.requestRepair(height);
};

const reclassify: Action = (world, { replica }) => {
  const { chain, clock, coin, count, random } = world;
  coin.standard = random.pick(['unknown', 'erc20', 'erc721']);
  count('contract reclassified');
  requestRepairs(world);
  if (replica !== null) replica.lacksRepairs = true;
  // A reorg during the repairs: their blocks may be in the log with several contracts maps.
  if (random.below(2) > 0) return;
  void clock.sleep(random.below(4000)).then(() => chain.reorg(1 + random.below(8), 1 + random.below(8)));
};

/** `tds verify --repair` */
const refetchBlocks: Action = (world, { ingesters }) => {
  const { chain, clock, count, random, store, faultRates } = world;
  count('block refetched from the node');
  for (let blocks = random.below(8); blocks >= 0; blocks -= 1) {
    store.requestRepair(chain.base + random.below(chain.blocks().length), true);
  }
  if (faultRates.short === 0) return;
  // A kill during the repairs, and a reorg before a restart.
  for (const { body } of chain.blocks()) {
    if (body.height > chain.l1()) store.requestRepair(body.height, true);
  }
  void clock.sleep(random.below(2500)).then(() => {
    for (const { process } of ingesters) process.kill();
    chain.reorg(1 + random.below(8), 1 + random.below(8));
  });
};

const addIngester: Action = (_, processes) => processes.ingesters.length < 2 && processes.startIngester();
const addProjector: Action = (_, processes) => processes.projectors.length < 3 && processes.startProjector();
const kill: Action = (world, processes) => pickProcess(world, processes)?.process.kill();
const pause: Action = (world, processes) =>
  pickProcess(world, processes)?.process.pause(world.random.pick([500, 3000, 8000, 20_000]));
const isolate: Action = (world, { projectors }) =>
  projectors.length > 0 && world.random.pick(projectors).process.isolate(world.random.pick([5000, 20_000]));

const stopGracefully: Action = (world, processes) => {
  const one = pickProcess(world, processes);
  if (one === null) return;
  world.count('process stopped gracefully');
  world.trace(`${one.process.name} is stopping`);
  one.stop().then(
    () => one.process.kill(),
    () => one.process.kill(),
  );
};

const rebuild: Action = (world, processes) => {
  if (processes.rebuild !== null) return;
  const some = chainProjections.filter(() => world.random.below(2) === 0);
  if (some.length === 0) return;
  world.count('rebuild started');
  processes.rebuild = world.rebuild(some);
};

const poison: Action = ({ broker, chain, count, random, trace }) => {
  const partition = partitionOfHeight(chain.head());
  const offset = broker.append(topics.chainBlocks, partition, null, poisonMessage(random, chain.head()));
  count('poison message');
  trace(`poison at ${partition}:${offset}`);
};

const operate: Action = (world) => {
  const halted = world.state.halted();
  if (halted.length === 0) return;
  if (world.random.below(3) > 0) return world.skipHalts();
  world.count('message retried by an operator');
  world.trace('operator retries a message');
  return world.state.retry(world.random.pick(halted));
};

const cutOffReplica: Action = (world, processes) => {
  const { clock, count, store, trace } = world;
  // The log is not compared with a chunk that PostgreSQL does not know as started (docs/operations.md).
  if (processes.replica !== null || !store.isStarted()) return;
  const restore = world.snapshotPostgres();
  const cutAt = clock.now();
  trace('replica is cut off');
  const replica: Replica = {
    lacksRepairs: false,
    promote() {
      processes.replica = null;
      count('PostgreSQL fail-over');
      trace(`PostgreSQL loses the transactions of ${clock.now() - cutAt} ms`);
      restore();
      // It has lost the session with its lock.
      processes.rebuild?.process.kill();
      if (replica.lacksRepairs) requestRepairs(world);
    },
  };
  processes.replica = replica;
};

const weighted: readonly (readonly [Action, number])[] = [
  [advance, 4],
  [shallowReorg, 3],
  [deepReorg, 1],
  [returnToFork, 2],
  [acceptOnL1, 2],
  [reclassify, 2],
  [refetchBlocks, 1],
  [addIngester, 1],
  [addProjector, 2],
  [kill, 2],
  [pause, 2],
  [isolate, 1],
  [stopGracefully, 1],
  [rebuild, 2],
  [poison, 1],
  [operate, 2],
  [cutOffReplica, 1],
];
const actions = weighted.flatMap(([action, weight]) => Array.from({ length: weight }, () => action));

/** Runs without faults until all work is done; false if it never is. */
async function recover(world: SimWorld, processes: Processes): Promise<boolean> {
  const { chain, clock, store } = world;
  let quiet = 0;
  for (let step = 0; step < RECOVERY_STEPS; step += 1) {
    processes.restartStopped(true);
    world.skipHalts();
    await clock.run(RECOVERY_STEP_MS);
    const isDone =
      store.pendingCount() === 0 &&
      store.isAt(chain.head() + 1) &&
      processes.rebuild === null &&
      ![...processes.ingesters, ...processes.projectors].some((one) => one.process.isPaused()) &&
      world.isCaughtUp();
    quiet = isDone ? quiet + 1 : 0;
    if (quiet === 3) return true;
  }
  return false;
}
