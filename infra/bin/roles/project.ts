import { clickhouseProjections, postgresProjections, projections } from '../../../projections/index.ts';
import { createProjectionMetrics } from '../../../projections/engine/metrics.ts';
import { runPostgresProjection } from '../../../projections/engine/run/postgres-runner.ts';
import { runClickHouseProjections } from '../../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../../projections/engine/run/lifetime.ts';
import { startSampling } from '../../../projections/engine/verify/sampling.ts';
import { AppError } from '../../../schemas/errors.ts';
import { systemClock } from '../../clock.ts';
import type { Role, RoleContext } from '../role.ts';
import { startCreatingAdmin } from '../operator/create-admin.ts';
import { openClickHouse, openKafka, openPool } from '../connect.ts';

export const projectRole: Role = {
  name: 'project',
  summary: 'project the log into read models; all of them, or those named',
  async start(context, only) {
    const { config, log, metrics: registry, releasers, fail } = context;
    const unknown = only.filter((name) => !projections.some((projection) => projection.name === name));
    if (unknown.length > 0) {
      const names = projections.map(({ name }) => name).join(', ');
      throw new AppError('INVALID', `Unknown projection ${unknown.join(', ')}: use one of ${names}`);
    }
    const wanted = ({ name }: { name: string }): boolean => only.length === 0 || only.includes(name);
    const kafka = openKafka(context, 'tds-project');
    const pool = openPool(context, 'tds-project', 12);
    const clickhouse = openClickHouse(context, 'tds-project');
    const metrics = createProjectionMetrics(registry);
    const runs: Promise<ProjectionRun>[] = postgresProjections.filter(wanted).map((projection) =>
      runPostgresProjection({
        kafka,
        pool,
        projection,
        groupId: `project-${projection.name}`,
        log,
        metrics,
      }),
    );
    for (const [topic, together] of Map.groupBy(clickhouseProjections.filter(wanted), (one) => one.topic)) {
      const names = only.length === 0 ? [] : together.map(({ name }) => name);
      const groupId = ['project', topic.name, ...names].join('-');
      const limits = { rows: config.batchRows };
      runs.push(
        runClickHouseProjections({
          kafka,
          clickhouse,
          pool,
          projections: together,
          groupId,
          log,
          metrics,
          limits,
        }),
      );
    }
    await allRunning(runs, { releasers, fail });
    if (wanted({ name: 'accounts' })) startCreatingAdmin(context);
    if (only.length === 0) {
      const sampling = startSampling({ pool, clickhouse, kafka, clock: systemClock, log, metrics: registry });
      releasers.push('sampling', () => sampling.stop());
    }
    return { url: null };
  },
};

/** Waits for every start, so that a failed one leaves none starting behind; `releasers` stops those that run. */
async function allRunning(
  starting: readonly Promise<ProjectionRun>[],
  { releasers, fail }: Pick<RoleContext, 'releasers' | 'fail'>,
): Promise<void> {
  const outcomes = await Promise.allSettled(starting);
  for (const outcome of outcomes) {
    if (outcome.status === 'fulfilled') releasers.push('projection', () => outcome.value.stop());
  }
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  for (const outcome of outcomes) if (outcome.status === 'fulfilled') outcome.value.done.catch(fail);
}
