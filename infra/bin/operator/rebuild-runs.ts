import { z } from 'zod';

import { listBuilds } from '../../../projections/engine/builds.ts';
import { rebuildRun } from '../../../schemas/api/admin/projections.ts';
import type { RebuildRun } from '../../../schemas/api/admin/projections.ts';
import { AppError } from '../../../schemas/errors.ts';
import { raisedAlarms } from '../../health/service-health.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';

/** A run whose progress has not moved for so long was killed. */
const INTERRUPTED_SECONDS = 15;

const runRow = z.object({
  id: z.string(),
  projections: z.array(z.string()),
  requested_by: z.string(),
  state: rebuildRun.shape.state,
  phase: z.string(),
  messages_read: z.number(),
  messages_total: z.number(),
  rows_compared: z.number(),
  differences: z.number(),
  differing: rebuildRun.shape.differing,
  is_swapped: z.boolean(),
  error: z.string().nullable(),
  is_aborting: z.boolean(),
  started_at: z.date(),
  updated_at: z.date(),
  finished_at: z.date().nullable(),
});

/** The newest run of each projection, and every run that is running; newest first. */
export async function rebuildRuns(db: Sql): Promise<RebuildRun[]> {
  const rows = await sqlRows(
    db,
    runRow,
    `SELECT id, projections, requested_by, phase, messages_read, messages_total, rows_compared, differences, differing,
       is_swapped, error, abort_requested_at IS NOT NULL AS is_aborting, started_at, updated_at, finished_at,
       CASE WHEN state = 'running' AND updated_at < now() - make_interval(secs => $1) THEN 'interrupted' ELSE state END AS state
     FROM tds.rebuild_runs ORDER BY started_at DESC`,
    [INTERRUPTED_SECONDS],
  );
  return rows.map(presentRun);
}

/**
 * Whether a rebuild of a projection is running.
 *
 * @throws `NOT_FOUND` if no build of it exists and none is asked for
 */
export async function readRebuilding(db: Sql, projection: string): Promise<{ is_running: boolean }> {
  const [builds, alarms, runs] = await Promise.all([
    listBuilds(db, projection),
    raisedAlarms(db),
    rebuildRuns(db),
  ]);
  const isNew = alarms.some(({ name }) => name === `projection.outdated:${projection}`);
  if (builds.length === 0 && !isNew) throw new AppError('NOT_FOUND', `Unknown projection ${projection}`);
  return {
    is_running: runs.some(
      ({ state, projections }) => state === 'running' && projections.includes(projection),
    ),
  };
}

function presentRun({ is_aborting: isAborting, ...row }: z.infer<typeof runRow>): RebuildRun {
  const seconds = (row.updated_at.getTime() - row.started_at.getTime()) / 1000;
  const rate = seconds > 0 ? row.messages_read / seconds : null;
  const isReading = row.state === 'running' && row.phase === 'reading';
  const left = Math.max(0, row.messages_total - row.messages_read);
  return {
    ...row,
    is_aborting: row.state === 'running' && isAborting,
    messages_per_second: rate,
    seconds_left: isReading && rate !== null && rate > 0 ? Math.ceil(left / rate) : null,
    started_at: row.started_at.toISOString(),
    updated_at: row.updated_at.toISOString(),
    finished_at: row.finished_at?.toISOString() ?? null,
  };
}

/**
 * Asks the process that rebuilds a projection to stop; it does within some seconds.
 *
 * @throws `CONFLICT` if no rebuild of it is running
 */
export async function abortRebuild(db: Sql, projection: string): Promise<string> {
  const { rowCount } = await db.query(
    `UPDATE tds.rebuild_runs SET abort_requested_at = coalesce(abort_requested_at, now())
     WHERE state = 'running' AND $1 = ANY (projections) AND updated_at > now() - make_interval(secs => $2)`,
    [projection, INTERRUPTED_SECONDS],
  );
  if (rowCount === 0) throw new AppError('CONFLICT', `No rebuild of ${projection} is running`);
  return `The rebuild of ${projection} ends within some seconds; the next run resumes from there.`;
}
