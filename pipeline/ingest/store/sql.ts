import { z } from 'zod';

import { isPostgresUnavailable } from '../../../infra/postgres/client.ts';
import type { Pool } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import { contractsMap } from '../../../schemas/messages/chain-blocks.ts';
import { felt, height } from '../../../schemas/messages/common.ts';
import type { Chunk, Fence } from '../ports.ts';

/** A statement that takes longer is given up; what it did is found out by reading the state again. */
const STATEMENT_TIMEOUT_MS = 10_000;

/** Runs single statements (each its own transaction), with rows parsed at the border and errors classified. */
export interface Statements {
  readonly rows: <T>(row: z.ZodType<T>, text: string, values?: readonly unknown[]) => Promise<T[]>;
  /** A statement that answers the number of leases it found held: none means `LEASE_LOST`. */
  readonly fenced: (fence: Fence, text: string, values?: readonly unknown[]) => Promise<void>;
}

const heldRow = z.object({ held: z.int() });

export function createStatements(pool: Pool): Statements {
  const rows: Statements['rows'] = async (row, text, values = []) => {
    let found: unknown[];
    try {
      const config = { text, values: [...values], query_timeout: STATEMENT_TIMEOUT_MS };
      found = (await pool.query(config)).rows;
    } catch (cause) {
      // What is not Postgres's own refusal is the connection's: ended, refused, timed out.
      if (sqlState(cause) !== null && !isPostgresUnavailable(cause)) throw cause;
      throw new AppError('STORE_UNAVAILABLE', 'Postgres did not answer', { retryable: true, cause });
    }
    return found.map((raw) => row.parse(raw));
  };
  return {
    rows,
    async fenced(fence, text, values = []) {
      const [result] = await rows(heldRow, text, [fence.name, fence.epoch, ...values]);
      if (result?.held !== 1) throw leaseLost(fence);
    },
  };
}

export function leaseLost({ name, epoch }: Fence): AppError {
  return new AppError('LEASE_LOST', `${name}: epoch ${epoch} is over, or its cursor was moved by another`);
}

/** SQLSTATE of Postgres's refusal; null for any other error. */
export function sqlState(error: unknown): string | null {
  if (!(error instanceof Error) || !('severity' in error) || !('code' in error)) return null;
  return typeof error.code === 'string' ? error.code : null;
}

export const chunkColumns =
  'name, range_start, range_end, cursor, final_height, final_hash, first_parent, status, opened, plan_to, plan_facts';

export const chunkRow = z
  .object({
    name: z.string(),
    range_start: height,
    range_end: height.nullable(),
    cursor: height,
    final_height: z.int().min(-1),
    final_hash: felt.nullable(),
    first_parent: felt.nullable(),
    status: z.enum(['open', 'finished']),
    opened: z.boolean(),
    plan_to: z.int(),
    plan_facts: contractsMap,
  })
  .transform((row): Chunk => ({
    name: row.name,
    start: row.range_start,
    end: row.range_end,
    cursor: row.cursor,
    finalHeight: row.final_height,
    finalHash: row.final_hash,
    firstParent: row.first_parent,
    finished: row.status === 'finished',
    opened: row.opened,
    plan: { to: row.plan_to, facts: row.plan_facts },
  }));
