import { z } from 'zod';

import type { VerifyReport } from '../../../projections/engine/verify/verify.ts';
import type { VerificationAnswer } from '../../../schemas/api/admin/verification.ts';
import { errorMessage } from '../../../schemas/errors.ts';
import type { Logger } from '../../log.ts';
import { raisedAlarms } from '../../health/service-health.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { recordOutcome } from './record-outcome.ts';

/** Exit code of `tds verify` with differences. */
export const VERIFY_DIFFERENCES = 1;
const KEPT_RUNS = 50;
const SHOWN_RUNS = 10;
const SHOWN_DIFFERENCES = 20;

/** Verifies, and keeps the result where every process sees it; also that of a run that is inconclusive. */
export async function recordedVerify(
  { pool, log, signal }: { readonly pool: Sql; readonly log: Logger; readonly signal: AbortSignal },
  verifying: () => Promise<VerifyReport>,
): Promise<VerifyReport> {
  const startedAt = new Date();
  let report: VerifyReport;
  try {
    report = await verifying();
  } catch (error) {
    await insertRun(pool, startedAt, null, errorMessage(error)).catch((failure: unknown) =>
      log.debug({ err: failure }, 'could not record the verification'),
    );
    throw error;
  }
  await recordOutcome({ log, signal }, 'verification', () => insertRun(pool, startedAt, report, null));
  return report;
}

async function insertRun(
  pool: Sql,
  startedAt: Date,
  report: VerifyReport | null,
  error: string | null,
): Promise<void> {
  const { heights = null, messages = 0, differences = [], found = [], repairedRows = 0 } = report ?? {};
  const outcome =
    report === null ? 'inconclusive' : differences.length === 0 ? 'no differences' : 'differences';
  const first = differences.slice(0, SHOWN_DIFFERENCES).map(({ kind, what }) => `${kind}: ${what}`);
  await pool.query(
    `INSERT INTO tds.verify_runs (started_at, outcome, from_height, to_height, messages, differences, found, repaired_rows,
       first_differences, error)
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
     WHERE NOT EXISTS (SELECT FROM tds.verify_runs WHERE started_at = $1)`,
    [
      startedAt,
      outcome,
      heights?.from ?? null,
      heights?.to ?? null,
      messages,
      differences.length,
      found.length,
      repairedRows,
      JSON.stringify(first),
      error,
    ],
  );
  await pool.query(
    'DELETE FROM tds.verify_runs WHERE id <= (SELECT max(id) FROM tds.verify_runs) - $1::bigint',
    [KEPT_RUNS],
  );
}

const runRow = z
  .object({
    started_at: z.date(),
    finished_at: z.date(),
    outcome: z.enum(['no differences', 'differences', 'inconclusive']),
    error: z.string().nullable(),
    differences: z.number(),
    first_differences: z.array(z.string()),
    found: z.number(),
    repaired_rows: z.number(),
    from: z.number().nullable(),
    to: z.number().nullable(),
    messages: z.number(),
  })
  .transform((row) => ({
    ...row,
    started_at: row.started_at.toISOString(),
    finished_at: row.finished_at.toISOString(),
  }));
const samplesRow = z.object({
  since: z.date(),
  blocks: z.number(),
  differences: z.number(),
  last_height: z.number(),
  last_at: z.date(),
  last_difference_height: z.number().nullable(),
  last_difference_at: z.date().nullable(),
});

const ALARM = 'verify.block:';

/** The last runs of `tds verify`, and what sampling has found. */
export async function readVerification(pool: Sql): Promise<VerificationAnswer> {
  const [runs, [samples], alarms] = await Promise.all([
    sqlRows(
      pool,
      runRow,
      `SELECT started_at, finished_at, outcome, error, differences, first_differences, found, repaired_rows,
         from_height AS "from", to_height AS "to", messages FROM tds.verify_runs ORDER BY id DESC LIMIT $1`,
      [SHOWN_RUNS],
    ),
    sqlRows(pool, samplesRow, `SELECT ${Object.keys(samplesRow.shape).join(', ')} FROM tds.verify_samples`),
    raisedAlarms(pool),
  ]);
  return {
    last_verify: runs[0] ?? null,
    runs,
    sampling: samples === undefined ? null : presentSamples(samples),
    inconsistent_blocks: alarms
      .filter(({ name }) => name.startsWith(ALARM))
      .map(({ name, detail, raised_at: at }) => ({
        height: Number(name.slice(ALARM.length)),
        detail,
        since: at.toISOString(),
      })),
  };
}

function presentSamples({
  last_difference_height: height,
  last_difference_at: at,
  ...row
}: z.infer<typeof samplesRow>): VerificationAnswer['sampling'] {
  return {
    ...row,
    since: row.since.toISOString(),
    last_at: row.last_at.toISOString(),
    last_difference: height === null || at === null ? null : { height, at: at.toISOString() },
  };
}
