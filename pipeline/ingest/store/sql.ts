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
  /**
   * `text` returns the chunk's new revision while the lease ($1 name, $2 epoch, $3 the revision known to this process) is
   * held, and no row afterwards: that throws `LEASE_LOST`. Further values begin at $4.
   */
  readonly fenced: (fence: Fence, text: string, values?: readonly unknown[]) => Promise<void>;
  /** The revision of the chunk that this process has seen under a lease. */
  readonly knownRevision: (fence: Fence) => number;
}

export const anyRow = z.unknown();
const revisionRow = z.object({ revision: z.int() });

/**
 * End of every `UPDATE tds.chunks SET` under a lease. The revision rises with every write, so one that is lower than what
 * this process knows shows that PostgreSQL has failed over and lost a write.
 */
export const FENCE = 'revision = revision + 1 WHERE name = $1 AND epoch = $2 AND revision >= $3';
/** CTE that is empty once the lease has ended. It locks the chunk's row, so that the next holder waits for the statement. */
export const LEASE = `lease AS (UPDATE tds.chunks SET ${FENCE} RETURNING revision)`;

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
  /** By chunk. A process has one lease of a chunk at a time. */
  const known = new Map<string, { readonly epoch: number; readonly revision: number }>();
  const knownRevision: Statements['knownRevision'] = ({ name, epoch }) => {
    const latest = known.get(name);
    return latest?.epoch === epoch ? latest.revision : 0;
  };
  return {
    rows,
    knownRevision,
    async fenced(fence, text, values = []) {
      const { name, epoch } = fence;
      const [found] = await rows(revisionRow, text, [name, epoch, knownRevision(fence), ...values]);
      if (found === undefined) throw leaseLost(fence);
      known.set(name, { epoch, revision: Math.max(found.revision, knownRevision(fence)) });
    },
  };
}
