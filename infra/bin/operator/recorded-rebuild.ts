import { randomUUID } from 'node:crypto';

import { z } from 'zod';

import type { Projection } from '../../../projections/define.ts';
import { rebuild } from '../../../projections/engine/rebuild/rebuild.ts';
import type { RebuildProgress, RebuildReport } from '../../../projections/engine/rebuild/rebuild.ts';
import type { ReplayDeps } from '../../../projections/engine/rebuild/replay.ts';
import { AppError, errorMessage } from '../../../schemas/errors.ts';
import { sleep } from '../../lifecycle.ts';
import { sqlRows } from '../../postgres/client.ts';
import { recordOutcome } from './record-outcome.ts';

/** The progress of a run moves this often. */
const RECORD_MS = 1000;
const KEPT_RUNS = 50;

interface RecordedRebuild {
  readonly swap: boolean;
  /** `operator`, or `user:<id>`. */
  readonly requestedBy: string;
  readonly onProgress: (progress: RebuildProgress) => void;
}

/**
 * Rebuilds as `rebuild` does, and keeps the progress of the run where every process sees it. Ends when another process asks
 * for it (`abortRebuild`), as on a signal: the next run resumes from there.
 */
export async function recordedRebuild(
  deps: ReplayDeps,
  wanted: readonly Projection[],
  { swap, requestedBy, onProgress }: RecordedRebuild,
): Promise<RebuildReport> {
  const aborting = new AbortController();
  const run = await startRun(
    deps,
    wanted.map(({ name }) => name),
    requestedBy,
    () => aborting.abort(new AppError('CONFLICT', 'Aborted; the next run resumes from here')),
  );
  const signal = AbortSignal.any([deps.signal, aborting.signal]);
  try {
    const report = await rebuild({ ...deps, signal }, wanted, {
      swap,
      onProgress(progress) {
        run.show(progress);
        onProgress(progress);
      },
    });
    await run.end({ state: 'finished', isSwapped: report.isSwapped, error: null });
    return report;
  } catch (error) {
    const state = signal.aborted ? 'aborted' : 'failed';
    await run.end({ state, isSwapped: false, error: errorMessage(error) });
    throw error;
  }
}

interface RunEnd {
  readonly state: 'finished' | 'failed' | 'aborted';
  readonly isSwapped: boolean;
  readonly error: string | null;
}

const abortRow = z.object({ is_aborted: z.boolean() });

/** Keeps the row of a run up to date. A database that is unavailable must not end the rebuild: what it lacks is shown later. */
async function startRun(
  { pool, log, signal }: Pick<ReplayDeps, 'pool' | 'log' | 'signal'>,
  names: readonly string[],
  requestedBy: string,
  onAbort: () => void,
): Promise<{ show(progress: RebuildProgress): void; end(how: RunEnd): Promise<void> }> {
  const id = randomUUID();
  let newest: RebuildProgress | null = null;
  let isRecorded = false;
  const ended = new AbortController();
  const attempt = async (work: () => Promise<void>): Promise<void> =>
    await work().catch((error: unknown) => log.debug({ err: error }, 'could not record the rebuild'));
  const record = async (): Promise<void> => {
    const [row] = await sqlRows(
      pool,
      abortRow,
      `INSERT INTO tds.rebuild_runs AS r (id, projections, requested_by, phase, messages_read, messages_total, rows_compared,
         differences, differing)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
       ON CONFLICT (id) DO UPDATE SET phase = excluded.phase, messages_read = excluded.messages_read,
         messages_total = excluded.messages_total, rows_compared = excluded.rows_compared,
         differences = excluded.differences, differing = excluded.differing, updated_at = now()
       RETURNING r.abort_requested_at IS NOT NULL AS is_aborted`,
      [id, names, requestedBy, ...progressColumns(newest)],
    );
    isRecorded = true;
    if (row?.is_aborted === true) onAbort();
  };
  await attempt(async () => {
    await pool.query(
      `DELETE FROM tds.rebuild_runs WHERE id IN (
         SELECT id FROM tds.rebuild_runs ORDER BY started_at DESC OFFSET ${KEPT_RUNS})`,
    );
    await record();
  });
  const recording = (async () => {
    while (!ended.signal.aborted) {
      await sleep(RECORD_MS, ended.signal);
      await attempt(record);
    }
  })();
  return {
    show: (progress) => void (newest = progress),
    async end({ state, isSwapped, error }) {
      ended.abort();
      await recording;
      if (!isRecorded) return;
      const record = (): Promise<unknown> =>
        pool.query(
          `UPDATE tds.rebuild_runs SET state = $2, is_swapped = $3, error = $4, finished_at = now(), updated_at = now()
           WHERE id = $1`,
          [id, state, isSwapped, error],
        );
      await recordOutcome({ log, signal }, 'rebuild', record);
    },
  };
}

function progressColumns(progress: RebuildProgress | null): unknown[] {
  const { phase = 'reading', read = 0, total = 0, compared } = progress ?? {};
  const { rows = 0, differences = 0, differing = [] } = compared ?? {};
  return [phase, read, total, rows, differences, JSON.stringify(differing)];
}
