import {
  clickhouseProjections,
  deferredProjections,
  postgresProjections,
  projections,
} from '../../../projections/index.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { runDeferred } from '../../../projections/engine/deferred/run.ts';
import { startConservation } from '../../../projections/engine/verify/conservation.ts';
import { startSampling } from '../../../projections/engine/verify/sampling.ts';
import { AppError } from '../../../schemas/errors.ts';
import { topics } from '../../../schemas/topics.ts';
import { systemClock } from '../../clock.ts';
import { createAlarms, forgetAlarms } from '../../health/alarms.ts';
import { startReplicaAlarms } from '../../health/replica-alarms.ts';
import type { StartRole } from '../role.ts';
import { runServed } from '../../../projections/engine/run/run-served.ts';
import { startOperations } from '../operator/operations.ts';
import { tdsProcesses } from '../operator/run-tds.ts';
import { startCreatingAdmin } from '../operator/create-admin.ts';
import { openClickHouse, openKafka, openPool } from '../connect.ts';

export const start: StartRole = async (context, only) => {
  const { config, log, metrics: registry, releasers } = context;
  assertProjectable(only);
  const wanted = ({ name }: { name: string }): boolean => only.length === 0 || only.includes(name);
  const kafka = openKafka(context, 'tds-project');
  const pool = openPool(context, 'tds-project', 14);
  const clickhouse = openClickHouse(context, 'tds-project');
  const metrics = createProjectionMetrics(registry);
  const deps = { kafka, pool, log, metrics };
  // A consumer takes a moment to leave its group: all of them leave at the same time.
  const served = {
    ...context,
    pool,
    alarms: createAlarms(pool),
    releasers: releasers.together('projections'),
  };
  const runs = postgresProjections.filter(wanted).map((projection) => {
    const groupId = `project-${projection.name}`;
    return runServed([projection], () => runPostgresProjection({ ...deps, projection, groupId }), served);
  });
  for (const [topic, ofTopic] of Map.groupBy(clickhouseProjections.filter(wanted), (one) => one.topic)) {
    const names = only.length === 0 ? [] : ofTopic.map(({ name }) => name);
    const groupId = ['project', topic.name, ...names].join('-');
    const limits = { rows: config.batchRows };
    const run = (together: typeof ofTopic): Promise<ProjectionRun> =>
      runClickHouseProjections({ ...deps, clickhouse, projections: together, groupId, limits });
    runs.push(runServed(ofTopic, (together) => run([...together]), served));
  }
  await settled(runs);
  for (const projection of deferredProjections.filter(wanted)) {
    const passes = runDeferred({ pool, clickhouse, log }, projection);
    releasers.push(`passes of ${projection.name}`, () => passes.stop());
  }
  if (wanted({ name: 'accounts' })) startCreatingAdmin(context);
  if (only.length === 0) {
    const sampling = startSampling({ pool, clickhouse, kafka, clock: systemClock, log, metrics: registry });
    releasers.push('sampling', () => sampling.stop());
    const conservation = startConservation({ pool, clickhouse, log });
    releasers.push('conservation', () => conservation.stop());
    if (config.clickhouseCluster === null) await forgetAlarms(pool, 'clickhouse.replica');
    else {
      const replicas = startReplicaAlarms({ pool, clickhouse, log, behindSeconds: config.stallSeconds });
      releasers.push('alarms about replicas', () => replicas.stop());
    }
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const runTds = tdsProcesses(process.env);
    const operations = startOperations({ pool, publisher, runTds, clock: systemClock, log });
    releasers.push('operations', () => operations.stop());
  }
  return { url: null };
};

/** Waits for every start, so that a failed one leaves none starting behind. */
async function settled(starting: readonly Promise<void>[]): Promise<void> {
  for (const outcome of await Promise.allSettled(starting)) {
    if (outcome.status === 'rejected') throw outcome.reason;
  }
}

/** @throws INVALID for a name that is unknown, and for some of the chain's read models without the others */
function assertProjectable(only: readonly string[]): void {
  const unknown = only.filter((name) => !projections.some((projection) => projection.name === name));
  if (unknown.length > 0) {
    const names = projections.map(({ name }) => name).join(', ');
    throw new AppError('INVALID', `Unknown projection ${unknown.join(', ')}: use one of ${names}`);
  }
  const ofChain = clickhouseProjections.filter(({ topic }) => topic.name === topics.chainBlocks.name);
  const missing = ofChain.filter(({ name }) => !only.includes(name)).map(({ name }) => name);
  if (missing.length === 0 || missing.length === ofChain.length) return;
  const named = ofChain.filter(({ name }) => only.includes(name)).map(({ name }) => name);
  throw new AppError(
    'INVALID',
    `Cannot project ${named.join(', ')} alone: one process must write all tables of a block. Also name ${missing.join(', ')}, or name none to project everything`,
  );
}
