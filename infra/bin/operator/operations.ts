import { z } from 'zod';

import { isBeingRebuilt } from '../../../projections/engine/builds.ts';
import { servedSchema } from '../../../projections/served.ts';
import { operationAnswer } from '../../../schemas/api/admin/operations.ts';
import { AppError, errorMessage } from '../../../schemas/errors.ts';
import type { Clock } from '../../clock.ts';
import type { Publisher } from '../../kafka/client.ts';
import type { Logger } from '../../log.ts';
import { startLoop } from '../../loop.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Pool, Sql } from '../../postgres/client.ts';
import { createRetryWhileUnavailable } from '../../retry-while-unavailable.ts';
import { retryQuarantined, skipQuarantined } from './quarantine-actions.ts';
import { ABANDONED_SECONDS, requestRow } from './operation-log.ts';
import { VERIFY_DIFFERENCES } from './verify-runs.ts';
import { abortRebuild } from './rebuild-runs.ts';

const POLL_MS = 1000;
/** Requests older than this are not begun: the admin may have given them up. */
const EXPIRED_MS = 3_600_000;
/** Expired requests are looked for so far back. */
const EXPIRED_SINCE_MS = 24 * EXPIRED_MS;
const EXPIRE_EVERY_MS = 60_000;
const MAX_ATTEMPTS = 3;
const ABANDONED_MS = 1000 * ABANDONED_SECONDS;
/** Finished operations that are kept, besides those of the last two days. */
const KEPT_OPERATIONS = 500;
/** Characters kept of what a command prints: its end, which sums it up. */
const MAX_DETAIL = 10_000;
/** Run as processes of their own: one at a time for each process of `project`; others wait for it, or for another one. */
const LONG: ReadonlySet<string> = new Set(['rebuild.start', 'verify.start']);

const TYPES = operationAnswer.shape.operation.options;

/** `attempts`: how many processes have claimed it, the last of which alone may write its row. */
const pendingRow = requestRow.extend({ attempts: z.number() });
type Request = z.infer<typeof pendingRow>;

/** Runs `tds` with these arguments; resolves with what it prints, or rejects with its error. */
export type RunTds = (
  args: readonly string[],
  signal: AbortSignal,
  /** Exit codes with which it has done what was asked for; 0 by default. */
  doneCodes?: readonly number[],
) => Promise<string>;

interface OperationsDeps {
  readonly pool: Pool;
  readonly publisher: Pick<Publisher, 'publish'>;
  readonly runTds: RunTds;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Carries out what admins ask for through the API, each once. Accepted commands are found in the table of their outcomes;
 * any number of processes may look, and the one that inserts the operation carries it out. One that its process has
 * abandoned is begun again: every operation may be repeated, and a rebuild resumes. A process that could not reach PostgreSQL
 * may still run it: its rebuild is waited for, and it writes nothing more about what another one has claimed.
 */
export function startOperations(deps: OperationsDeps): { stop(): Promise<void> } {
  const { pool, clock, log } = deps;
  const running = new Map<string, { readonly request: Request; readonly done: Promise<void> }>();

  const begin = (request: Request, signal: AbortSignal): void => {
    const done = carryOut(deps, request, signal)
      .catch((error: unknown) => log.warn({ err: error, id: request.id }, 'could not record an operation'))
      .finally(() => running.delete(request.id));
    running.set(request.id, { request, done });
  };
  const mayTakeOver = createTakingOver(clock);
  let expireAt = -Infinity;
  const beginPending = async (signal: AbortSignal): Promise<void> => {
    if (clock.now() >= expireAt) {
      await recordExpired(pool, clock.wallTime());
      expireAt = clock.now() + EXPIRE_EVERY_MS;
    }
    const ours = (): Request[] => [...running.values()].map(({ request }) => request);
    await showRunning(pool, ours());
    const pending = await pendingRequests(pool, clock.wallTime());
    const takesOver = mayTakeOver();
    for (const request of pending) {
      if (running.has(request.id) || (request.attempts > 0 && !takesOver)) continue;
      if (LONG.has(request.operation) && ours().some(({ operation }) => LONG.has(operation))) continue;
      if (await isStillRebuilding(pool, request)) continue;
      const attempts = await claim(pool, request);
      if (attempts !== null) begin({ ...request, attempts }, signal);
    }
  };
  const looping = startLoop({
    clock,
    async round(signal) {
      await beginPending(signal).catch((error: unknown) =>
        log.debug({ err: error }, 'could not list operations'),
      );
      return POLL_MS;
    },
  });
  return {
    async stop() {
      await looping.stop();
      await Promise.all([...running.values()].map(({ done }) => done));
    },
  };
}

/**
 * Whether an operation without a sign of its process counts as abandoned; called whenever PostgreSQL has answered.
 * After an outage, which may have affected all processes, the process that runs it first has time to show that; likewise
 * after the start of this process, which may have waited for the end of an outage.
 */
function createTakingOver({ now }: Pick<Clock, 'now'>): () => boolean {
  let answeredAt = now();
  let isSureAt = answeredAt + ABANDONED_MS;
  return () => {
    const at = now();
    if (at - answeredAt > ABANDONED_MS / 2) isSureAt = at + ABANDONED_MS;
    answeredAt = at;
    return at >= isSureAt;
  };
}

/** Accepted commands that no process has begun, and operations that their process has abandoned; oldest first. */
async function pendingRequests(pool: Sql, now: number): Promise<Request[]> {
  const schema = await servedSchema(pool, 'accounts');
  if (schema === null) return [];
  return await sqlRows(
    pool,
    pendingRow,
    `SELECT o.id, o.type AS operation, o.result ->> 'subject' AS subject, (o.result ->> 'swap')::boolean AS swap,
       o.result ->> 'requested_by' AS requested_by, to_timestamp(o.issued_at / 1000.0) AS requested_at,
       0 AS attempts
     FROM ${schema}.command_outcomes o
     WHERE o.issued_at > $1 AND o.accepted AND o.type = ANY ($2)
       AND NOT EXISTS (SELECT FROM tds.operations p WHERE p.id = o.id)
     UNION ALL
     SELECT id, operation, subject, swap, requested_by, requested_at, attempts FROM tds.operations
     WHERE state = 'running' AND updated_at < now() - make_interval(secs => $3)
     ORDER BY requested_at`,
    [now - EXPIRED_MS, TYPES, ABANDONED_SECONDS],
  );
}

/** Ends requests that no process has begun in time, as when all of them were busy with long operations. */
async function recordExpired(pool: Sql, now: number): Promise<void> {
  const schema = await servedSchema(pool, 'accounts');
  if (schema === null) return;
  await pool.query(
    `INSERT INTO tds.operations
       (id, operation, subject, swap, requested_by, requested_at, state, detail, finished_at)
     SELECT o.id, o.type, o.result ->> 'subject', (o.result ->> 'swap')::boolean, o.result ->> 'requested_by',
       to_timestamp(o.issued_at / 1000.0), 'failed', 'Not begun within an hour: ask for it again', now()
     FROM ${schema}.command_outcomes o
     WHERE o.issued_at > $1 AND o.issued_at <= $2 AND o.accepted AND o.type = ANY ($3)
     ON CONFLICT DO NOTHING`,
    [now - EXPIRED_SINCE_MS, now - EXPIRED_MS, TYPES],
  );
}

/** Whether the process that seems to have abandoned a rebuild is rebuilding: another rebuild would be refused. */
async function isStillRebuilding(pool: Sql, { operation, subject, attempts }: Request): Promise<boolean> {
  return operation === 'rebuild.start' && attempts > 0 && (await isBeingRebuilt(pool, subject));
}

/**
 * Claims a request: returns the number of this attempt for the one process that carries it out, null for others. After
 * some attempts the operation is given up, because it may be what ended each process.
 */
async function claim(pool: Sql, request: Request): Promise<number | null> {
  const { id, operation, subject, swap, requested_by: by, requested_at: at } = request;
  const [claimed] = await sqlRows(
    pool,
    pendingRow.pick({ attempts: true }),
    `INSERT INTO tds.operations AS p (id, operation, subject, swap, requested_by, requested_at)
     VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (id) DO UPDATE SET attempts = p.attempts + 1, updated_at = now()
     WHERE p.state = 'running' AND p.updated_at < now() - make_interval(secs => $7) AND p.attempts < $8
     RETURNING attempts`,
    [id, operation, subject, swap, by, at, ABANDONED_SECONDS, MAX_ATTEMPTS],
  );
  if (claimed !== undefined) return claimed.attempts;
  await pool.query(
    `UPDATE tds.operations SET state = 'failed', detail = $2, finished_at = now()
     WHERE id = $1 AND state = 'running' AND attempts >= $3 AND updated_at < now() - make_interval(secs => $4)`,
    [id, `Its process ended ${MAX_ATTEMPTS} times before it was done`, MAX_ATTEMPTS, ABANDONED_SECONDS],
  );
  return null;
}

async function showRunning(pool: Sql, requests: readonly Request[]): Promise<void> {
  if (requests.length === 0) return;
  await pool.query(
    `UPDATE tds.operations o SET updated_at = now() FROM unnest($1::text[], $2::int[]) AS own (id, attempts)
     WHERE o.id = own.id AND o.attempts = own.attempts AND o.state = 'running'`,
    [requests.map(({ id }) => id), requests.map(({ attempts }) => attempts)],
  );
}

async function carryOut(deps: OperationsDeps, request: Request, signal: AbortSignal): Promise<void> {
  const { pool, log } = deps;
  const { id, operation, subject, requested_by: by, attempts } = request;
  log.info({ operation, subject, by }, 'operation requested');
  let [state, detail] = ['done', ''];
  try {
    detail = await perform(deps, request, signal);
  } catch (error) {
    // It is left running, so that another process takes over.
    if (signal.aborted) return;
    if (!isDoneBefore(request, error)) {
      log.warn({ err: error, operation, subject }, 'operation failed');
      state = 'failed';
    }
    detail = errorMessage(error);
  }
  const retryWhileUnavailable = createRetryWhileUnavailable({ component: 'operations', signal, log });
  await retryWhileUnavailable(() =>
    pool.query(
      `UPDATE tds.operations SET state = $2, detail = $3, finished_at = now(), updated_at = now()
       WHERE id = $1 AND attempts = $4`,
      [id, state, detail.slice(-MAX_DETAIL), attempts],
    ),
  );
  await pool.query(
    `DELETE FROM tds.operations WHERE state <> 'running' AND requested_at < to_timestamp($1 / 1000.0) AND id IN (
       SELECT id FROM tds.operations ORDER BY requested_at DESC OFFSET ${KEPT_OPERATIONS})`,
    // Without its row, a younger one would be found again, and repeated or recorded as expired.
    [deps.clock.wallTime() - 2 * EXPIRED_SINCE_MS],
  );
}

/** Whether an operation that was taken over is rejected because the process before had done it, and ended before it recorded that. */
function isDoneBefore({ operation, attempts }: Request, error: unknown): boolean {
  return attempts > 1 && !LONG.has(operation) && error instanceof AppError && error.code === 'CONFLICT';
}

/** Does what the `tds` command of the same name does, and returns what that prints. */
async function perform(
  { pool, publisher, clock, runTds }: OperationsDeps,
  { operation, subject, swap, requested_by: requestedBy }: Request,
  signal: AbortSignal,
): Promise<string> {
  switch (operation) {
    case 'quarantine.retry':
      return await retryQuarantined(pool, subject);
    case 'quarantine.skip':
      return await skipQuarantined({ pool, publisher, now: () => clock.wallTime() }, subject);
    case 'rebuild.abort':
      return await abortRebuild(pool, subject, signal);
    case 'rebuild.start':
      return await runTds(
        ['rebuild', subject, '--requested-by', requestedBy, ...(swap === false ? ['--no-swap'] : [])],
        signal,
      );
    case 'verify.start':
      return await runTds(['verify'], signal, [0, VERIFY_DIFFERENCES]);
  }
}
