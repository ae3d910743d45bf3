-- What a source said a token is worth at a time of its own. Two prices of a token at one millisecond are one: the one that
-- was published later. Ordered by hour first, so that an hour is recomputed from its own points.
-- A price is there as a number to compare and add, and as the text to answer: making that of numbers of 256 bits took
-- about 15 ms for the 25,000 of an answer.
CREATE TABLE IF NOT EXISTS {{price_points}} (
  token FixedString(32),
  hour UInt32,              -- whole hours since 1970, UTC
  observed_at UInt64,       -- unix milliseconds
  price UInt256,            -- 10^-41 US dollars for one whole token
  usd String,               -- the same, as a decimal without needless zeros
  source LowCardinality(String),
  seq UInt64,               -- the message's offset
  is_deleted UInt8          -- 0: what was observed stays observed
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, hour, observed_at)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;

-- Derived: the points of an hour, recomputed whole whenever one of it comes, late ones and repeated ones too. Longer
-- buckets are made of hours when they are asked for.
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
