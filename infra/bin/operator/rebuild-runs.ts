import { z } from 'zod';

import { listBuilds } from '../../../projections/engine/builds.ts';
import { rebuildRun } from '../../../schemas/api/admin/projections.ts';
import type { RebuildRun } from '../../../schemas/api/admin/projections.ts';
import { AppError } from '../../../schemas/errors.ts';
import { raisedAlarms } from '../../health/service-health.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { pollUntil } from '../../retry.ts';
import { ABANDONED_SECONDS } from './operation-log.ts';

/** A run whose progress has not moved for so long was killed. */
const INTERRUPTED_SECONDS = 15;
/** Time for the process of a rebuild to start. */
const START_MS = 15_000;
const START_POLL_MS = 200;

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
  const [builds, alarms, runs, isStarting] = await Promise.all([
    listBuilds(db, projection),
    raisedAlarms(db),
    rebuildRuns(db),
    isRebuildStarting(db, projection),
  ]);
  const isNew = alarms.some(({ name }) => name === `projection.outdated:${projection}`);
  if (builds.length === 0 && !isNew) throw new AppError('NOT_FOUND', `Unknown projection ${projection}`);
  return {
    is_running:
      isStarting ||
      runs.some(({ state, projections }) => state === 'running' && projections.includes(projection)),
  };
}

/** Whether the process of a rebuild that an admin asked for has yet to record its run, which takes some seconds. */
async function isRebuildStarting(db: Sql, projection: string): Promise<boolean> {
  const { rowCount } = await db.query(
    `SELECT FROM tds.operations o
     WHERE operation = 'rebuild.start' AND subject = $1 AND state = 'running'
       AND updated_at > now() - make_interval(secs => $2) AND NOT EXISTS (
         SELECT FROM tds.rebuild_runs r WHERE $1 = ANY (r.projections) AND r.started_at >= o.started_at)`,
    [projection, ABANDONED_SECONDS],
  );
  return rowCount !== 0;
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
 * Asks the process that rebuilds a projection to stop; it does within some seconds. Waits for one that is starting.
 *
 * @throws `CONFLICT` if no rebuild of it is running
 */
export async function abortRebuild(db: Sql, projection: string, signal: AbortSignal): Promise<string> {
  const abort = async (): Promise<'asked' | 'starting' | 'none'> => {
    // Read first: a run that is recorded meanwhile is found below.
    const isStarting = await isRebuildStarting(db, projection);
    const { rowCount } = await db.query(
      `UPDATE tds.rebuild_runs SET abort_requested_at = coalesce(abort_requested_at, now())
       WHERE state = 'running' AND $1 = ANY (projections) AND updated_at > now() - make_interval(secs => $2)`,
      [projection, INTERRUPTED_SECONDS],
    );
    if (rowCount !== 0) return 'asked';
    return isStarting ? 'starting' : 'none';
  };
  const options = { everyMs: START_POLL_MS, withinMs: START_MS, signal };
  const outcome = await pollUntil(abort, (one) => one !== 'starting', options);
  if (outcome !== 'asked') throw new AppError('CONFLICT', `No rebuild of ${projection} is running`);
  return `The rebuild of ${projection} ends within some seconds; the next run resumes from there.`;
}
