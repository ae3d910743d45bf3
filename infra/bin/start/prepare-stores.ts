import { z } from 'zod';

import {
  needsRebuild,
  openBuild,
  servedBuild,
  updateTableSettings,
} from '../../../projections/engine/builds.ts';
import { canResume } from '../../../projections/engine/checkpoints.ts';
import type { Projection } from '../../../projections/define.ts';
import { lostTable } from '../../../projections/engine/stored-tables.ts';
import { projections } from '../../../projections/index.ts';
import { isClickHouseUnavailable } from '../../clickhouse/client.ts';
import { required } from '../../config.ts';
import type { Config } from '../../config.ts';
import type { Logger } from '../../log.ts';
import { grantApiRole } from '../../postgres/api-role.ts';
import { checkSessions } from '../../postgres/check-sessions.ts';
import { isPostgresUnavailable } from '../../postgres/client.ts';
import { migrate } from '../../postgres/migrate.ts';
import { isRetryable } from '../../../schemas/errors.ts';
import { withStores } from '../connect.ts';
import type { Stores } from '../connect.ts';
import { retryUntilAvailable } from '../process/wait-for-stores.ts';

const PING_TIMEOUT_MS = 5000;
const anything = { name: 'prepare.ping', sql: 'SELECT 1', row: z.unknown() };

export interface Prepared {
  /** Migrations that were applied. */
  readonly applied: readonly string[];
  /**
   * Projections that need a rebuild: no build is served, or one of another version, one that has lost tables, or one with a
   * checkpoint outside the log.
   */
  readonly outdated: readonly Projection[];
}

/** Creates or updates topics, working tables, the tables of every projection and the read-only role; idempotent. */
export async function prepareStores(config: Config, log: Logger, signal: AbortSignal): Promise<Prepared> {
  const databaseUrl = required(config, 'databaseUrl');
  const prepare = async ({ pool, kafka, clickhouse }: Stores): Promise<Prepared> => {
    const failed = new AbortController();
    const waiting = { log, signal: AbortSignal.any([signal, failed.signal]), isTransient: isRetryable };
    const [applied] = await Promise.all([
      retryUntilAvailable(
        'PostgreSQL',
        async () => {
          await checkSessions(databaseUrl);
          return await migrate(pool);
        },
        { ...waiting, isTransient: isPostgresUnavailable },
      ),
      retryUntilAvailable('Kafka', () => kafka.ensureTopics(), waiting),
      retryUntilAvailable('ClickHouse', () => clickhouse.rows(anything, {}, { timeoutMs: PING_TIMEOUT_MS }), {
        ...waiting,
        isTransient: isClickHouseUnavailable,
      }),
    ]).catch((error: unknown) => {
      // The waits for the other stores end, too.
      failed.abort();
      throw error;
    });
    const outdated: Projection[] = [];
    for (const projection of projections) {
      const served = await servedBuild(pool, projection);
      const passesDeleted = projection.kind === 'postgres' && projection.isExpiring === true;
      const isOutsideLog =
        served !== null && !(await canResume(pool, kafka, projection.topic, served, { passesDeleted }));
      if (isOutsideLog) log.warn({ projection: projection.name }, 'checkpoint outside the log');
      // One replica of a cluster may have lost tables that another has.
      const mayBeElsewhere = projection.kind !== 'postgres' && config.clickhouseCluster !== null;
      const lost =
        served === null || mayBeElsewhere ? null : await lostTable({ clickhouse, pool }, projection, served);
      if (lost !== null) log.warn({ projection: projection.name, lost }, 'served table lost');
      if (isOutsideLog || lost !== null || (await needsRebuild(pool, projection))) outdated.push(projection);
      else await openBuild(pool, clickhouse, projection);
    }
    await updateTableSettings(pool, clickhouse);
    if (config.apiDatabaseUrl !== null) await grantApiRole(pool, config.apiDatabaseUrl);
    return { applied, outdated };
  };
  return await withStores(config, 'tds-prepare', log, prepare, { needsMigrations: false });
}
