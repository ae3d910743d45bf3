import { z } from 'zod';

import type { RowReader } from '../../infra/clickhouse/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { serviceHealth } from '../../infra/health/service-health.ts';
import { withTimeout } from '../../infra/lifecycle.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import { userByLogin } from '../../projections/accounts/queries.ts';
import type { ServedBuilds } from '../../projections/served.ts';
import { shareRecent } from '../http/share-recent.ts';
import type { Readiness } from './health.ts';

export interface ReadinessDeps {
  readonly pool: Sql;
  readonly clickhouse: RowReader;
  readonly kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>;
  readonly stallSeconds: number;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly indexedHeight: () => number | null;
  /** False while Redis is unavailable and each process counts for itself. */
  readonly areLimitsShared: () => Promise<boolean>;
  /** The configured admin; null where none is configured. */
  readonly adminUsername: string | null;
}

const TIMEOUT_MS = 4000;
/** Timeout of Redis and ClickHouse. */
const STORE_TIMEOUT_MS = 1500;

/**
 * 200 when the API can answer from its stores, no projection is halted and the configured admin exists; also during
 * backfill and while the node, Kafka or Redis is unavailable. The body lists the lag of each projection.
 */
export function createReadiness(deps: ReadinessDeps): () => Promise<Readiness> {
  const { pool, clickhouse, kafka, servedBuilds, indexedHeight, stallSeconds, areLimitsShared } = deps;
  // Calls would pile up while Kafka is unavailable.
  const readHealth = shareRecent(() => serviceHealth(pool, kafka, stallSeconds), 0);
  const hasAdmin = createAdminCheck(deps);

  const check = async (): Promise<Readiness> => {
    const served = await servedBuilds();
    const canRead = isServed(served);
    const [health, isRedisUp, isClickHouseUp, adminExists] = await Promise.all([
      readHealth(),
      withTimeout(areLimitsShared(), STORE_TIMEOUT_MS, false),
      withTimeout(isAnswering(clickhouse), STORE_TIMEOUT_MS, false),
      canRead ? hasAdmin(served) : false,
    ]);
    const { lags, isLogAvailable, roles, halts, alarms } = health;
    const ok = isClickHouseUp && canRead && halts.length === 0 && adminExists;
    return {
      ok,
      body: {
        status: ok ? 'ready' : 'not ready',
        postgres: 'ok',
        clickhouse: isClickHouseUp ? 'ok' : 'unavailable',
        log: isLogAvailable ? 'ok' : 'unavailable',
        redis: isRedisUp ? 'ok' : 'unavailable',
        limits: isRedisUp ? 'shared' : 'local and stricter; no log-in',
        read_models: canRead ? 'ok' : 'not built yet',
        ...(canRead && !adminExists ? { admin_user: 'not created yet' } : {}),
        indexed_block: indexedHeight(),
        halted: halts,
        alarms: alarms,
        roles,
        projections: lags,
      },
    };
  };

  const unavailable: Readiness = { ok: false, body: { status: 'not ready', postgres: 'unavailable' } };
  return async () =>
    await withTimeout(
      check().catch(() => unavailable),
      TIMEOUT_MS,
      unavailable,
    );
}

/** Users are never deleted: once the admin was found, it is not looked up again. */
function createAdminCheck({
  pool,
  adminUsername,
}: Pick<ReadinessDeps, 'pool' | 'adminUsername'>): (served: ServedBuilds) => Promise<boolean> {
  let exists = adminUsername === null;
  return async (served) => {
    if (!exists && adminUsername !== null)
      exists = (await userByLogin(pool, served.schema('accounts'), adminUsername)) !== null;
    return exists;
  };
}

async function isAnswering(clickhouse: ReadinessDeps['clickhouse']): Promise<boolean> {
  try {
    await clickhouse.rows({ name: 'readiness', sql: 'SELECT 1 AS one', row: z.unknown() });
    return true;
  } catch {
    return false;
  }
}

/** Whether the read models that most routes need are built. */
function isServed(served: ServedBuilds): boolean {
  try {
    for (const name of ['accounts', 'chain-status', 'tokens']) served.schema(name);
    for (const name of ['transfers', 'account_feed', 'indexed_blocks']) served.table(name);
    return true;
  } catch {
    return false;
  }
}
