import { createDispatcher } from '../../../pipeline/dispatch/dispatcher.ts';
import { servedSchema } from '../../../projections/served.ts';
import { systemClock } from '../../clock.ts';
import { required } from '../../config.ts';
import { createSealing } from '../../sealing.ts';
import { openEgress } from './egress.ts';
import { createServedReader } from './served-reads.ts';
import type { StartRole } from '../role.ts';
import { openClickHouse, openKafka, openPool } from '../connect.ts';

export const start: StartRole = async (context) => {
  const { config, log, metrics, releasers, fail } = context;
  const kafka = openKafka(context, 'tds-dispatch');
  const publisher = kafka.publisher();
  releasers.push('publisher', () => publisher.close());
  const pool = openPool(context, 'tds-dispatch', 10);
  const clickhouse = openClickHouse(context, 'tds-dispatch');
  const dispatcher = createDispatcher({
    config,
    databaseUrl: required(config, 'databaseUrl'),
    kafka,
    publisher,
    pool,
    clickhouse,
    egress: openEgress(config, releasers),
    sealing: createSealing(required(config, 'secretKey'), config.secretKeysPrevious),
    webhooks: () => servedSchema(pool, 'webhooks'),
    readServed: createServedReader(pool),
    clock: systemClock,
    log,
    metrics,
  });
  dispatcher.done.catch(fail);
  // Before the start, which may wait for Kafka: running attempts must not find the egress closed.
  releasers.push('dispatcher', () => dispatcher.stop());
  await dispatcher.start();
  return { url: null };
};
