import { startApi } from '../../../api/server.ts';
import { servedBuilds } from '../../../projections/served.ts';
import { required } from '../../config.ts';
import { openEgress } from './egress.ts';
import { serviceMetrics } from './service-metrics.ts';
import type { Role } from '../role.ts';
import { openClickHouse, openKafka, openPool } from '../connect.ts';

/** Longer than any request may take: its client has disconnected by then. */
const REQUEST_MS = 15_000;
const API_QUERY_MS = 8000;

export const apiRole: Role = {
  name: 'api',
  summary: 'serve the read models over HTTP',
  async start(context) {
    const { config, log, metrics, releasers } = context;
    const kafka = openKafka(context, 'tds-api');
    const publisher = kafka.publisher();
    releasers.push('publisher', () => publisher.close());
    const pool = openPool(context, 'tds-api', 12, {
      url: required(config, 'apiDatabaseUrl'),
      queryTimeoutMs: API_QUERY_MS,
    });
    const clickhouse = openClickHouse(context, 'tds-api', {
      url: required(config, 'apiClickhouseUrl'),
      timeoutMs: REQUEST_MS,
      isReader: true,
    });
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
  },
};
