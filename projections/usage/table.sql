-- Calls of an API key, as API processes counted them every few seconds.
CREATE TABLE IF NOT EXISTS {{usage_counts}} (
  key_id UInt64,
  hour UInt32,          -- whole hours since 1970, UTC, in which the calls were made
  log_offset UInt64,    -- of the message: each message has a row of its own
  calls UInt32,
  successful UInt32,    -- answered with a status below 300
  seq UInt64,           -- the same offset
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (key_id, hour, log_offset)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;

-- Derived: sums per hour, recomputed when a message counts calls of that hour.
CREATE TABLE IF NOT EXISTS {{usage_hourly}} (
  key_id UInt64,
  hour UInt32,
  calls UInt64,
  successful UInt64,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (key_id, hour)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;
