import { pause } from '../lifecycle.ts';
import type { Logger } from '../log.ts';
import type { Sql } from '../postgres/client.ts';

const BEAT_MS = 2000;
/** A process that has not been heard of for so long is gone, stopped (SIGSTOP) or hangs. */
export const SILENT_SECONDS = 12;

export interface Presence {
  /** Says that the process ends in order. */
  stop(): Promise<void>;
}

/** Says every other second that a process of this role lives: what is not said is how `/readyz` knows that none does. */
export function announceProcess(db: Sql, role: string, process: string, log: Logger): Presence {
  const stopping = new AbortController();
  const beat = async (): Promise<void> => {
    try {
      await db.query(
        `INSERT INTO tds.role_processes (role, process) VALUES ($1, $2)
         ON CONFLICT (role, process) DO UPDATE SET seen_at = now()`,
        [role, process],
      );
    } catch (error) {
      log.debug({ err: error }, 'presence not told');
    }
  };
  const run = async (): Promise<void> => {
    await db
      .query("DELETE FROM tds.role_processes WHERE seen_at < now() - interval '1 day'")
      .catch((error: unknown) => log.debug({ err: error }, 'old processes not forgotten'));
    while (!stopping.signal.aborted) {
      await beat();
      await pause(BEAT_MS, stopping.signal);
    }
  };
  const running = run();
  return {
    async stop() {
      stopping.abort();
      await running;
      await db
        .query('UPDATE tds.role_processes SET stopped_at = now() WHERE role = $1 AND process = $2', [
          role,
          process,
        ])
        .catch((error: unknown) => log.debug({ err: error }, 'end not told'));
    },
  };
}
