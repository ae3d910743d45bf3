import { versionColumns } from '../chain-rows.ts';
import { tableSql } from '../define.ts';
import type { UsageProjection } from '../define.ts';
import { usage as usageStream } from '../streams.ts';
import { distinctChunks } from '../distinct-chunks.ts';

const RECOMPUTE_HOURS = `
INSERT INTO {{usage_hourly}} (key_id, hour, calls, successful, seq, is_deleted)
SELECT key_id, hour, sum(calls), sum(successful), max(seq), 0
FROM {{usage_counts}} FINAL
PREWHERE (key_id, hour) IN (
  SELECT k, h FROM (SELECT {keys:Array(UInt64)} AS ks, {hours:Array(UInt32)} AS hs) ARRAY JOIN ks AS k, hs AS h
)
GROUP BY key_id, hour`;

const CARRY_OVER_COUNTS = `
INSERT INTO {{usage_counts}} (key_id, hour, log_offset, calls, successful, seq, is_deleted)
SELECT key_id, hour, log_offset, calls, successful, seq, 0
FROM {{previous_usage_counts}} FINAL
WHERE log_offset < {firstOffset:UInt64}`;

const CARRY_OVER_HOURS = `
INSERT INTO {{usage_hourly}} (key_id, hour, calls, successful, seq, is_deleted)
SELECT key_id, hour, sum(calls), sum(successful), max(seq), 0
FROM {{usage_counts}} FINAL
GROUP BY key_id, hour`;

/** Hours per statement: its parameters travel in the URL. */
const HOURS = 1000;

/** Calls of API keys per hour. */
export const usage: UsageProjection = {
  kind: 'clickhouse',
  name: 'usage',
  version: 1,
  topic: usageStream,
  ddl: tableSql(import.meta.url),
  tables: {
    usage_counts: {
      columns: [
        { name: 'key_id', type: 'UInt64' },
        { name: 'hour', type: 'UInt32' },
        { name: 'log_offset', type: 'UInt64' },
        { name: 'calls', type: 'UInt32' },
        { name: 'successful', type: 'UInt32' },
        ...versionColumns,
      ],
    },
  },
  project({ message, hour, offset }) {
    const { key_id, calls, successful } = message;
    return {
      usage_counts: [{ key_id, hour, log_offset: offset, calls, successful, seq: offset, is_deleted: 0 }],
    };
  },
  derive: (touched) =>
    distinctChunks(touched, ({ keyId, hour }) => `${keyId}:${hour}`, HOURS).map((some) => ({
      sql: RECOMPUTE_HOURS,
      params: { keys: some.map(({ keyId }) => keyId), hours: some.map(({ hour }) => hour) },
    })),
  carryOver: (firstOffset) => [
    { sql: CARRY_OVER_COUNTS, params: { firstOffset } },
    { sql: CARRY_OVER_HOURS, params: {} },
  ],
};
