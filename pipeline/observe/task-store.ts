import { z } from 'zod';

import { prepared, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { storable } from '../../schemas/text.ts';
import { RECLASSIFY } from '../ingest/repair/requests.ts';
import { CLAIM_MS, bringForward, createClaimUpdate } from './claims.ts';
import type { TaskClaim, TaskTable } from './claims.ts';
import { OBSERVER_BACKOFF } from './observer.ts';

export interface Task {
  readonly subject: string;
  /** Input of the observation, as JSON. `block`: a repair that replaces a task keeps the lower one. */
  readonly task: { readonly block: number };
  /** What the observation depends on; another value makes it worth repeating. */
  readonly facts: string;
  /** 0, or the `seq` of the repair that created the task: a later repair with other facts repeats the observation. */
  readonly revision: number;
}

const claimRow = z.object({
  subject: z.string(),
  task: z.unknown(),
  attempts: z.number(),
  message: z.unknown(),
  next_at: z.number(),
  is_requested: z.boolean(),
});

/** Merges two tasks of one batch with one subject: a repair with other facts replaces the other, and the lower block is kept. */
function mergeTasks(stored: Task, task: Task): Task {
  const merged = stored.revision < task.revision && stored.facts !== task.facts ? task : stored;
  return { ...merged, task: { ...merged.task, block: Math.min(stored.task.block, task.task.block) } };
}

/** The tasks of one observer (tds.observer_attempts). */
export function createTaskStore(pool: Pool, observer: string) {
  const table: TaskTable<TaskClaim> = {
    name: 'tds.observer_attempts',
    key: { observer: 'text', subject: 'text' },
    keyOf: ({ subject }) => ({ observer, subject }),
  };
  const update = (set: string) => createClaimUpdate(pool, table, set);
  const storeMessage = update('message = new.message');
  const recordDone = update('next_at = NULL, message = NULL, last_error = NULL, done_at = new.done_at');
  const recordFailure = update('attempts = attempts + 1, next_at = new.due_at, last_error = new.last_error');
  const release = update('next_at = new.due_at');

  return {
    /** Stores tasks; returns how many are new or to be repeated. */
    async add(tasks: readonly Task[], now: number): Promise<number> {
      if (tasks.length === 0) return 0;
      // One statement must not update a row twice.
      const merged = new Map<string, Task>();
      for (const task of tasks) merged.set(task.subject, mergeTasks(merged.get(task.subject) ?? task, task));
      // Sorted: two processes that store the same subjects wait instead of deadlocking.
      const sorted = [...merged.values()].toSorted((a, b) => (a.subject < b.subject ? -1 : 1));
      const { rowCount } = await pool.query(
        `INSERT INTO tds.observer_attempts AS stored (observer, subject, task, facts, revision, next_at)
         SELECT $1, subject, task, facts, revision, $3::bigint
         FROM jsonb_to_recordset($2) AS new (subject text, task jsonb, facts text, revision bigint)
         ON CONFLICT (observer, subject) DO UPDATE SET facts = excluded.facts, revision = excluded.revision,
           task = excluded.task || jsonb_build_object('block', least(stored.task->'block', excluded.task->'block')),
           attempts = 0, next_at = excluded.next_at, last_error = NULL, message = NULL, done_at = NULL
         WHERE stored.revision < excluded.revision AND stored.facts <> excluded.facts`,
        [observer, JSON.stringify(sorted), now],
      );
      return rowCount ?? 0;
    },

    /**
     * Claims due tasks, the longest overdue first. Clients do not request them. A token whose blocks are being repaired with
     * another standard stays as it is described until the last of them: its ledger is incomplete. An unknown one has no balances.
     */
    async claim(limit: number, now: number, which: 'all' | 'requested'): Promise<TaskClaim[]> {
      if (which === 'requested') return [];
      const sql = `WITH due AS MATERIALIZED (
           SELECT subject FROM tds.observer_attempts WHERE observer = $1 AND next_at <= $2
             AND (revision = 0 OR facts = 'unknown' OR NOT EXISTS (
               SELECT FROM tds.repairs WHERE done_at IS NULL AND strpos(reason, $5 || subject) > 0))
           ORDER BY next_at LIMIT $3 FOR UPDATE SKIP LOCKED)
         UPDATE tds.observer_attempts AS claimed SET next_at = $4 FROM due
         WHERE claimed.observer = $1 AND claimed.subject = due.subject
         RETURNING claimed.subject, claimed.task, claimed.attempts, claimed.message, claimed.next_at, false AS is_requested`;
      return await sqlRows(pool, claimRow, prepared(sql, [observer, now, limit, now + CLAIM_MS, RECLASSIFY]));
    },

    prepare: (claim: TaskClaim, message: unknown): Promise<boolean> => storeMessage(claim, { message }),

    done: (claim: TaskClaim, now: number): Promise<boolean> => recordDone(claim, { done_at: now }),

    failed: (claim: TaskClaim, nextAt: number, error: string): Promise<boolean> =>
      recordFailure(claim, { due_at: nextAt, last_error: storable(error.slice(0, 2000)) }),

    release: (claim: TaskClaim, at: number): Promise<boolean> => release(claim, { due_at: at }),

    bringForward: (now: number): Promise<void> =>
      bringForward(pool, table, {
        which: 'observer = $3',
        params: [observer],
        now,
        maxDelayMs: OBSERVER_BACKOFF.maxMs + CLAIM_MS,
      }),

    async backlog(): Promise<{ waiting: number; failing: number }> {
      const [row] = await sqlRows(
        pool,
        z.object({ waiting: z.number(), failing: z.number() }),
        `SELECT count(*) AS waiting, count(*) FILTER (WHERE attempts > 0) AS failing
         FROM tds.observer_attempts WHERE observer = $1 AND next_at IS NOT NULL`,
        [observer],
      );
      return row ?? { waiting: 0, failing: 0 };
    },
  };
}
