import { listBuilds } from '../../../projections/engine/builds.ts';
import type { StoredBuild } from '../../../projections/engine/builds.ts';
import type { PipelineStage } from '../../../schemas/api/admin/pipeline.ts';
import type { ProjectionsAnswer } from '../../../schemas/api/admin/projections.ts';
import { projectionStages } from './pipeline.ts';
import { rebuildRuns } from './rebuild-runs.ts';
import type { OperatorStores } from './status.ts';
import { tableSizes } from './table-sizes.ts';

type Shown = ProjectionsAnswer['results'][number];

/** Every projection with its builds, their sizes, and its newest rebuild (`tds builds list`, `tds rebuild`). */
export async function readProjections(stores: OperatorStores): Promise<ProjectionsAnswer> {
  const { pool, clickhouse } = stores;
  const [builds, runs, { stages, topics }] = await Promise.all([
    listBuilds(pool),
    rebuildRuns(pool),
    projectionStages(stores),
  ]);
  const byName = Map.groupBy(builds, ({ projection }) => projection);
  const shown: Shown[] = [];
  for (const [name, own] of byName) {
    const stage: PipelineStage | undefined = stages.find((one) => one.name === name);
    const newest = runs.filter(({ projections }) => projections.includes(name));
    shown.push({
      name,
      store: own.some(({ names }) => 'schema' in names) ? 'postgres' : 'clickhouse',
      topic: topics.get(name) ?? null,
      state: stage?.state ?? 'unknown',
      lag_messages: stage?.lag_messages ?? null,
      builds: await Promise.all(own.map(async (one) => await describeBuild({ pool, clickhouse }, one))),
      rebuild: newest.find(({ state }) => state === 'running') ?? newest[0] ?? null,
    });
  }
  return { results: shown };
}

async function describeBuild(
  { pool, clickhouse }: Pick<OperatorStores, 'pool' | 'clickhouse'>,
  stored: StoredBuild,
): Promise<Shown['builds'][number]> {
  const { build, version, state, retiredAt } = stored;
  const tables = await tableSizes(pool, clickhouse, stored);
  return {
    build,
    version,
    state,
    retired_at: retiredAt?.toISOString() ?? null,
    rows: tables.reduce((sum, { rows }) => sum + rows, 0),
    bytes: tables.reduce((sum, { bytes }) => sum + bytes, 0),
    tables,
  };
}
