import type { Connection, Engine } from './engine.ts';
import { ClickHouseException } from './errors.ts';
import type { HttpQuery } from './request.ts';

export interface Sessions {
  /** Runs `work` with the connection of a session; one query at a time, as in ClickHouse. */
  use<T>(
    session: NonNullable<HttpQuery['session']>,
    settings: Iterable<string>,
    work: (connection: Connection) => Promise<T>,
  ): Promise<T>;
}

interface Entry {
  readonly connection: Connection;
  busy: boolean;
  timer: NodeJS.Timeout | null;
}

/** A session is a connection kept between requests, with its temporary tables and settings. */
export function createSessions(engine: Engine): Sessions {
  const open = new Map<string, Entry>();
  return {
    async use(session, settings, work) {
      const { id, timeoutMs } = session;
      const known = open.get(id);
      if (known === undefined && session.mustExist) {
        throw new ClickHouseException(372, 'SESSION_NOT_FOUND', `Session ${id} not found`);
      }
      if (known?.busy === true) {
        throw new ClickHouseException(
          373,
          'SESSION_IS_LOCKED',
          `Session ${id} is locked by a concurrent client`,
        );
      }
      const entry = known ?? { connection: engine.openSession(), busy: false, timer: null };
      open.set(id, entry);
      entry.busy = true;
      if (entry.timer !== null) clearTimeout(entry.timer);
      try {
        return await work(entry.connection);
      } finally {
        // Settings in a URL apply to its query only.
        await engine.reset(entry.connection, [...settings]);
        entry.busy = false;
        entry.timer = setTimeout(() => {
          open.delete(id);
          engine.closeSession(entry.connection);
        }, timeoutMs);
        entry.timer.unref();
      }
    },
  };
}
