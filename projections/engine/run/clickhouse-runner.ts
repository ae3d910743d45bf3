import { systemClock } from '../../../infra/clock.ts';
import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { ClickHouseProjection } from '../../define.ts';
import { openBuild } from '../builds.ts';
import { projectionState } from '../state.ts';
import type { Target } from './batch.ts';
import { followServed } from './follow-served.ts';
import type { ProjectionRun } from './lifetime.ts';
import type { GatherLimits } from './gatherer.ts';
import { createPipeline, streamOf } from './pipeline.ts';
import { runSink } from './run-sink.ts';
import type { RunOptions, RunPorts, Sink, SinkContext } from './run-sink.ts';

/** Stores and clock of the runner, real or simulated. */
export interface RunnerPorts extends RunPorts {
  readonly clickhouse: Pick<ClickHouse, 'insertEncoded' | 'command'>;
}

interface GatherOptions {
  readonly limits?: Partial<GatherLimits>;
}

export interface ClickHouseRunOptions
  extends Pick<RunOptions, 'groupId'>, GatherOptions, Pick<RunPorts, 'log' | 'metrics'> {
  readonly kafka: Kafka;
  readonly clickhouse: ClickHouse;
  readonly pool: Pool;
  readonly projections: readonly ClickHouseProjection[];
}

/** Runs projections into their served builds, and continues with the new builds after a swap. */
export async function runClickHouseProjections(options: ClickHouseRunOptions): Promise<ProjectionRun> {
  const { pool, kafka, clickhouse, projections } = options;
  const ports = { ...options, state: projectionState(pool, kafka), clock: systemClock };
  const start = async (signal: AbortSignal): Promise<ProjectionRun> => {
    const targets: Target[] = [];
    for (const projection of projections) {
      targets.push({ projection, build: await openBuild(pool, clickhouse, projection) });
    }
    return await runTargets(ports, { ...options, signal }, targets);
  };
  return await followServed(start, ports);
}

/** Projects one stream into its served builds, with one consumer, decompression, parse and decode for all of them. */
export async function runTargets(
  ports: RunnerPorts,
  { groupId, signal, limits }: RunOptions & GatherOptions,
  targets: readonly Target[],
): Promise<ProjectionRun> {
  const source = { groupId, signal, topic: streamOf(targets), builds: targets.map(({ build }) => build) };
  return await runSink(ports, source, (context) => createClickHouseSink(ports, context, targets, limits));
}

/** Writes batches in the background: `put` waits only while a batch is full and two are in flight. */
function createClickHouseSink(
  ports: RunnerPorts,
  context: SinkContext,
  targets: readonly Target[],
  limits: Partial<GatherLimits> | undefined,
): Sink {
  const { identity, signal, fail } = context;
  const pipeline = createPipeline({
    ...ports,
    identity,
    signal,
    targets,
    limits,
    lockServed: (builds) => ports.state.lockServed(builds),
    announceIndexed: () => ports.state.announceIndexed(),
    onRefused: (reading) => void context.reopen(reading).catch(fail),
    onFatal: fail,
  });
  return {
    async put(reading, { messages, highWatermark }) {
      for (const message of messages) {
        signal.throwIfAborted();
        if (!reading.current || reading.halt !== null) return;
        if (message.offset < reading.next) continue;
        if (message.offset > reading.next) return await context.resume(reading);
        const poison = await pipeline.add(reading, message);
        if (poison !== null) context.halt(reading, message, poison.reason);
      }
      if (reading.next >= highWatermark || reading.halt !== null) pipeline.caughtUp();
    },
    async skip(reading, message) {
      await pipeline.skip(reading, message);
      pipeline.caughtUp();
      if (reading.current) await context.resume(reading);
    },
    stop: () => pipeline.stop(),
  };
}
