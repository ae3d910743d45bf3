import { z } from 'zod';

import type { ClickHouse } from '../../../infra/clickhouse/client.ts';
import type { Logger } from '../../../infra/log.ts';
import { sqlRows } from '../../../infra/postgres/client.ts';
import type { Sql } from '../../../infra/postgres/client.ts';
import { AppError } from '../../../schemas/errors.ts';
import type { DeferredProjection } from '../../define.ts';
import { servedCheckpoints } from '../../progress.ts';
import { listBuilds } from '../builds.ts';
import type { Build } from '../builds.ts';
import { runPass } from './pass.ts';
import type { PassResult } from './pass.ts';

export interface DeriveDeps {
  readonly clickhouse: Pick<ClickHouse, 'rows' | 'command' | 'insert'>;
  readonly pool: Sql;
  readonly log: Logger;
}

const passRow = z.object({ number: z.number() });

/**
 * The number of a pass: microseconds of PostgreSQL's clock. A sequence could fall back in a fail-over, which takes longer than
 * the clocks of its servers differ.
 */
export async function passNumber(db: Sql): Promise<number> {
  const sql = 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS number';
  const [row] = await sqlRows(db, passRow, sql, []);
  if (row === undefined) throw new TypeError('PostgreSQL returned no time');
  return row.number;
}

/** Runs one pass of a projection into one of its builds, on the served builds of its sources. */
export async function derivePass(
  { clickhouse, pool, log }: DeriveDeps,
  projection: DeferredProjection,
  build: Build,
): Promise<PassResult> {
  const { sources } = projection.deferred;
  const served = (await listBuilds(pool)).filter(
    ({ projection: name, state }) => state === 'serving' && sources.includes(name),
  );
  const missing = sources.filter((source) => !served.some(({ projection: name }) => name === source));
  if (missing.length > 0)
    throw new AppError('READ_MODEL_NOT_BUILT', `No build of ${missing.join()} is served yet`);
  const checkpoints = await servedCheckpoints(pool, projection.topic);
  const readUpTo = (partition: number): number =>
    Math.min(
      ...sources.map(
        (source) =>
          checkpoints.find((one) => one.projection === source && one.partition === partition)?.nextOffset ??
          0,
      ),
    );
  return await runPass(projection, {
    clickhouse,
    log,
    names: Object.assign({}, ...served.map(({ names }) => names), build.names),
    readUpTo,
    number: () => passNumber(pool),
  });
}
