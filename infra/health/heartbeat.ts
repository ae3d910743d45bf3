import type { Logger } from '../log.ts';
import { startLoop } from '../loop.ts';
import { inTransaction } from '../postgres/client.ts';
import type { Pool } from '../postgres/client.ts';

export const HEARTBEAT_MS = 1000;
/**
 * Two heartbeats more were due: admins see a killed process before its role counts as missing. With the age of a shared
 * answer and the poll of the console it shows within 4.5 s, which leaves 0.5 s to read and draw.
 */
export const LATE_SECONDS = 3;
/** A process without a heartbeat for this long has crashed, is stopped (SIGSTOP) or hangs. */
export const SILENT_SECONDS = 12;

export interface Heartbeat {
  /** Records that the process stopped. */
  stop(): Promise<void>;
}

/**
 * Records every second that this process of a role is alive.
 *
 * @param process host:pid:random
 */
export function startHeartbeat(pool: Pool, role: string, process: string, log: Logger): Heartbeat {
  let isFailing = false;
  const attempt = async (work: Promise<unknown>): Promise<void> => {
    try {
      await work;
      isFailing = false;
    } catch (error) {
      log[isFailing ? 'debug' : 'warn']({ err: error }, 'could not write heartbeat');
      isFailing = true;
    }
  };
  const write = async (hasStopped: boolean): Promise<void> =>
    await attempt(
      role === 'api' ? writeOfApi(pool, process, hasStopped) : writeOf(pool, role, process, hasStopped),
    );
  const deleted = role === 'api' ? null : attempt(pool.query(DELETE_OLD));
  const writing = startLoop({
    async round(signal) {
      await deleted;
      if (!signal.aborted) await write(false);
      return HEARTBEAT_MS;
    },
  });
  return {
    async stop() {
      await writing.stop();
      await write(true);
    },
  };
}

const DELETE_OLD = "DELETE FROM tds.role_processes WHERE seen_at < now() - interval '1 day'";

async function writeOf(pool: Pool, role: string, process: string, hasStopped: boolean): Promise<void> {
  await pool.query(
    `INSERT INTO tds.role_processes (role, process, stopped_at) VALUES ($1, $2, CASE WHEN $3 THEN now() END)
     ON CONFLICT (role, process) DO UPDATE SET seen_at = now(), stopped_at = excluded.stopped_at`,
    [role, process, hasStopped],
  );
}

/** The database role of the API may not write to the table, and its transactions are read-only by default. */
async function writeOfApi(pool: Pool, process: string, hasStopped: boolean): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query('SET TRANSACTION READ WRITE');
    await tx.query('SELECT tds.write_api_heartbeat($1, $2)', [process, hasStopped]);
  });
}
