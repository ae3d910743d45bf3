import { systemClock } from '../../../infra/clock.ts';
import type { Kafka } from '../../../infra/kafka/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import type { PostgresProjection } from '../../define.ts';
import { openBuild } from '../builds.ts';
import { passDeletedMessages } from '../checkpoints.ts';
import type { Build } from '../builds.ts';
import { restoreFromSnapshot } from '../snapshot/restore.ts';
import { projectionState } from '../state.ts';
import { followServed } from './follow-served.ts';
import type { ProjectionRun } from './lifetime.ts';
import { createFold } from './fold.ts';
import type { Reading } from './readings.ts';
import { runSink } from './run-sink.ts';
import type { RunOptions, RunPorts, Sink, SinkContext } from './run-sink.ts';

export interface PostgresProjectionOptions<M>
  extends Pick<RunOptions, 'groupId'>, Pick<RunPorts, 'log' | 'metrics'> {
  readonly kafka: Kafka;
  readonly pool: Pool;
  readonly projection: PostgresProjection<M>;
}

/**
 * Folds one topic in order. Rows and checkpoint move in one transaction, so every message is folded exactly once; the
 * checkpoint is moved first, so that a second process waits for its row and is then refused.
 */
export async function runPostgresProjection<M>(
  options: PostgresProjectionOptions<M>,
): Promise<ProjectionRun> {
  const { kafka, pool, projection, groupId } = options;
  const ports = { ...options, state: projectionState(pool, kafka), clock: systemClock };
  const start = async (signal: AbortSignal): Promise<ProjectionRun> => {
    const build = await openBuild(pool, null, projection);
    const source = { groupId, signal, topic: projection.topic, builds: [build] };
    return await runSink(ports, source, async (context) => {
      const { identity, retryWhileUnavailable } = context;
      await retryWhileUnavailable(() => restoreFromSnapshot({ kafka, pool }, projection, build));
      if (projection.isExpiring === true)
        await retryWhileUnavailable(() => passDeletedMessages(options, identity, build));
      return createPostgresSink({ ...ports, build }, context);
    });
  };
  return await followServed(start, ports);
}

/** Folds each batch before it returns. */
function createPostgresSink<M>(
  options: PostgresProjectionOptions<M> & Pick<RunPorts, 'state'> & { readonly build: Build },
  context: SinkContext,
): Sink {
  const { state, metrics, build } = options;
  const { identity, retryWhileUnavailable } = context;
  const fold = createFold({ ...options, identity, isServed: true, retryWhileUnavailable });
  const advance = (reading: Reading, next: number): void => {
    reading.next = next;
    reading.stored.set(build, next);
  };
  return {
    async put(reading, { partition, messages }) {
      const wanted = messages.filter(({ offset }) => offset >= reading.next);
      if (wanted[0] === undefined) return;
      if (wanted[0].offset > reading.next) return await context.resume(reading);
      const folded = await fold(partition, wanted);
      metrics.messages.inc({ projection: build.projection }, folded.next - reading.next);
      advance(reading, folded.next);
      if (folded.outcome === 'conflict') await context.reopen(reading);
      if (folded.outcome === 'poison') context.halt(reading, folded.message, folded.reason);
    },
    async skip(reading, { partition, offset: expected }) {
      const next = expected + 1;
      const refused = await state.move(identity, [{ build, partition, expected, next }]);
      if (refused.length > 0) return await context.reopen(reading);
      advance(reading, next);
      await context.resume(reading);
    },
    stop: async () => {},
  };
}
