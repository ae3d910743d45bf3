import type { Connection, Engine } from './engine.ts';
import { ClickHouseException } from './errors.ts';
import type { HttpQuery } from './request.ts';

export interface Sessions {
  /** Runs with the session's connection; one query at a time, as ClickHouse has it. */
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

/** A session is a connection kept between requests: temporary tables and what `SET` said live in it. */
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
        // Settings of a URL are for its query alone.
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
