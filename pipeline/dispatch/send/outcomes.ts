import { z } from 'zod';

import { inTransaction, sqlRows } from '../../../infra/postgres/client.ts';
import type { Pool, PoolClient } from '../../../infra/postgres/client.ts';
import { lockEndpoints } from '../endpoints.ts';
import type { DeliveryClaim } from './claims.ts';
import type { NextState } from './schedule.ts';

/** The outcome of one attempt. */
export interface AttemptOutcome {
  readonly claim: DeliveryClaim;
  readonly next: NextState;
  /** Unix milliseconds. */
  readonly startedAt: number;
  readonly durationMs: number;
  readonly responseCode: number | null;
  readonly responseBody: string | null;
  readonly error: string | null;
}

/** What remains requested by hand after attempt `r`: a request made while it ran still stands, except after a success. */
const REMAINING_MANUAL_AT = `CASE WHEN r.status = 'success' OR (r.is_manual AND d.manual_at = r.asked_at) THEN NULL
  ELSE d.manual_at END`;

/**
 * Stores the outcomes of attempts, and updates the counts of their webhooks. An attempt whose lease another process has
 * taken over is ignored.
 */
export async function storeOutcomes(pool: Pool, outcomes: readonly AttemptOutcome[]): Promise<void> {
  if (outcomes.length === 0) return;
  await inTransaction(pool, async (tx) => {
    const stored = await sqlRows(
      tx,
      z.object({ id: z.string() }),
      `UPDATE tds.webhook_deliveries d SET
         status = r.status, attempts = r.attempts, scheduled_attempts = r.scheduled_attempts, manual = r.is_manual,
         scheduled_at = r.scheduled_at, manual_at = ${REMAINING_MANUAL_AT},
         due_at = least(r.scheduled_at, ${REMAINING_MANUAL_AT}),
         lease = NULL, response_code = r.response_code, response_body = r.response_body, error = r.error,
         duration_ms = r.duration_ms, last_attempt_at = r.started_at
       FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::integer[], $5::integer[], $6::boolean[], $7::bigint[],
         $8::integer[], $9::text[], $10::text[], $11::integer[], $12::bigint[], $13::bigint[])
         AS r (id, lease, status, attempts, scheduled_attempts, is_manual, scheduled_at, response_code, response_body, error,
           duration_ms, started_at, asked_at)
       WHERE d.id = r.id AND d.lease = r.lease
       RETURNING d.id`,
      [
        outcomes.map(({ claim }) => claim.id),
        outcomes.map(({ claim }) => claim.lease),
        outcomes.map(({ next }) => next.status),
        outcomes.map(({ next }) => next.attempts),
        outcomes.map(({ next }) => next.scheduledAttempts),
        outcomes.map(({ claim }) => claim.isManual),
        outcomes.map(({ next }) => next.scheduledAt),
        outcomes.map(({ responseCode }) => responseCode),
        outcomes.map(({ responseBody }) => responseBody),
        outcomes.map(({ error }) => error),
        outcomes.map(({ durationMs }) => durationMs),
        outcomes.map(({ startedAt }) => startedAt),
        outcomes.map(({ claim }) => claim.manualAt),
      ],
    );
    const ids = new Set(stored.map(({ id }) => id));
    await updateEndpoints(
      tx,
      outcomes.filter(({ claim }) => ids.has(claim.id)),
    );
  });
}

/** What some attempts of one webhook change in its endpoint. */
interface EndpointChange {
  readonly webhookId: number;
  readonly activation: number;
  readonly hasSucceeded: boolean;
  /** Deliveries that died after the last success. */
  readonly deaths: number;
  readonly startedAt: number;
  /** The earliest of them; null: none is due again. */
  readonly dueAt: number | null;
}

/** Tests, and attempts of an earlier activation, do not count as dead or successful. */
function endpointChange(webhookId: number, outcomes: readonly AttemptOutcome[]): EndpointChange {
  const activation = Math.max(...outcomes.map(({ claim }) => claim.activation));
  const counting = outcomes.filter(({ claim }) => !claim.isTest && claim.activation === activation);
  const lastSuccess = counting.findLastIndex(({ next }) => next.status === 'success');
  const due = outcomes.flatMap(({ next: { dueAt } }) => (dueAt === null ? [] : [dueAt]));
  return {
    webhookId,
    activation,
    hasSucceeded: lastSuccess !== -1,
    deaths: counting.slice(lastSuccess + 1).filter(({ next }) => next.hasDied).length,
    startedAt: Math.max(...outcomes.map(({ startedAt }) => startedAt)),
    dueAt: due.length === 0 ? null : Math.min(...due),
  };
}

/** A success resets the count of dead deliveries in a row; each death adds one. */
async function updateEndpoints(tx: PoolClient, outcomes: readonly AttemptOutcome[]): Promise<void> {
  const changes = [...Map.groupBy(outcomes, ({ claim }) => claim.webhookId)]
    .toSorted(([a], [b]) => a - b)
    .map(([webhookId, attempts]) => endpointChange(webhookId, attempts));
  const ids = changes.map(({ webhookId }) => webhookId);
  await lockEndpoints(tx, ids);
  await tx.query(
    `UPDATE tds.webhook_endpoints e SET
       consecutive_dead = CASE
         WHEN e.activation > r.activation THEN e.consecutive_dead
         WHEN r.has_succeeded OR e.activation < r.activation THEN r.deaths
         ELSE e.consecutive_dead + r.deaths END,
       activation = greatest(e.activation, r.activation),
       last_delivery_at = greatest(e.last_delivery_at, r.started_at),
       due_at = least(e.due_at, r.due_at,
         (SELECT min(d.manual_at) FROM tds.webhook_deliveries d WHERE d.id = ANY ($7::uuid[]) AND d.webhook_id = r.webhook_id),
         -- Deliveries that were skipped while too many were dead are due at once.
         CASE WHEN r.has_succeeded AND e.consecutive_dead > 0 THEN 0 END)
     FROM unnest($1::bigint[], $2::bigint[], $3::boolean[], $4::integer[], $5::bigint[], $6::bigint[])
       AS r (webhook_id, activation, has_succeeded, deaths, started_at, due_at)
     WHERE e.webhook_id = r.webhook_id`,
    [
      ids,
      changes.map(({ activation }) => activation),
      changes.map(({ hasSucceeded }) => hasSucceeded),
      changes.map(({ deaths }) => deaths),
      changes.map(({ startedAt }) => startedAt),
      changes.map(({ dueAt }) => dueAt),
      outcomes.map(({ claim }) => claim.id),
    ],
  );
}
