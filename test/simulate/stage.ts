import { createHash } from 'node:crypto';

import { Registry } from 'prom-client';

import type { Row } from '../../infra/clickhouse/row-binary.ts';
import { createLogger } from '../../infra/log.ts';
import { followServed } from '../../projections/engine/run/follow-served.ts';
import type { ProjectionRun } from '../../projections/engine/run/lifetime.ts';
import type { GatherLimits } from '../../projections/engine/run/gatherer.ts';
import type { BlockProjection } from '../../projections/define.ts';
import { runPass } from '../../projections/engine/deferred/pass.ts';
import { chainProjections } from '../../projections/index.ts';
import { tokenHolders } from '../../projections/token-holders/projector.ts';
import { createProjectionMetrics } from '../../projections/engine/metrics.ts';
import { runTargets } from '../../projections/engine/run/clickhouse-runner.ts';
import type { Target } from '../../projections/engine/run/batch.ts';
import { AppError, isRetryable } from '../../schemas/errors.ts';
import { topics } from '../../schemas/topics.ts';
import { createBroker } from './broker.ts';
import { createSimClock } from './clock.ts';
import { counter } from './coverage.ts';
import type { Coverage } from './coverage.ts';
import { createProcess } from './process.ts';
import type { Part, SimProcess, FaultRates } from './process.ts';
import { createProjectionState } from './projection-state.ts';
import { createRandom } from '../support/random.ts';
import { createSimClickHouse } from './tables.ts';
import type { SimTable } from './sim-table.ts';

export const log = createLogger('sim', process.env['SIM_LOG'] ?? 'silent');
export const metrics = createProjectionMetrics(new Registry());

/** All blocks of a simulated chain are in one hour, so that period-stats has nothing to derive. */
const simulated: readonly BlockProjection[] = [tokenHolders, ...chainProjections];
/** Pause between passes. */
const PASS_MS = 700;

/** A process that a scenario controls. */
export interface Running {
  readonly process: SimProcess;
  /** SIGTERM. */
  stop(): Promise<void>;
}

export interface StageOptions {
  readonly seed: number;
  /** Called with every line of the trace. */
  readonly onTrace?: ((line: string) => void) | undefined;
}

/** Virtual time, simulated stores and projector processes, driven by one seed. */
export function createStage({ seed, onTrace }: StageOptions) {
  const random = createRandom(seed);
  const clock = createSimClock(1_700_000_000_000, () => random.below(1000) / 1000);
  const faultRates: FaultRates = { faults: 0, worst: null, kills: 0, staleViews: 0, short: 0, slow: 0 };
  const coverage: Coverage = new Map();
  const count = counter(coverage);
  const hash = createHash('sha256');
  const faulty: { part: Part | 'all' } = { part: 'all' };
  const violations: string[] = [];

  const trace = (event: string): void => {
    const line = `${clock.now() - 1_700_000_000_000} ${event}`;
    hash.update(line);
    onTrace?.(line);
  };
  const world = {
    clock,
    random,
    faultRates,
    count,
    trace,
    isFaulty: (part: Part) => faulty.part === 'all' || faulty.part === part,
  };
  const broker = createBroker(world);
  const clickhouse = createSimClickHouse(world);
  const state = createProjectionState({
    projections: simulated,
    count,
    clock,
    create: (projection, names) => clickhouse.create(projection.ddl, names),
    high: (partition) => broker.read(topics.chainBlocks, partition).length,
    later: (work) => void clock.sleep(random.below(1500)).then(work),
  });
  let processes = 0;
  let passNumber = 0;
  const newProcess = (role: string): SimProcess => createProcess(world, `${role}-${(processes += 1)}`);

  /** Kills a process that failed by itself; any cause but an unavailable store is a violation. */
  const ended = (one: SimProcess, error: unknown, expected: readonly string[] = []): void => {
    const code = error instanceof AppError ? error.code : '';
    if (!isRetryable(error) && !expected.includes(code))
      violations.push(`${one.name} failed: ${String(error)}`);
    count('process failed');
    one.kill();
  };

  const table = (name: string): SimTable => {
    const owner = simulated.find(({ ddl }) => ddl.includes(`{{${name}}}`));
    const build = state.served(owner?.name ?? '');
    return clickhouse.table(build.names[name] ?? '');
  };

  /** Checks that a block counted as indexed can be queried: its transfers, or newer versions, are stored. */
  clickhouse.onInsert = (name, rows, by) => {
    if (name !== state.served('indexed-blocks').names['indexed_blocks'] || by.wasFrozen()) return;
    const row = rows.find((one) => one['is_deleted'] === 0 && Number(one['transfers']) > 0);
    if (row === undefined || !random.chance(200)) return;
    count('indexed totals checked');
    const isOfBlock = (one: Row): boolean =>
      one['block_desc'] === row['block_desc'] && Number(one['seq']) >= Number(row['seq']);
    const found = table('transfers')
      .latest(() => 0)
      .filter(isOfBlock).length;
    if (found >= Number(row['transfers'])) return;
    violations.push(
      `${by.name} indexed block ${0xffff_ffff - Number(row['block_desc'])}, but only ${found} of its transfers are stored`,
    );
  };

  const isDue = (): boolean => table(tokenHolders.deferred.due).final().length > 0;

  /** Passes without a lock: those of two processes run at the same time. */
  const startPasses = (own: SimProcess): (() => void) => {
    let isStopped = false;
    const pass = async (): Promise<void> => {
      const build = state.served(tokenHolders.name);
      const ledger = state.served('account-ledger');
      const read = state.checkpoints(ledger);
      await runPass(tokenHolders, {
        clickhouse: clickhouse.client(own),
        log,
        names: { ...ledger.names, ...build.names },
        readUpTo: (partition) => read.get(partition) ?? 0,
        number: () => own.call('state', 'passNumber', async () => (passNumber += 1)),
        isNewest: (pass) => own.call('state', 'lastPass', async () => pass === passNumber),
      });
    };
    const loop = async (): Promise<void> => {
      while (!isStopped && !own.isKilled()) {
        await own.clock.sleep(PASS_MS);
        try {
          await pass();
          count('pass');
        } catch (error) {
          if (error instanceof TypeError || error instanceof RangeError) {
            violations.push(`a pass of ${own.name} failed: ${String(error)}`);
          }
          count('pass failed');
        }
      }
    };
    void loop();
    return () => {
      isStopped = true;
    };
  };

  const startProjector = (limits: Partial<GatherLimits>, groupId = 'project'): Running => {
    const own = newProcess('project');
    const ports = {
      kafka: broker.client(own),
      clickhouse: clickhouse.client(own),
      state: state.port(own),
      clock: own.clock,
      log,
      metrics,
    };
    const open = async (signal: AbortSignal): Promise<ProjectionRun> => {
      const targets: Target[] = [];
      for (const projection of simulated) {
        const build = await own.call('state', 'openBuild', async () => ({
          ...state.served(projection.name),
        }));
        targets.push({ projection, build });
      }
      return await runTargets(ports, { groupId, limits, signal }, targets);
    };
    const run = followServed(open, ports);
    run.then(({ done }) => done).catch((error: unknown) => ended(own, error));
    const stopPasses = startPasses(own);
    return {
      process: own,
      async stop() {
        stopPasses();
        await (await run).stop();
      },
    };
  };

  return {
    seed,
    random,
    clock,
    faultRates,
    coverage,
    count,
    trace,
    faulty,
    violations,
    broker,
    clickhouse,
    state,
    newProcess,
    ended,
    servedTable: table,
    startProjector,
    traceHash: (): string => hash.copy().digest('hex').slice(0, 16),
    /** True if every served build has read the whole log, and nothing is being written. */
    isCaughtUp: (): boolean =>
      !state.isWritten() &&
      !isDue() &&
      simulated.every(({ name }) =>
        [...state.checkpoints(state.served(name))].every(
          ([partition, next]) => next === broker.read(topics.chainBlocks, partition).length,
        ),
      ),
    /** `tds quarantine skip`: skips the poison messages, and resolves their quarantine entries. */
    skipHalts(): void {
      for (const message of state.halted()) {
        state.skip(message);
        count('message skipped by an operator');
        trace(`operator skips ${message}`);
        const value = {
          type: 'quarantine.resolved',
          v: 1,
          id: `${topics.chainBlocks.name}:${message}`,
          resolution: 'skipped',
          resolved_at: clock.now(),
        };
        broker.append(topics.quarantine, 0, value.id, Buffer.from(JSON.stringify(value)));
      }
    },
  };
}
