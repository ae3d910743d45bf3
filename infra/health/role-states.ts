import { z } from 'zod';

import { topics } from '../../schemas/topics.ts';
import type { Kafka } from '../kafka/client.ts';
import { sqlRows } from '../postgres/client.ts';
import type { Sql } from '../postgres/client.ts';
import { SILENT_SECONDS } from './heartbeat.ts';
import { STORE_WITHIN_MS, raisedAlarms, withTimeout } from './service-health.ts';

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

/** The roles every installation needs, besides the API. */
const REQUIRED_ROLES = ['ingest', 'project', 'observe', 'dispatch'];
/** Prefix of alarm names, before the chunk. */
const STALLED_ALARM = 'ingest.stalled:';

const processRow = z.object({
  role: z.string(),
  alive: z.boolean(),
  process: z.string(),
  started_at: z.date(),
  heard_at: z.date(),
});
/** A checkpoint that has not moved for STALL_SECONDS. */
const idleRow = z.object({
  reader: z.string(),
  topic: z.string(),
  partition: z.number(),
  next_offset: z.number(),
  updated_at: z.date(),
});
type IdleCheckpoint = z.infer<typeof idleRow>;
const chunksRow = z.object({
  open: z.number(),
  held: z.number(),
  live_held: z.boolean(),
  updated_at: z.date().nullable(),
});
const dueRow = z.object({ first_due: z.number().nullable(), last_done: z.number().nullable() });
const overdueRow = z.object({ observer: z.string(), first_due: z.number() });

interface Stall {
  readonly since: Date;
  readonly detail: string;
}

export async function roleStates(
  db: Sql,
  kafka: Pick<Kafka, 'offsetsAt'>,
  stallSeconds: number,
): Promise<RoleState[]> {
  const [processes, projecting, ingesting, observing, dispatching] = await Promise.all([
    sqlRows(
      db,
      processRow,
      `SELECT role, process, started_at, coalesce(stopped_at, seen_at) AS heard_at,
         stopped_at IS NULL AND seen_at > now() - make_interval(secs => $1) AS alive
       FROM tds.role_processes ORDER BY role, started_at`,
      [SILENT_SECONDS],
    ),
    projectStalls(db, kafka, stallSeconds),
    ingestStalls(db, stallSeconds),
    observeStalls(db, kafka, stallSeconds),
    dispatchStalls(db, kafka, stallSeconds),
  ]);
  const stalls: Readonly<Record<string, readonly Stall[]>> = {
    project: projecting,
    ingest: ingesting,
    observe: observing,
    dispatch: dispatching,
  };
  const names = [...new Set([...REQUIRED_ROLES, ...processes.map(({ role }) => role)])];
  return names.map((name): RoleState => {
    const own = processes.filter(({ role }) => role === name);
    const alive = own.filter((one) => one.alive);
    const first = alive[0];
    if (first === undefined) {
      const heard = own.map(({ heard_at }) => heard_at.getTime());
      return {
        name,
        state: 'missing',
        since: heard.length === 0 ? null : new Date(Math.max(...heard)).toISOString(),
        detail:
          heard.length === 0 ? 'no process was ever seen' : `no heartbeat for ${SILENT_SECONDS} s or more`,
      };
    }
    // A process gets STALL_SECONDS after its start to catch up.
    const graceEndsAt = first.started_at.getTime() + stallSeconds * 1000;
    const [stall, ...more] = Date.now() < graceEndsAt ? [] : (stalls[name] ?? []);
    if (stall !== undefined) {
      const rest = more.length === 0 ? '' : `, and ${more.length} more`;
      return { name, state: 'stalled', since: stall.since.toISOString(), detail: stall.detail + rest };
    }
    const detail = alive.map(({ process }) => process).join(', ');
    return { name, state: 'working', since: first.started_at.toISOString(), detail };
  });
}

/** Projections without progress although their next message has been in the log for STALL_SECONDS. */
async function projectStalls(
  db: Sql,
  kafka: Pick<Kafka, 'offsetsAt'>,
  stallSeconds: number,
): Promise<Stall[]> {
  const idle = await sqlRows(
    db,
    idleRow,
    `SELECT projection AS reader, topic, partition, next_offset, updated_at
     FROM tds.projection_checkpoints c
     WHERE state = 'serving' AND updated_at < now() - make_interval(secs => $1)
       AND NOT EXISTS (SELECT 1 FROM tds.projection_halts h
         WHERE h.projection = c.projection AND h.build = c.build AND h.topic = c.topic AND h.partition = c.partition)
     ORDER BY updated_at`,
    [stallSeconds],
  );
  return await leftBehind(kafka, idle, stallSeconds);
}

async function ingestStalls(db: Sql, stallSeconds: number): Promise<Stall[]> {
  const [alarms, [chunks]] = await Promise.all([
    raisedAlarms(db),
    sqlRows(
      db,
      chunksRow,
      `SELECT count(*) AS open, count(*) FILTER (WHERE held) AS held, coalesce(bool_or(held AND is_live), false) AS live_held,
         max(updated_at) AS updated_at FROM tds.chunk_writers`,
    ),
  ]);
  const stalled = alarms
    .filter(({ name }) => name.startsWith(STALLED_ALARM))
    .map(({ name, detail, raised_at }) => ({
      since: raised_at,
      detail: `${name.slice(STALLED_ALARM.length)}: ${detail}`,
    }))
    .toSorted((a, b) => a.since.getTime() - b.since.getTime());
  if (chunks === undefined || chunks.updated_at === null || chunks.open === 0) return stalled;
  const quiet = Date.now() - chunks.updated_at.getTime() > stallSeconds * 1000;
  if (chunks.held > 0 || !quiet) return stalled;
  return [
    ...stalled,
    { since: chunks.updated_at, detail: `no writer holds a lease on any of ${chunks.open} open chunks` },
  ];
}

async function observeStalls(
  db: Sql,
  kafka: Pick<Kafka, 'offsetsAt'>,
  stallSeconds: number,
): Promise<Stall[]> {
  const [idle, overdue] = await Promise.all([
    standingReaders(db, 'observe-', stallSeconds),
    sqlRows(
      db,
      overdueRow,
      `SELECT observer, first_due FROM tds.observer_progress,
         (SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms) AS clock
       WHERE first_due < now_ms - $1 AND last_due < now_ms AND coalesce(done_at, 0) < now_ms - $1`,
      [stallSeconds * 1000],
    ),
  ]);
  return [
    ...(await leftBehind(kafka, idle, stallSeconds)),
    ...overdue.map(({ observer, first_due }) => ({
      since: new Date(first_due),
      detail: `${observer}: due tasks are not processed`,
    })),
  ];
}

/** Matchers without progress although messages are pending, and due deliveries that are not sent. */
async function dispatchStalls(
  db: Sql,
  kafka: Pick<Kafka, 'offsetsAt'>,
  stallSeconds: number,
): Promise<Stall[]> {
  const [idle, overdue] = await Promise.all([
    standingReaders(db, 'dispatch-', stallSeconds),
    sqlRows(
      db,
      dueRow,
      `SELECT min(due_at) AS first_due, max(last_delivery_at) AS last_done FROM tds.webhook_endpoints`,
    ),
  ]);
  const { first_due: due = null, last_done: done = null } = overdue[0] ?? {};
  const before = Date.now() - stallSeconds * 1000;
  const isOverdue = due !== null && due < before && (done === null || done < before);
  return [
    // Users' requests are read from a table: this checkpoint moves only with their commands.
    ...(await leftBehind(
      kafka,
      idle.filter(({ reader }) => reader !== 'requests'),
      stallSeconds,
    )),
    ...(isOverdue ? [{ since: new Date(due), detail: 'due deliveries are not sent' }] : []),
  ];
}

/** Consumers that write no builds and whose checkpoint has not moved for STALL_SECONDS. */
async function standingReaders(
  db: Sql,
  prefix: 'observe-' | 'dispatch-',
  stallSeconds: number,
): Promise<IdleCheckpoint[]> {
  return await sqlRows(
    db,
    idleRow,
    `SELECT substr(consumer, length($2) + 1) AS reader, topic, partition, next_offset, updated_at FROM tds.checkpoints
     WHERE starts_with(consumer, $2) AND build = 0 AND updated_at < now() - make_interval(secs => $1)
     ORDER BY updated_at`,
    [stallSeconds, prefix],
  );
}

/** Of the idle checkpoints, those with a pending message older than STALL_SECONDS. */
async function leftBehind(
  kafka: Pick<Kafka, 'offsetsAt'>,
  idle: readonly IdleCheckpoint[],
  stallSeconds: number,
): Promise<Stall[]> {
  const names = new Set(idle.map(({ topic }) => topic));
  const asked = Object.values(topics).filter(({ name }) => names.has(name));
  const before = Date.now() - stallSeconds * 1000;
  const found = await withTimeout(
    Promise.all(
      asked.map(async (topic) => {
        const offsets = await kafka.offsetsAt(topic, before);
        return offsets.map(({ partition, offset }) => [`${topic.name}:${partition}`, offset] as const);
      }),
    ).catch(() => []),
    STORE_WITHIN_MS,
    [],
  );
  const old = new Map(found.flat());
  return idle
    .filter(({ topic, partition, next_offset }) => next_offset < (old.get(`${topic}:${partition}`) ?? 0))
    .map(({ reader, topic, partition, next_offset, updated_at }) => ({
      since: updated_at,
      detail: `${reader} is stuck at ${topic}:${partition}:${next_offset}`,
    }));
}
