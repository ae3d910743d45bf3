import { z } from 'zod';

import { isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { leaseLost } from '../ports.ts';
import type { Fence } from '../ports.ts';

/** A statement that takes longer fails; whether it was applied shows when the state is read again. */
const STATEMENT_TIMEOUT_MS = 10_000;

/** Runs single statements, each its own transaction. Rows are parsed, errors classified. */
export interface Statements {
  readonly rows: <T>(row: z.ZodType<T>, text: string, values?: readonly unknown[]) => Promise<T[]>;
  /** `text` returns one row while the lease ($1 name, $2 epoch) is held, and none afterwards: that throws `LEASE_LOST`. */
  readonly fenced: (fence: Fence, text: string, values?: readonly unknown[]) => Promise<void>;
}

export const anyRow = z.unknown();

/** CTE that is empty once the lease has ended. It locks the chunk's row, so that the next holder waits for the statement. */
export const LEASE = 'lease AS (SELECT 1 FROM tds.chunks WHERE name = $1 AND epoch = $2 FOR NO KEY UPDATE)';

export function createStatements(pool: Pool): Statements {
  const rows: Statements['rows'] = async (row, text, values = []) => {
    let found: unknown[];
    try {
      const config = { text, values: [...values], query_timeout: STATEMENT_TIMEOUT_MS };
      found = (await pool.query(config)).rows;
    } catch (cause) {
      if (!isPostgresUnavailable(cause)) throw cause;
      throw new AppError('STORE_UNAVAILABLE', 'PostgreSQL unavailable', { retryable: true, cause });
    }
    return found.map((raw) => row.parse(raw));
  };
  return {
    rows,
    async fenced(fence, text, values = []) {
      const found = await rows(anyRow, text, [fence.name, fence.epoch, ...values]);
      if (found.length === 0) throw leaseLost(fence);
    },
  };
}
