import { z } from 'zod';

import { sqlRows } from '../postgres/client.ts';
import type { Sql } from '../postgres/client.ts';
import type { Consumer } from './consumers.ts';
import { SILENT_SECONDS } from './heartbeat.ts';

/**
 * Whether each role makes progress, derived from the stores alone, so that it covers processes on other machines, ones that
 * hang or are stopped (SIGSTOP), and ones that were never started.
 */
export interface RoleState {
  readonly name: string;
  /** missing: no live process; stalled: work is pending and there was no progress for STALL_SECONDS. */
  readonly state: 'working' | 'stalled' | 'missing';
  /** ISO time of the start, of the last progress, or of the last heartbeat; null: never seen. */
  readonly since: string | null;
  readonly detail: string | null;
}

/** The roles every installation needs. */
const REQUIRED_ROLES = ['ingest', 'project', 'observe', 'dispatch', 'api'];

const heartbeatRow = z.object({
  role: z.string(),
  /** Live processes; null: none. */
  processes: z.string().nullable(),
  started_at: z.date().nullable(),
  heard_at: z.date(),
  /** A process gets STALL_SECONDS after its start to catch up. */
  is_starting: z.boolean().nullable(),
});

const SELECT_HEARTBEATS = `
  SELECT role, string_agg(process, ', ' ORDER BY started_at) FILTER (WHERE alive) AS processes,
    min(started_at) FILTER (WHERE alive) AS started_at, max(coalesce(stopped_at, seen_at)) AS heard_at,
    min(started_at) FILTER (WHERE alive) > now() - make_interval(secs => $2) AS is_starting
  FROM (SELECT *, stopped_at IS NULL AND seen_at > now() - make_interval(secs => $1) AS alive
        FROM tds.role_processes) AS processes
  GROUP BY role ORDER BY min(started_at)`;

const stallRow = z.object({ role: z.string(), since: z.date(), detail: z.string() });
type Stall = z.infer<typeof stallRow>;

/** Work that is due and not done, besides the messages that consumers have not processed. Due times are unix milliseconds. */
const SELECT_OVERDUE = `
  WITH stall AS (SELECT now() AS now, now() - make_interval(secs => $1) AS at),
    ms AS (SELECT extract(epoch FROM now) * 1000 AS now, extract(epoch FROM at) * 1000 AS at FROM stall)
  SELECT 'ingest' AS role, raised_at AS since, substr(name, length('ingest.stalled:') + 1) || ': ' || detail AS detail
  FROM tds.alarms WHERE starts_with(name, 'ingest.stalled:')
  UNION ALL
  SELECT 'ingest', max(updated_at), format('no writer holds a lease on any of %s open chunks', count(*))
  FROM tds.chunk_writers HAVING max(updated_at) < (SELECT at FROM stall) AND NOT bool_or(held)
  UNION ALL
  SELECT 'observe', to_timestamp(first_due / 1000.0), observer || ': due tasks are not processed'
  FROM tds.observer_progress, ms
  WHERE first_due < ms.at AND last_due < ms.now AND coalesce(done_at, 0) < ms.at
  UNION ALL
  SELECT 'dispatch', to_timestamp(min(due_at) / 1000.0), 'due deliveries are not sent'
  FROM tds.webhook_endpoints
  HAVING min(due_at) < (SELECT at FROM ms) AND coalesce(max(last_delivery_at), 0) < (SELECT at FROM ms)`;

/** The state of every role, from its heartbeats, its consumers and the work that is due. */
export async function roleStates(
  db: Sql,
  consumers: readonly Consumer[],
  stallSeconds: number,
): Promise<RoleState[]> {
  const [heartbeats, overdue] = await Promise.all([
    sqlRows(db, heartbeatRow, SELECT_HEARTBEATS, [SILENT_SECONDS, stallSeconds]),
    sqlRows(db, stallRow, SELECT_OVERDUE, [stallSeconds]),
  ]);
  const stuck = consumers.filter(({ isStuck }) => isStuck).map(stallOf);
  const stalls = [...stuck, ...overdue].toSorted((a, b) => a.since.getTime() - b.since.getTime());
  const names = new Set([...REQUIRED_ROLES, ...heartbeats.map(({ role }) => role)]);
  return [...names].map((name) => ({
    name,
    ...stateOf(
      heartbeats.find(({ role }) => role === name),
      stalls.filter(({ role }) => role === name),
    ),
  }));
}

function stallOf({ role, consumer, topic, partition, next_offset, updated_at, waits_for }: Consumer): Stall {
  const cause = waits_for === null ? '' : `: ${waits_for}`;
  const detail = `${consumer} is stuck at ${topic}:${partition}:${next_offset}${cause}`;
  return { role, since: updated_at, detail };
}

function stateOf(
  heartbeat: z.infer<typeof heartbeatRow> | undefined,
  stalls: readonly Stall[],
): Omit<RoleState, 'name'> {
  if (heartbeat === undefined) return { state: 'missing', since: null, detail: 'no process was ever seen' };
  const { processes, started_at, heard_at, is_starting } = heartbeat;
  if (processes === null) {
    const detail = `no heartbeat for ${SILENT_SECONDS} s or more`;
    return { state: 'missing', since: heard_at.toISOString(), detail };
  }
  const [stall, ...more] = is_starting === true ? [] : stalls;
  if (stall === undefined) {
    return { state: 'working', since: started_at?.toISOString() ?? null, detail: processes };
  }
  const rest = more.length === 0 ? '' : `, and ${more.length} more`;
  return { state: 'stalled', since: stall.since.toISOString(), detail: stall.detail + rest };
}
