import { z } from 'zod';

import { inTransaction, sqlRows } from '../../infra/postgres/client.ts';
import type { Pool } from '../../infra/postgres/client.ts';
import { storable } from '../../schemas/text.ts';
import { movePosition } from './positions.ts';
import type { Position } from './positions.ts';

/** Something to be observed. */
export interface Task {
  readonly subject: string;
  /** What the observer wants to know of it; JSON. */
  readonly task: unknown;
  /** What was known of it when the task was made. */
  readonly facts: string;
  /** 0, or the seq of the repair that made the task: a later one with other facts has the subject observed again. */
  readonly revision: number;
}

const claimRow = z.object({
  subject: z.string(),
  task: z.unknown(),
  attempts: z.number(),
  /** The message to publish, when it was written down before. */
  message: z.unknown(),
  /** Marks the claim. */
  next_at: z.number(),
});
export type Claim = z.infer<typeof claimRow>;

/** How long a claim keeps others away; after a crash, how long until its task is taken up again. */
export const CLAIM_MS = 60_000;

export type Attempts = ReturnType<typeof createAttempts>;

/** One observer's tasks and positions in Postgres. Methods that end a claim answer false when it was lost meanwhile. */
export function createAttempts(pool: Pool, observer: string) {
  const endClaim = async (claim: Claim, set: string, values: readonly unknown[]): Promise<boolean> => {
    const { rowCount } = await pool.query(
      `UPDATE tds.observer_attempts SET ${set} WHERE observer = $1 AND subject = $2 AND next_at = $3`,
      [observer, claim.subject, claim.next_at, ...values],
    );
    return rowCount === 1;
  };

  return {
    /** Takes tasks in and moves the position, in one transaction. Answers how many are to be done that were not before. */
    async add(tasks: readonly Task[], position: Position, now: number): Promise<number> {
      return await inTransaction(pool, async (tx) => {
        // Sorted: two processes that take in the same subjects wait for each other instead of dead-locking.
        const sorted = tasks.toSorted((a, b) => (a.subject < b.subject ? -1 : 1));
        const added =
          tasks.length === 0
            ? 0
            : ((
                await tx.query(
                  `INSERT INTO tds.observer_attempts AS known (observer, subject, task, facts, revision, next_at)
                   SELECT $1, subject, task, facts, revision, $3::bigint
                   FROM jsonb_to_recordset($2) AS new (subject text, task jsonb, facts text, revision bigint)
                   ON CONFLICT (observer, subject) DO UPDATE SET task = excluded.task, facts = excluded.facts,
                     revision = excluded.revision, attempts = 0, next_at = excluded.next_at, last_error = NULL,
                     message = NULL, done_at = NULL
                   WHERE known.revision < excluded.revision AND known.facts <> excluded.facts`,
                  [observer, JSON.stringify(sorted), now],
                )
              ).rowCount ?? 0);
        await movePosition(tx, observer, position);
        return added;
      });
    },

    /** Due tasks, longest due first, each for one claimant. */
    async claim(limit: number, now: number): Promise<Claim[]> {
      return await sqlRows(
        pool,
        claimRow,
        `WITH due AS MATERIALIZED (
           SELECT subject FROM tds.observer_attempts WHERE observer = $1 AND next_at <= $2
           ORDER BY next_at LIMIT $3 FOR UPDATE SKIP LOCKED)
         UPDATE tds.observer_attempts AS claimed SET next_at = $4 FROM due
         WHERE claimed.observer = $1 AND claimed.subject = due.subject
         RETURNING claimed.subject, claimed.task, claimed.attempts, claimed.message, claimed.next_at`,
        [observer, now, limit, now + CLAIM_MS],
      );
    },

    /** Writes the message down; it is the one that will be published. */
    prepare: (claim: Claim, message: unknown): Promise<boolean> =>
      endClaim(claim, 'message = $4', [JSON.stringify(message)]),

    done: (claim: Claim, now: number): Promise<boolean> =>
      endClaim(claim, 'next_at = NULL, message = NULL, last_error = NULL, done_at = $4', [now]),

    failed: (claim: Claim, nextAt: number, error: string): Promise<boolean> =>
      endClaim(claim, 'attempts = attempts + 1, next_at = $4, last_error = $5', [
        nextAt,
        storable(error).slice(0, 2000),
      ]),

    /** Gives a task back untried. */
    release: (claim: Claim, now: number): Promise<boolean> => endClaim(claim, 'next_at = $4', [now]),

    /** Tasks to be done, and how many of them have failed before. */
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
