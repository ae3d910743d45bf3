import { AppError } from '../../schemas/errors.ts';
import { CHAIN_BLOCKS_PARTITIONS } from '../../schemas/topics.ts';
import type { Build } from '../../projections/engine/builds.ts';
import type { ClickHouseProjection } from '../../projections/define.ts';
import type { ProjectionState } from '../../projections/engine/state.ts';
import type { SimClock } from './clock.ts';
import type { Count } from './coverage.ts';
import type { SimProcess } from './process.ts';

/*
 * The projections' state of PostgreSQL (builds, checkpoints, halts) in memory, for fault injection. The SQL itself is tested
 * on PostgreSQL (test/integration/projections).
 */

export interface SimBuild extends Build {
  state: 'building' | 'serving' | 'retired';
}

export interface SimProjectionState {
  /** The served build. */
  served(projection: string): SimBuild;
  /** The shadow build for a rebuild: an unfinished one, or a new one. */
  openShadowBuild(projection: ClickHouseProjection): SimBuild;
  /** Next offsets by partition; a copy. */
  checkpoints(build: Build): ReadonlyMap<number, number>;
  /**
   * Waits until every writer's lock is released and blocks new ones; lost when the process ends or freezes. Then
   * `swapBuilds` does nothing.
   */
  withSwapLock(
    process: SimProcess,
    work: (swapBuilds: (shadows: readonly SimBuild[]) => void) => Promise<void>,
  ): Promise<void>;
  /** Messages that halt a served build, as `<partition>:<offset>`. */
  halted(): string[];
  /** Skips a poison message for the projections that it halts. */
  skip(message: string): void;
  /** Has a poison message read again. */
  retry(message: string): void;
  isWritten(): boolean;
  /** Copies the state. The result sets it back, as a fail-over that loses all transactions since. */
  snapshot(): () => void;
  port(process: SimProcess): ProjectionState;
}

export interface StateWorld {
  readonly projections: readonly ClickHouseProjection[];
  readonly count: Count;
  /** Creates the tables of a build. */
  readonly create: (projection: ClickHouseProjection, names: Build['names']) => void;
  /** High watermark of a partition of `chain.blocks`. */
  readonly high: (partition: number) => number;
  readonly clock: Pick<SimClock, 'sleep'>;
  readonly later: (work: () => void) => void;
}

export function createProjectionState(world: StateWorld): SimProjectionState {
  const { count } = world;
  let builds: SimBuild[] = [];
  let checkpoints = new Map<string, number>();
  let halts = new Map<string, number>();
  let skips = new Set<string>();
  const lock = createLock(world);

  const keyOf = ({ projection, build }: Build, partition: number): string =>
    `${projection}/${build}/${partition}`;

  const createBuild = (projection: ClickHouseProjection, state: SimBuild['state']): SimBuild => {
    const number = 1 + builds.filter((one) => one.projection === projection.name).length;
    const placeholders = [...projection.ddl.matchAll(/CREATE TABLE IF NOT EXISTS \{\{([a-z_]+)\}\}/g)];
    const names = Object.fromEntries(
      placeholders.map(([, name = '']) => [name, `${name}_v${projection.version}_b${number}`]),
    );
    const build: SimBuild = {
      projection: projection.name,
      version: projection.version,
      build: number,
      names,
      state,
    };
    world.create(projection, names);
    builds.push(build);
    return build;
  };
  for (const projection of world.projections) createBuild(projection, 'serving');

  const find = ({ projection, build }: Build): SimBuild => {
    const found = builds.find((one) => one.projection === projection && one.build === build);
    if (found === undefined) throw new RangeError(`no build ${build} of ${projection}`);
    return found;
  };
  const stateOf = ({ projection, build }: Build): SimBuild['state'] | undefined =>
    builds.find((one) => one.projection === projection && one.build === build)?.state;
  const serve = (shadow: SimBuild): void => {
    for (const build of builds) {
      if (build.projection === shadow.projection && build.state === 'serving') build.state = 'retired';
    }
    find(shadow).state = 'serving';
    count('build swapped');
  };
  const checkServed = (written: readonly Build[]): void => {
    // A fail-over may have lost a build.
    const retired = written.find((build) => stateOf(build) !== 'serving');
    if (retired === undefined) return;
    throw new AppError(
      'BUILD_RETIRED',
      `Build ${retired.build} of ${retired.projection} is not served any more`,
    );
  };
  const ofBuild = (build: Build): Map<number, number> =>
    new Map(
      Array.from({ length: CHAIN_BLOCKS_PARTITIONS }, (_, partition) => [
        partition,
        checkpoints.get(keyOf(build, partition)) ?? 0,
      ]),
    );

  return {
    served(projection) {
      const found = builds.find((one) => one.projection === projection && one.state === 'serving');
      if (found === undefined) throw new RangeError(`no build of ${projection} is served`);
      return found;
    },
    openShadowBuild: (projection) =>
      builds.find((one) => one.projection === projection.name && one.state === 'building') ??
      createBuild(projection, 'building'),
    checkpoints: ofBuild,
    async withSwapLock(process, work) {
      const held = await lock.exclusive(process);
      try {
        await work((shadows) => {
          if (held.isLost() || process.isKilled()) return;
          for (const shadow of shadows) serve(shadow);
        });
      } finally {
        held.release();
      }
    },
    halted() {
      const places = [...halts].flatMap(([key, offset]) => {
        const [projection = '', build = '', partition = ''] = key.split('/');
        const isServed = builds.some(
          (one) => one.projection === projection && one.build === Number(build) && one.state === 'serving',
        );
        return isServed ? [`${partition}:${offset}`] : [];
      });
      return [...new Set(places)];
    },
    skip(message) {
      for (const [key, offset] of halts) {
        const [projection = '', , partition = ''] = key.split('/');
        if (`${partition}:${offset}` === message) skips.add(`${projection}/${message}`);
      }
    },
    retry(message) {
      for (const [key, offset] of halts) {
        if (`${key.split('/')[2]}:${offset}` === message) halts.delete(key);
      }
    },
    isWritten: () => lock.isHeld(),
    snapshot() {
      const stored = structuredClone({ builds, checkpoints, halts, skips });
      return () => {
        ({ builds, checkpoints, halts, skips } = structuredClone(stored));
      };
    },

    port(process) {
      const ask = <T>(name: string, answer: () => T, mayBeLate = false): Promise<T> =>
        process.call('state', name, async () => answer(), { mayBeLate });
      const skipped = (build: Build, { partition, offset }: { partition: number; offset: number }): boolean =>
        skips.has(`${build.projection}/${partition}:${offset}`);
      return {
        checkpoints: ({ topicId }, build) =>
          ask('checkpoints', () => {
            for (const [partition, next] of ofBuild(build)) {
              const high = world.high(partition);
              if (next <= high) continue;
              throw new AppError(
                'CHECKPOINT_OUTSIDE_LOG',
                `${keyOf(build, partition)} of ${topicId}: ${next}, not ${high}`,
              );
            }
            return ofBuild(build);
          }),
        announceIndexed: () => ask('announcement', () => {}),
        move: (_, moves) =>
          ask(
            'move',
            () => {
              const refused = moves.filter(({ build, partition, expected, next }) => {
                const key = keyOf(build, partition);
                if ((checkpoints.get(key) ?? 0) !== expected || (stateOf(build) ?? 'retired') === 'retired')
                  return true;
                checkpoints.set(key, next);
                if ((halts.get(key) ?? Infinity) < next) halts.delete(key);
                return false;
              });
              if (refused.length > 0) count('checkpoint move refused');
              if (refused.length < moves.length) count('checkpoint moved');
              return refused;
            },
            true,
          ),
        async lockServed(written) {
          const granted: Held[] = [];
          let isAbandoned = false;
          const releaseAll = (): void => granted.forEach((held) => held.release());
          try {
            await process.call('state', 'lockServed', async () => {
              granted.push(await lock.shared(process));
              // A failed call has lost its connection, and its lock with it.
              if (isAbandoned) releaseAll();
              checkServed(written);
            });
          } catch (error) {
            isAbandoned = true;
            releaseAll();
            throw error;
          }
          return {
            isLost: () => granted.some((held) => held.isLost()),
            release: () => process.call('state', 'release', async () => releaseAll()).catch(releaseAll),
          };
        },
        recordHalt: (stopped, { message }) =>
          ask('recordHalt', () => {
            count('partition halted');
            for (const build of stopped) halts.set(keyOf(build, message.partition), message.offset);
          }),
        isSkipped: (stopped, message) =>
          ask('isSkipped', () => stopped.every((build) => skipped(build, message))),
        isHalted: (stopped, { partition, offset }) =>
          ask('isHalted', () => stopped.some((build) => halts.get(keyOf(build, partition)) === offset)),
        checkServed: (written) => ask('checkServed', () => checkServed(written)),
      };
    },
  };
}

interface Held {
  /** True if a frozen process has lost the lock. */
  isLost(): boolean;
  release(): void;
}

/** A fair shared and exclusive lock, as PostgreSQL's advisory locks. A killed holder releases it a little later. */
function createLock({ clock, count, later }: Pick<StateWorld, 'clock' | 'count' | 'later'>) {
  let shared = 0;
  let isExclusive = false;
  let queue: { readonly isExclusive: boolean; grant(): void }[] = [];

  const serve = (): void => {
    for (let next = queue[0]; next !== undefined; next = queue[0]) {
      if (isExclusive || (next.isExclusive && shared > 0)) return;
      queue = queue.slice(1);
      if (next.isExclusive) isExclusive = true;
      else shared += 1;
      next.grant();
    }
  };

  const acquire = (wantsExclusive: boolean, process: SimProcess): Promise<Held> =>
    new Promise((resolve) => {
      let isHeld = false;
      let isOver = false;
      let isLost = false;
      const release = (): void => {
        if (isOver) return;
        isOver = true;
        if (!isHeld) queue = queue.filter((one) => one !== entry);
        else if (wantsExclusive) isExclusive = false;
        else shared -= 1;
        serve();
      };
      const guard = async (): Promise<void> => {
        while (!isOver) {
          await clock.sleep(LOCK_CHECK_MS);
          if (isOver || !process.isFrozen()) continue;
          count('lock lost by a frozen process');
          isLost = true;
          release();
        }
      };
      const entry = {
        isExclusive: wantsExclusive,
        grant(): void {
          isHeld = true;
          void guard();
          resolve({ isLost: () => isLost, release });
        },
      };
      if (process.isKilled()) return;
      process.onKill(() => later(release));
      queue.push(entry);
      serve();
    });
  return {
    isHeld: () => isExclusive || shared > 0,
    shared: (process: SimProcess) => acquire(false, process),
    exclusive: (process: SimProcess) => acquire(true, process),
  };
}

const LOCK_CHECK_MS = 1000;
