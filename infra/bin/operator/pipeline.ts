import { z } from 'zod';

import { blocksAt, blocksBefore } from '../../../projections/indexed-blocks/queries.ts';
import type { BlockBefore } from '../../../projections/indexed-blocks/queries.ts';
import { servedBuilds } from '../../../projections/served.ts';
import type {
  PipelineAlarm,
  PipelineAnswer,
  PipelineRole,
  PipelineStage,
} from '../../../schemas/api/admin/pipeline.ts';
import { messageId } from '../../../schemas/messages/quarantine.ts';
import { partitionOfHeight, topics } from '../../../schemas/topics.ts';
import type { Consumer } from '../../health/consumers.ts';
import { LATE_SECONDS, SILENT_SECONDS } from '../../health/heartbeat.ts';
import { HEAD_STALLED } from '../../health/alarms.ts';
import { remedyOf } from '../../health/remedies.ts';
import { sqlRows } from '../../postgres/client.ts';
import type { Sql } from '../../postgres/client.ts';
import { readThroughput } from './history.ts';
import { headAgeSeconds, logHeight, readPipelineStatus } from './status.ts';
import type { OperatorStores, PipelineStatus } from './status.ts';

const processRow = z.object({
  role: z.string(),
  process: z.string(),
  started_at: z.date(),
  seen_at: z.date(),
  state: z.enum(['live', 'late', 'silent', 'stopped']),
});
type RoleProcess = z.infer<typeof processRow>;

/** The row of heights from the node to the API, with alarms, roles and throughput. */
export async function readPipeline(
  stores: OperatorStores,
  api: { readonly indexedHeight: number | null; readonly isRedisUp: boolean },
): Promise<PipelineAnswer> {
  const [read, throughput] = await Promise.all([
    readStages(stores, api.indexedHeight),
    readThroughput(stores.pool, Date.now()),
  ]);
  const { status, processes, now } = read;
  return {
    updated_at: new Date(now).toISOString(),
    log_available: status.isLogAvailable,
    l1_height: status.chain.l1_height,
    stages: stagesOf(read),
    alarms: alarmsOf(status, api.isRedisUp),
    roles: rolesOf(status, processes),
    throughput,
    repairs: { pending: status.repairs.pending, oldest: status.repairs.oldest?.toISOString() ?? null },
    quarantined: status.quarantine.reduce((sum, { count }) => sum + count, 0),
  };
}

/** The stages of the projections, and the topic that each reads. */
export async function projectionStages(
  stores: OperatorStores,
): Promise<{ stages: PipelineStage[]; topics: ReadonlyMap<string, string> }> {
  const read = await readStages(stores, null);
  const { consumers } = read.status;
  return {
    stages: stagesOfProjections(read),
    topics: new Map(
      consumers.flatMap(({ role, consumer, topic }) => (role === 'project' ? [[consumer, topic]] : [])),
    ),
  };
}

async function readStages(
  { pool, clickhouse, kafka, stallSeconds }: OperatorStores,
  indexedHeight: number | null,
): Promise<Read> {
  const [status, processes, served] = await Promise.all([
    readPipelineStatus(pool, kafka, stallSeconds),
    roleProcesses(pool),
    servedBuilds(pool),
  ]);
  const behind = chainConsumers(status).filter(({ lag }) => lag !== 0);
  const places = behind.map(({ partition, next_offset: offset }) => ({ partition, offset }));
  const heights = [logHeight(status.chunks), indexedHeight].filter((height) => height !== null);
  const [before, blocks] = await Promise.all([
    blocksBefore(clickhouse, served, places),
    blocksAt(clickhouse, served, heights),
  ]);
  const timeOf = (height: number): number | null => blocks.get(height)?.timestamp ?? null;
  return { status, processes, before, timeOf, indexedHeight, now: Date.now() };
}

async function roleProcesses(db: Sql): Promise<RoleProcess[]> {
  return await sqlRows(
    db,
    processRow,
    `SELECT role, process, started_at, seen_at, CASE
       WHEN stopped_at IS NOT NULL THEN 'stopped'
       WHEN seen_at > now() - make_interval(secs => $1) THEN 'live'
       WHEN seen_at > now() - make_interval(secs => $2) THEN 'late'
       ELSE 'silent' END AS state
     FROM tds.role_processes WHERE seen_at > now() - interval '1 hour' ORDER BY started_at, process`,
    [LATE_SECONDS, SILENT_SECONDS],
  );
}

function chainConsumers({ consumers }: Pick<PipelineStatus, 'consumers'>): Consumer[] {
  return consumers.filter(({ role, topic }) => role === 'project' && topic === topics.chainBlocks.name);
}

interface Read {
  readonly status: PipelineStatus;
  readonly processes: readonly RoleProcess[];
  readonly before: readonly BlockBefore[];
  /** Unix seconds of an indexed block. */
  readonly timeOf: (height: number) => number | null;
  readonly indexedHeight: number | null;
  /** Unix milliseconds. */
  readonly now: number;
}

type StageState = Pick<PipelineStage, 'state' | 'detail'>;
type Progress = Pick<PipelineStage, 'height' | 'lag_blocks' | 'lag_seconds'>;

function stagesOf(read: Read): PipelineStage[] {
  const { status, timeOf, indexedHeight } = read;
  const head = status.head;
  const written = logHeight(status.chunks);
  const log = progressAt(read, written, written === null ? null : timeOf(written));
  const api = progressAt(read, indexedHeight, indexedHeight === null ? null : timeOf(indexedHeight));
  const isIndexed = written === null || (indexedHeight !== null && indexedHeight >= written);
  return [
    {
      name: 'node',
      kind: 'node',
      height: head,
      lag_blocks: head === null ? null : 0,
      lag_seconds: head === null ? null : 0,
      lag_messages: null,
      ...stateOfNode(read),
    },
    { name: 'log', kind: 'log', ...log, lag_messages: null, ...stateOfLog(read, log) },
    ...stagesOfProjections(read),
    {
      name: 'api',
      kind: 'api',
      ...api,
      lag_messages: null,
      state: isIndexed && api.lag_blocks === 0 ? 'ok' : api.height === null ? 'unknown' : 'behind',
      detail: null,
    },
  ];
}

/** How far a stage is behind the head. */
function progressAt(
  { status, now }: Pick<Read, 'status' | 'now'>,
  height: number | null,
  timestamp: number | null,
): Progress {
  const head = status.head;
  const lag = head === null || height === null ? null : Math.max(0, head - height);
  const age = timestamp === null ? null : Math.max(0, now / 1000 - timestamp);
  return { height, lag_blocks: lag, lag_seconds: lag === 0 ? 0 : age };
}

/** No process of the role has a recent heartbeat; null where the role's own state says enough. */
function silenceOf({ processes, status }: Read, role: string): StageState | null {
  const known = status.roles.find(({ name }) => name === role);
  if (known?.state === 'missing') return { state: 'missing', detail: known.detail };
  const running = processes.filter((one) => one.role === role && one.state !== 'stopped');
  if (running.some(({ state }) => state === 'live')) return null;
  return { state: 'silent', detail: `no heartbeat of \`${role}\` for ${LATE_SECONDS} s` };
}

/** While the head is not known to be stalled, the detail is its age. */
function stateOfNode({ status, now }: Read): StageState {
  if (status.head === null) return { state: 'unknown', detail: null };
  const stalled = status.alarms.find(({ name }) => name === HEAD_STALLED);
  if (stalled !== undefined) return { state: 'stalled', detail: stalled.detail };
  const age = headAgeSeconds(status, now);
  return { state: 'ok', detail: age === null ? null : `no newer block for ${age} s` };
}

function stateOfLog(read: Read, { lag_blocks: lag }: Progress): StageState {
  const silence = silenceOf(read, 'ingest');
  if (silence !== null) return silence;
  const ingest = read.status.roles.find(({ name }) => name === 'ingest');
  if (ingest?.state === 'stalled') return { state: 'stalled', detail: ingest.detail };
  if (lag === null) return { state: 'unknown', detail: null };
  return { state: lag === 0 ? 'ok' : 'behind', detail: null };
}

function stagesOfProjections(read: Read): PipelineStage[] {
  const { consumers } = read.status;
  const projected = consumers.filter(({ role }) => role === 'project');
  return [...Map.groupBy(projected, ({ consumer }) => consumer)].map(([name, own]) => {
    const ofChain = own[0]?.topic === topics.chainBlocks.name;
    const lags = own.map(({ lag }) => lag);
    const progress = ofChain
      ? projectionProgress(read, own)
      : { height: null, lag_blocks: null, lag_seconds: null };
    const messages = lags.includes(null) ? null : lags.reduce<number>((sum, lag) => sum + (lag ?? 0), 0);
    return {
      name,
      kind: 'projection',
      ...progress,
      lag_messages: messages,
      ...stateOfProjection(read, name, own, messages),
    };
  });
}

/**
 * A projection that has read the partition of the newest block has its height; else the highest block before its checkpoints,
 * which is known where it is indexed.
 */
function projectionProgress(read: Read, own: readonly Consumer[]): Progress {
  const { status, before, timeOf } = read;
  const written = logHeight(status.chunks);
  const newest =
    written === null ? undefined : own.find((one) => one.partition === partitionOfHeight(written));
  if (written !== null && newest?.lag === 0) return progressAt(read, written, timeOf(written));
  const known = before.filter(({ partition, before: offset }) =>
    own.some((one) => one.partition === partition && one.next_offset === offset),
  );
  const [highest] = known.toSorted((a, b) => b.height - a.height);
  return progressAt(read, highest?.height ?? null, highest?.timestamp ?? null);
}

function stateOfProjection(
  read: Read,
  name: string,
  own: readonly Consumer[],
  messages: number | null,
): StageState {
  const { halts, alarms } = read.status;
  const halt = halts.find(({ projection }) => projection === name);
  if (halt !== undefined) {
    const { topic, partition, message_offset: offset, reason } = halt;
    return { state: 'halted', detail: `${messageId({ topic, partition, offset })}: ${reason}` };
  }
  const outdated = alarms.find((alarm) => alarm.name === `projection.outdated:${name}`);
  if (outdated !== undefined) return { state: 'stalled', detail: outdated.detail };
  const silence = silenceOf(read, 'project');
  if (silence !== null) return silence;
  if (own.some(({ isStuck }) => isStuck)) return { state: 'stalled', detail: null };
  if (messages === null) return { state: 'unknown', detail: null };
  return { state: messages === 0 ? 'ok' : 'behind', detail: null };
}

const MISSING_ROLE = {
  meaning: 'no process of a role reports',
  action: 'start one: `tds NAME`; read the log of its last process',
};
const STALLED_ROLE = {
  meaning: 'there is work, and no progress for `STALL_SECONDS`',
  action: 'read the detail and the log of the role; check its stores',
};

function alarmsOf({ halts, alarms, roles }: PipelineStatus, isRedisUp: boolean): PipelineAlarm[] {
  return [
    ...halts.map(({ projection, topic, partition, message_offset: offset, reason, halted_at: at }) => {
      const id = messageId({ topic, partition, offset });
      return {
        kind: 'halt' as const,
        name: `halt:${projection}:${topic}:${partition}`,
        detail: `${projection} at ${id}: ${reason}`,
        since: at.toISOString(),
        meaning: 'a message cannot be read, and halts its partition',
        action: `\`tds quarantine show ${id}\`, then \`tds quarantine skip ${id}\` or \`tds quarantine retry ${id}\``,
      };
    }),
    ...alarms.map(({ name, detail, raised_at: at }) => ({
      kind: 'alarm' as const,
      name,
      detail,
      since: at.toISOString(),
      ...remedyOf(name),
    })),
    ...roles
      .filter(({ state }) => state !== 'working')
      .map(({ name, state, since, detail }) => ({
        kind: 'role' as const,
        name: `role:${name}`,
        detail: `${state}: ${detail ?? ''}`,
        since,
        ...(state === 'missing' ? MISSING_ROLE : STALLED_ROLE),
      })),
    ...(isRedisUp ? [] : [REDIS_ALARM]),
  ];
}

const REDIS_ALARM: PipelineAlarm = {
  kind: 'redis',
  name: 'redis',
  detail: 'Redis is unavailable',
  since: null,
  meaning: 'limits are counted per process and stricter; log-ins are refused',
  action: 'check `REDIS_URL` and Redis',
};

function rolesOf({ roles }: PipelineStatus, processes: readonly RoleProcess[]): PipelineRole[] {
  return roles.map(({ name, state, since, detail }) => ({
    name,
    state,
    since,
    detail,
    processes: processes
      .filter(({ role }) => role === name)
      .map(({ process, started_at: startedAt, seen_at: seenAt, state: own }) => ({
        process,
        started_at: startedAt.toISOString(),
        seen_at: seenAt.toISOString(),
        state: own,
      })),
  }));
}
