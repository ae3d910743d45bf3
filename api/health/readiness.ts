import { z } from 'zod';

import type { ClickHouse } from '../../infra/clickhouse/client.ts';
import type { Kafka } from '../../infra/kafka/client.ts';
import { roleStates } from '../../infra/role-states.ts';
import type { Sql } from '../../infra/postgres/client.ts';
import {
  STORE_WITHIN_MS,
  projectionHalts,
  projectionLags,
  raisedAlarms,
  withTimeout,
} from '../../infra/working-state.ts';
import type { Readiness } from './health.ts';
import type { ServedBuilds } from '../http/route.ts';

export interface ReadinessDeps {
  readonly pool: Sql;
  readonly clickhouse: Pick<ClickHouse, 'rows'>;
  readonly kafka: Pick<Kafka, 'offsets' | 'offsetsAt'>;
  readonly stallSeconds: number;
  readonly servedBuilds: () => Promise<ServedBuilds>;
  readonly indexedHeight: () => number | null;
  /** False: Redis is away, and each process counts for itself. */
  readonly areLimitsShared: () => Promise<boolean>;
}

const ANSWER_WITHIN_MS = 4000;

/**
 * 200 when the API can answer from its stores and no projection is halted, also during backfill and while the node,
 * the log or Redis is away; the body says what is behind, and by how much.
 */
export function createReadiness(deps: ReadinessDeps): () => Promise<Readiness> {
  const { pool, clickhouse, kafka, servedBuilds, indexedHeight, stallSeconds, areLimitsShared } = deps;

  /** One question at a time: while the log is away, more would only pile up. */
  let asking: ReturnType<typeof askLog> | null = null;
  const askLog = async () =>
    await Promise.all([projectionLags(pool, kafka), roleStates(pool, kafka, stallSeconds)]);
  const lagsAndRoles = async (): ReturnType<typeof askLog> =>
    await (asking ??= askLog().finally(() => {
      asking = null;
    }));

  const look = async (): Promise<Readiness> => {
    const [served, [{ lags, logAnswers }, roles], halts, alarms, isRedisUp, clickhouseAnswers] =
      await Promise.all([
        servedBuilds(),
        lagsAndRoles(),
        projectionHalts(pool),
        raisedAlarms(pool),
        withTimeout(areLimitsShared(), STORE_WITHIN_MS, false),
        withTimeout(
          clickhouse
            .rows({ name: 'readiness', sql: 'SELECT 1 AS one', row: z.unknown() })
            .then(() => true)
            .catch(() => false),
          STORE_WITHIN_MS,
          false,
        ),
      ]);
    const canRead = isServed(served);
    const ok = clickhouseAnswers && canRead && halts.length === 0;
    return {
      ok,
      body: {
        status: ok ? 'ready' : 'not ready',
        postgres: 'ok',
        clickhouse: clickhouseAnswers ? 'ok' : 'unavailable',
        log: logAnswers ? 'ok' : 'unavailable',
        redis: isRedisUp ? 'ok' : 'unavailable',
        limits: isRedisUp ? 'shared' : 'local and stricter; no log-in',
        read_models: canRead ? 'ok' : 'not built yet',
        indexed_block: indexedHeight(),
        halted: halts.map(({ halted_at, ...halt }) => ({ ...halt, halted_at: halted_at.toISOString() })),
        alarms: alarms.map(({ raised_at, ...alarm }) => ({ ...alarm, raised_at: raised_at.toISOString() })),
        roles,
        projections: lags,
      },
    };
  };

  const away: Readiness = { ok: false, body: { status: 'not ready', postgres: 'unavailable' } };
  return async () =>
    await withTimeout(
      look().catch(() => away),
      ANSWER_WITHIN_MS,
      away,
    );
}

/** The read models that most routes need are there. */
function isServed(served: ServedBuilds): boolean {
  try {
    for (const name of ['accounts', 'chain-status', 'tokens']) served.schema(name);
    for (const name of ['transfers', 'account_feed', 'indexed_blocks']) served.table(name);
    return true;
  } catch {
    return false;
  }
}
