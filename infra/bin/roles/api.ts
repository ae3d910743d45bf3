import { z } from 'zod';

import { READ_CONNECTIONS } from '../../../api/http/clickhouse.ts';
import { POSTGRES_CONNECTIONS } from '../../../api/http/postgres.ts';
import { startApi } from '../../../api/server.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { AppError } from '../../../schemas/errors.ts';
import { topics } from '../../../schemas/topics.ts';
import { isClickHouseRejection } from '../../clickhouse/client.ts';
import { required } from '../../config.ts';
import { withTimeout } from '../../lifecycle.ts';
import { createOperator } from '../operator/operator.ts';
import { errorText } from '../process/error-text.ts';
import { openEgress } from './egress.ts';
import { serviceMetrics } from '../operator/service-metrics.ts';
import type { StartRole } from '../role.ts';
import { openClickHouse, openKafka, openPool } from '../connect.ts';

/** Longer than any request may take: its client has disconnected by then. */
const REQUEST_MS = 15_000;
const API_QUERY_MS = 8000;
/** Of the requests at the start. */
const CHECK_MS = 3000;

const one = { name: 'api.start', sql: 'SELECT 1 AS one', row: z.object({ one: z.number() }) };

/** Ends the start on a setting that a store refuses. While a store is unavailable, the API starts and answers 503. */
async function refuseInvalid(check: Promise<unknown>): Promise<void> {
  try {
    await withTimeout(check, CHECK_MS, null);
  } catch (error) {
    if (isClickHouseRejection(error))
      throw new AppError('CONFIG_INVALID', errorText(error), { cause: error });
    if (error instanceof AppError && error.code === 'CONFIG_INVALID') throw error;
  }
}

export const start: StartRole = async (context) => {
  const { config, log, metrics, releasers } = context;
  const kafka = openKafka(context, 'tds-api');
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const pool = openPool(context, 'tds-api', POSTGRES_CONNECTIONS, {
    url: required(config, 'apiDatabaseUrl'),
    queryTimeoutMs: API_QUERY_MS,
  });
  const clickhouse = openClickHouse(context, 'tds-api', {
    url: required(config, 'apiClickhouseUrl'),
    timeoutMs: REQUEST_MS,
    isReader: true,
    connections: READ_CONNECTIONS,
  });
  await Promise.all([
    // A user that is rejected, or cannot read exact numbers.
    refuseInvalid(clickhouse.rows(one, {}, { signal: AbortSignal.timeout(CHECK_MS) })),
    // A log-in or a certificate that is rejected.
    refuseInvalid(kafka.topicId(topics.commands)),
  ]);
  const served = (): ReturnType<typeof servedBuilds> => servedBuilds(pool);
  const egress = openEgress(config, releasers);
  const server = await startApi({
    config,
    pool,
    clickhouse,
    publisher,
    kafka,
    servedBuilds: served,
    checkUrl: (url) => egress.checkUrl(url),
    operator: createOperator({ pool, clickhouse, kafka, stallSeconds: config.stallSeconds }),
    log,
    metrics,
    metricsText: serviceMetrics({
      registry: metrics,
      pool,
      clickhouse,
      kafka,
      stallSeconds: config.stallSeconds,
      servedBuilds: served,
    }),
  });
  releasers.push('http server', () => server.close());
  return { url: server.url };
};
