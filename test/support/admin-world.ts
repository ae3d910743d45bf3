import { createClickHouse } from '../../infra/clickhouse/client.ts';
import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import { startHeartbeat } from '../../infra/health/heartbeat.ts';
import type { Heartbeat } from '../../infra/health/heartbeat.ts';
import { createMetrics } from '../../infra/metrics.ts';
import { createPool } from '../../infra/postgres/client.ts';
import { createLogger } from '../../infra/log.ts';
import { chainProjections } from '../../projections/index.ts';
import { chainStatus } from '../../projections/chain-status/projector.ts';
import { createProjectionMetrics } from '../../projections/engine/metrics.ts';
import { runClickHouseProjections } from '../../projections/engine/run/clickhouse-runner.ts';
import type { ProjectionRun } from '../../projections/engine/run/lifetime.ts';
import { runPostgresProjection } from '../../projections/engine/run/postgres-runner.ts';
import { quarantine } from '../../projections/quarantine/projector.ts';
import { partitionOfHeight, topics } from '../../schemas/topics.ts';
import { apiWorld } from './api-world.ts';
import type { Answer, ApiWorld } from './api-world.ts';
import { accepted, busyBlock } from './chain-messages.ts';
import { atEnd, until } from './projection-world.ts';

/** An API with an admin's session, and a pipeline that a test drives: a log, projections and heartbeats. */
export interface AdminWorld {
  readonly api: ApiWorld;
  readonly owner: ClickHouse;
  /** GET with the session of an admin. */
  get(path: string): Promise<Answer>;
  post(path: string, json?: unknown): Promise<Answer>;
  /** Sessions of the admin and of another user. */
  readonly admin: string;
  readonly stranger: string;
  /** Starts and stops the projections of `chain.blocks`, which do not run initially. */
  startProjections(projections?: typeof chainProjections): Promise<void>;
  stopProjections(): Promise<void>;
  /** Writes blocks to the log, moves the cursor of the chunk `live` past them and makes the last one the node's head. */
  /** Those of even heights are verified. */
  publishBlocks(from: number, to: number): Promise<void>;
  projected(): Promise<void>;
  /** A heartbeat as a process of the role writes it. */
  beat(role: string): Heartbeat;
  close(): Promise<void>;
}

/** Transactions of a block, each with two transfers. */
export const TRANSACTIONS = 3;

export async function adminWorld(): Promise<AdminWorld> {
  const api = await apiWorld();
  const log = createLogger('test', 'silent');
  const owner = createClickHouse(api.env['CLICKHOUSE_URL'] ?? '', { application: 'test' });
  const reader = createPool(api.env['API_DATABASE_URL'] ?? '', { applicationName: 'test-api-heartbeat' });
  const publisher = api.kafka.publisher();
  const metrics = createProjectionMetrics(createMetrics('project'));
  const common = { kafka: api.kafka, pool: api.pool, log, metrics };
  const folds = await Promise.all([
    runPostgresProjection({ ...common, projection: chainStatus, groupId: 'chain-status' }),
    runPostgresProjection({ ...common, projection: quarantine, groupId: 'quarantine' }),
  ]);
  const { token: admin } = await api.makeUser('operator', 'operator@example.org', { isAdmin: true });
  const { token: stranger } = await api.makeUser('stranger');
  let run: ProjectionRun | null = null;
  const heartbeats: Heartbeat[] = [];
  const stopProjections = async (): Promise<void> => {
    await run?.stop();
    run = null;
  };
  return {
    api,
    owner,
    admin,
    stranger,
    get: async (path) => await api.call('GET', path, { token: admin }),
    post: async (path, json) =>
      await api.call('POST', path, { token: admin, ...(json === undefined ? {} : { json }) }),
    async startProjections(projections = chainProjections) {
      run = await runClickHouseProjections({ ...common, clickhouse: owner, projections, groupId: 'project' });
    },
    stopProjections,
    async publishBlocks(from, to) {
      const heights = Array.from({ length: to - from + 1 }, (_, i) => from + i);
      await publisher.publish(
        topics.chainBlocks,
        heights.map((height) => ({
          value: accepted(
            {
              ...busyBlock(height, TRANSACTIONS),
              ...(height % 2 === 0 ? { event_check: 'verified' as const } : {}),
            },
            height + 1,
          ),
          partition: partitionOfHeight(height),
        })),
      );
      await api.pool.query(
        `INSERT INTO tds.chunks (name, range_start, cursor, final_height, holder, lease_until)
         VALUES ('live', $1, $2, -1, 'writer', now() + interval '1 hour')
         ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor, updated_at = now()`,
        [from, to + 1],
      );
      const { hash } = busyBlock(to, TRANSACTIONS);
      await publisher.publish(topics.chainStatus, [
        { value: { type: 'head.seen', v: 1, observed_at: Date.now(), height: to, hash } },
      ]);
      await until(async () => await atEnd(api.kafka, api.pool, topics.chainStatus, ['chain-status']));
    },
    async projected() {
      const names = chainProjections.map(({ name }) => name);
      await until(async () => await atEnd(api.kafka, api.pool, topics.chainBlocks, names));
    },
    beat(role) {
      const pool = role === 'api' ? reader : api.pool;
      const heartbeat = startHeartbeat(pool, role, `${role}:1:0000000${heartbeats.length}`, log);
      heartbeats.push(heartbeat);
      return heartbeat;
    },
    async close() {
      await Promise.all([...heartbeats, ...folds].map((one) => one.stop()));
      await stopProjections();
      await publisher.close();
      await reader.end();
      await owner.close();
      await api.close();
    },
  };
}
