-- The blocks whose hours and days are to be derived (due-blocks.ts).
CREATE TABLE IF NOT EXISTS {{period_stats_due}} (
  block_desc UInt32,  -- 0xffffffff - height
  hour UInt32,        -- hours since 1970, of the block's time
  seq UInt64,
  is_deleted UInt8,
  marked_at DateTime('UTC') DEFAULT now(),
  -- Granules without a mark are not read.
  INDEX marks is_deleted TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (block_desc, hour)
SETTINGS index_granularity = 1024;

-- Derived from transfers: a token's hours and days. Only those that are over count; a reader computes the present ones.
-- seq is the number of the pass.
CREATE TABLE IF NOT EXISTS {{token_stats}} (
  token FixedString(32),
  step UInt32,       -- 3600 or 86400
  start UInt32,      -- unix seconds
  transfers UInt64,
  high UInt256,      -- sums of the upper and of the lower 128 bits of the amounts
  low UInt256,
  senders UInt64,
  receivers UInt64,
  mints UInt64,
  burns UInt64,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, step, start)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000;

-- Derived from transfers and indexed_blocks: the chain's hours and days, likewise.
CREATE TABLE IF NOT EXISTS {{chain_stats}} (
  step UInt32,
  start UInt32,
  blocks UInt64,
  transfers UInt64,
  accounts UInt64,
  tokens Array(FixedString(32)),   -- those with a transfer, each once
  token_transfers Array(UInt64),   -- of each of them
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (step, start)
SETTINGS index_granularity = 64, min_bytes_for_wide_part = 1000000000000;
