import { sleep } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import type { Sql } from '../postgres/client.ts';

export const HEARTBEAT_MS = 1000;
/**
 * Two heartbeats more were due: admins see a killed process before its role counts as missing. With the age of a shared
 * answer and the poll of the console it shows within 4.5 s, which leaves 0.5 s to read and draw.
 */
export const LATE_SECONDS = 3;
/** A process without a heartbeat for so long ended without a word, is stopped (SIGSTOP) or hangs. */
export const SILENT_SECONDS = 12;

export interface Heartbeat {
  /** Records that the process stopped. */
  stop(): Promise<void>;
}

/** Records every second that this process of a role is alive. */
export function startHeartbeat(db: Sql, role: string, process: string, log: Logger): Heartbeat {
  const stopping = new AbortController();
  const write = async (statement: string, values: readonly string[] = []): Promise<void> => {
    await db
      .query(statement, values)
      .catch((error: unknown) => log.debug({ err: error }, 'could not write heartbeat'));
  };
  const running = (async () => {
    await write("DELETE FROM tds.role_processes WHERE seen_at < now() - interval '1 day'");
    while (!stopping.signal.aborted) {
      await write(
        `INSERT INTO tds.role_processes (role, process) VALUES ($1, $2)
         ON CONFLICT (role, process) DO UPDATE SET seen_at = now()`,
        [role, process],
      );
      await sleep(HEARTBEAT_MS, stopping.signal);
    }
  })();
  return {
    async stop() {
      stopping.abort();
      await running;
      await write('UPDATE tds.role_processes SET stopped_at = now() WHERE role = $1 AND process = $2', [
        role,
        process,
      ]);
    },
  };
}
