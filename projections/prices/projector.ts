import { tableSql } from '../define.ts';
import type { PriceProjection } from '../define.ts';
import { versionColumns } from '../chain-rows.ts';
import { prices as priceStream } from '../streams.ts';
import { distinctChunks } from '../distinct-chunks.ts';
import { unitsOf, usdOf } from './units.ts';

/**
 * Recomputes the touched hours of tokens. No point is ever deleted, so the highest offset of an hour's points is the
 * highest that touched it.
 */
const RECOMPUTE_HOURS = `
INSERT INTO {{ohlc_hourly}} (token, hour, open_usd, open_at, close_usd, close_at, low, low_usd, high, high_usd, total, points, seq, is_deleted)
SELECT token, hour, argMin(usd, observed_at), min(observed_at), argMax(usd, observed_at), max(observed_at),
  min(price), argMin(usd, price), max(price), argMax(usd, price), sum(price), count(), max(seq), 0
FROM {{price_points}} FINAL
PREWHERE (token, hour) IN (
  SELECT unhex(t), h FROM (SELECT {tokens:Array(String)} AS ts, {hours:Array(UInt32)} AS hs) ARRAY JOIN ts AS t, hs AS h
)
GROUP BY token, hour`;

/** Hours per statement: its parameters travel in the URL. */
const HOURS = 200;

/** Observed prices of tokens, and open, high, low and close per hour. */
export const prices: PriceProjection = {
  kind: 'clickhouse',
  name: 'prices',
  version: 1,
  topic: priceStream,
  ddl: tableSql(import.meta.url),
  tables: {
    price_points: {
      columns: [
        { name: 'token', type: 'FixedString(32)' },
        { name: 'hour', type: 'UInt32' },
        { name: 'observed_at', type: 'UInt64' },
        { name: 'price', type: 'UInt256' },
        { name: 'usd', type: 'String' },
        { name: 'source', type: 'LowCardinality(String)' },
        ...versionColumns,
      ],
    },
  },
  project({ message, hour, offset }) {
    if (message.type !== 'price.observed') return { price_points: [] };
    const { token, observed_at: observedAt, source } = message;
    const price = unitsOf(message.price);
    const row = { token, hour, observed_at: observedAt, price, usd: usdOf(price), source };
    return { price_points: [{ ...row, seq: offset, is_deleted: 0 }] };
  },
  derive(touched) {
    const hours = touched.filter((one) => one !== null);
    return distinctChunks(hours, ({ token, hour }) => `${token}:${hour}`, HOURS).map((some) => ({
      sql: RECOMPUTE_HOURS,
      params: { tokens: some.map(({ token }) => token.slice(2)), hours: some.map(({ hour }) => hour) },
    }));
  },
};
