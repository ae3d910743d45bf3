import { z } from 'zod';

import { operationAnswer } from '../../../schemas/api/admin/operations.ts';
import type { OperationAnswer } from '../../../schemas/api/admin/operations.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';

/** An operation that is running without a sign of its process for so long is taken over. */
export const ABANDONED_SECONDS = 15;
const SHOWN_OPERATIONS = 50;

/** What an admin has asked for. */
export const requestRow = z.object({
  id: z.string(),
  operation: operationAnswer.shape.operation,
  subject: z.string(),
  swap: z.boolean().nullable(),
  requested_by: z.string(),
  requested_at: z.date(),
});

const shownRow = requestRow
  .extend({
    state: operationAnswer.shape.state,
    detail: z.string().nullable(),
    finished_at: z.date().nullable(),
  })
  .transform(
    ({ swap: _swap, requested_at: requestedAt, finished_at: finishedAt, ...row }): OperationAnswer => ({
      ...row,
      requested_at: requestedAt.toISOString(),
      finished_at: finishedAt?.toISOString() ?? null,
    }),
  );

/** The newest operations, or the one with an id; requests that no process has begun are missing. */
export async function readOperations(pool: Sql, id: string | null): Promise<OperationAnswer[]> {
  return await sqlRows(
    pool,
    shownRow,
    `SELECT id, operation, subject, swap, requested_by, requested_at, detail, finished_at,
       CASE WHEN state = 'running' AND updated_at < now() - make_interval(secs => $1) THEN 'interrupted' ELSE state END AS state
     FROM tds.operations WHERE $2::text IS NULL OR id = $2 ORDER BY requested_at DESC LIMIT ${SHOWN_OPERATIONS}`,
    [ABANDONED_SECONDS, id],
  );
}
