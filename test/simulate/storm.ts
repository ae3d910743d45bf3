import { HEIGHT_RANGE, partitionOfHeight, topics } from '../../schemas/topics.ts';
import { chainProjections } from '../../projections/index.ts';
import type { Coverage } from './coverage.ts';
import { poisonMessage } from './poison.ts';
import { projectAgain } from './project-again.ts';
import type { Running } from './stage.ts';
import { verdict } from './verdict.ts';
import { createWorld } from './world.ts';
import type { SimWorld } from './world.ts';

export interface StormReport {
  readonly seed: number;
  /** What is wrong in the end; empty: nothing. */
  readonly breaches: readonly string[];
  /** Of everything that happened, in its order. */
  readonly hash: string;
  readonly coverage: Coverage;
  readonly virtualMs: number;
}

const ROUNDS = 40;
const REST_STEP_MS = 2000;
const REST_STEPS = 300;

/**
 * One storm and the calm after it: forks, faults, deaths, swaps and poison, all drawn from the seed; then the stores are
 * compared with the chain in force, and with the same log projected in another way.
 */
export async function storm(seed: number, onTrace?: (line: string) => void): Promise<StormReport> {
  // A chain that crosses from one range of heights to the next is in two partitions.
  const base = seed % 4 === 0 ? 0 : HEIGHT_RANGE * (seed % 11) + HEIGHT_RANGE - 15;
  const world = createWorld({ seed, onTrace, base });
  const { random, clock, chain, weather } = world;
  chain.acceptOnL1(base + random.below(20) - 3);
  weather.faults = random.pick([0, 10, 60]);
  weather.worst = random.pick([null, 'clickhouse', 'clickhouse', 'state', 'log']);
  weather.kills = random.pick([0, 1, 4]);
  weather.mixedViews = random.pick([0, 20, 200]);
  weather.slow = random.pick([0, 50, 300]);
  weather.short = seed % 5 === 3 ? 150 : 0;
  const crew = createCrew(world);
  const began = clock.now();

  for (let round = 0; round < ROUNDS; round += 1) {
    crew.keepUp();
    await clock.run(random.below(3000));
    random.pick(happenings)(world, crew);
  }
  if (weather.short > 0) {
    // What is fetched ahead comes short, too; `tds verify --repair` is for what has been published.
    weather.short = 0;
    await clock.run(5000);
    for (let height = base; height <= chain.head(); height += 1) world.store.requestRepair(height, true);
  }
  // Something is always half way when it becomes calm.
  random.pick([cutOff, cutOff, pause, kill])(world, crew);
  Object.assign(weather, { faults: 0, kills: 0, mixedViews: 0, slow: 0 });
  chain.advance(1);
  const isAtRest = await rest(world, crew);
  const breaches = [...world.breaches];
  if (isAtRest) {
    breaches.push(...verdict(world));
    breaches.push(...(await projectAgain(world)));
  } else {
    breaches.push(`not at rest after ${(REST_STEPS * REST_STEP_MS) / 1000} s of calm`, ...verdict(world));
  }
  return {
    seed,
    breaches,
    hash: world.traceHash(),
    coverage: world.coverage,
    virtualMs: clock.now() - began,
  };
}

/** The processes of an installation: one of each kind at least, started again when they die. */
interface Crew {
  ingesters: Running[];
  projectors: Running[];
  rebuild: Running | null;
  startIngester(): void;
  startProjector(): void;
  /** Starts what is missing; now and then only later. */
  keepUp(atOnce?: boolean): void;
}

function createCrew(world: SimWorld): Crew {
  const { random, count } = world;
  const isAlive = ({ process }: Running): boolean => !process.isKilled();
  const crew: Crew = {
    ingesters: [],
    projectors: [],
    rebuild: null,
    startIngester() {
      crew.ingesters.push(world.startIngester());
      if (crew.ingesters.length > 1) count('two ingesters');
    },
    startProjector() {
      crew.projectors.push(
        world.startProjector({
          rows: random.pick([1, 5, 40, 50_000]),
          bytes: random.pick([800, 20_000, 48_000_000]),
          waitMs: random.pick([20, 300, 1000]),
          gapMs: random.pick([0, 150]),
        }),
      );
      if (crew.projectors.length > 1) count('two projectors');
    },
    keepUp(atOnce = false) {
      crew.ingesters = crew.ingesters.filter(isAlive);
      crew.projectors = crew.projectors.filter(isAlive);
      if (crew.rebuild !== null && !isAlive(crew.rebuild)) crew.rebuild = null;
      if (crew.ingesters.length === 0 && (atOnce || random.below(3) > 0)) crew.startIngester();
      if (crew.projectors.length === 0 && (atOnce || random.below(3) > 0)) crew.startProjector();
    },
  };
  return crew;
}

type Happening = (world: SimWorld, crew: Crew) => void;

const pickProcess = ({ random }: SimWorld, { ingesters, projectors, rebuild }: Crew): Running | null => {
  const all = [...ingesters, ...projectors, ...projectors, ...(rebuild === null ? [] : [rebuild])];
  return all.length === 0 ? null : random.pick(all);
};

const advance: Happening = ({ chain, random }) => chain.advance(1 + random.below(3));
const forkALittle: Happening = ({ chain, random }) => chain.reorg(1 + random.below(3), 1 + random.below(4));
const forkDeeply: Happening = ({ chain, random }) => chain.reorg(1 + random.below(30), 1 + random.below(35));
const goBack: Happening = ({ chain }) => chain.goBack();
const acceptOnL1: Happening = ({ chain, random }) =>
  chain.acceptOnL1(Math.max(chain.l1(), chain.base) + random.below(6));

const reclassify: Happening = ({ chain, clock, coin, count, random, store }) => {
  coin.standard = random.pick(['unknown', 'erc20', 'erc721']);
  count('contract reclassified');
  // Also above the head: what is fetched ahead may rest on the old answer.
  for (let height = chain.base; height < chain.head() + 60; height += 1) store.requestRepair(height);
  // A fork that meets the repairs half way: their blocks may be in the log with several maps.
  if (random.below(2) > 0) return;
  void clock.sleep(random.below(4000)).then(() => chain.reorg(1 + random.below(8), 1 + random.below(8)));
};

/** `tds verify --repair` */
const readAgain: Happening = (world, { ingesters }) => {
  const { chain, clock, count, random, store, weather } = world;
  count('block read again from the node');
  for (let blocks = random.below(8); blocks >= 0; blocks -= 1) {
    store.requestRepair(chain.base + random.below(chain.blocks().length), true);
  }
  if (weather.short === 0) return;
  // A death half way, and a fork before anybody goes on.
  for (const { body } of chain.blocks()) {
    if (body.height > chain.l1()) store.requestRepair(body.height, true);
  }
  void clock.sleep(random.below(2500)).then(() => {
    for (const { process } of ingesters) process.kill();
    chain.reorg(1 + random.below(8), 1 + random.below(8));
  });
};

const anotherIngester: Happening = (_, crew) => crew.ingesters.length < 2 && crew.startIngester();
const anotherProjector: Happening = (_, crew) => crew.projectors.length < 3 && crew.startProjector();
const kill: Happening = (world, crew) => pickProcess(world, crew)?.process.kill();
const pause: Happening = (world, crew) =>
  pickProcess(world, crew)?.process.pause(world.random.pick([500, 3000, 8000, 20_000]));
const cutOff: Happening = (world, { projectors }) =>
  projectors.length > 0 && world.random.pick(projectors).process.isolate(world.random.pick([5000, 20_000]));

const stopGently: Happening = (world, crew) => {
  const one = pickProcess(world, crew);
  if (one === null) return;
  world.count('process stopped gently');
  world.trace(`${one.process.name} is told to stop`);
  one.stop().then(
    () => one.process.kill(),
    () => one.process.kill(),
  );
};

const rebuild: Happening = (world, crew) => {
  if (crew.rebuild !== null) return;
  const some = chainProjections.filter(() => world.random.below(2) === 0);
  if (some.length === 0) return;
  world.count('rebuild begun');
  crew.rebuild = world.rebuild(some);
};

const poison: Happening = ({ broker, chain, count, random, trace }) => {
  const partition = partitionOfHeight(chain.head());
  const offset = broker.append(topics.chainBlocks, partition, null, poisonMessage(random, chain.head()));
  count('poison message');
  trace(`poison at ${partition}:${offset}`);
};

const operate: Happening = (world) => {
  const halted = world.state.halted();
  if (halted.length === 0) return;
  if (world.random.below(3) > 0) return world.skipHalts();
  world.count('message read again for an operator');
  world.trace('operator has a message read again');
  return world.state.retry(world.random.pick(halted));
};

const weighted: readonly (readonly [Happening, number])[] = [
  [advance, 4],
  [forkALittle, 3],
  [forkDeeply, 1],
  [goBack, 2],
  [acceptOnL1, 2],
  [reclassify, 2],
  [readAgain, 1],
  [anotherIngester, 1],
  [anotherProjector, 2],
  [kill, 2],
  [pause, 2],
  [cutOff, 1],
  [stopGently, 1],
  [rebuild, 2],
  [poison, 1],
  [operate, 2],
];
const happenings = weighted.flatMap(([happening, weight]) => Array.from({ length: weight }, () => happening));

/** Lets everything come to its end; false when it does not. */
async function rest(world: SimWorld, crew: Crew): Promise<boolean> {
  const { chain, clock, store } = world;
  let quiet = 0;
  for (let step = 0; step < REST_STEPS; step += 1) {
    crew.keepUp(true);
    world.skipHalts();
    await clock.run(REST_STEP_MS);
    const isDone =
      store.pendingCount() === 0 &&
      store.isAt(chain.head() + 1) &&
      crew.rebuild === null &&
      ![...crew.ingesters, ...crew.projectors].some((one) => one.process.isPaused()) &&
      world.isCaughtUp();
    quiet = isDone ? quiet + 1 : 0;
    if (quiet === 3) return true;
  }
  return false;
}
