-- Observed prices, at the source's own time. Of two prices of a token at one millisecond, the one published later counts.
-- Ordered by hour first, so that an hour is recomputed from its own points. A price is stored as a number, to compare and
-- add, and as the text of responses: converting 25,000 numbers of 256 bits took about 15 ms.
CREATE TABLE IF NOT EXISTS {{price_points}} (
  token FixedString(32),
  hour UInt32,              -- whole hours since 1970, UTC
  observed_at UInt64,       -- unix milliseconds
  price UInt256,            -- 10^-41 US dollars for one whole token
  usd String,               -- the same, as a decimal without needless zeros
  source LowCardinality(String),
  seq UInt64,               -- the message's offset
  is_deleted UInt8          -- always 0: an observation is never taken back
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, hour, observed_at)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;

-- Derived: one row per hour, recomputed from all its points whenever one arrives, also late or repeated. Longer buckets
-- are computed from hours when they are read.
-- seq is the highest offset among the hour's points; all of a token lie in one partition.
CREATE TABLE IF NOT EXISTS {{ohlc_hourly}} (
  token FixedString(32),
  hour UInt32,
  open_usd String,
  open_at UInt64,
  close_usd String,
  close_at UInt64,
  low UInt256,
  low_usd String,
  high UInt256,
  high_usd String,
  total UInt256,            -- the sum of the prices: below 2^256 for 10^21 of them
  points UInt32,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, hour)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;
