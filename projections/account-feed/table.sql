-- An account's transfers, newest first: one row for each account of a transfer, also for the zero address. Partitioned
-- and indexed like `transfers`.
CREATE TABLE IF NOT EXISTS {{account_feed}} (
  account FixedString(32),
  leg UInt8,             -- 1: out (from), 2: in (to), 3: both, a transfer to oneself
  token FixedString(32),
  block_desc UInt32,     -- 0xffffffff - height
  position_desc UInt32,  -- 0xffffffff - position of the event in the block
  item_desc UInt32,      -- 0xffffffff - item in a batch event
  from_address FixedString(32),
  to_address FixedString(32),
  kind LowCardinality(String),
  amount UInt256,
  token_id UInt256,      -- 0 where the kind has none
  tx_hash FixedString(32),
  event_in_tx UInt32,
  timestamp UInt32,      -- unix seconds
  fee UInt256,           -- of the whole transaction, in fee_unit
  fee_unit FixedString(32),
  is_fee UInt8,
  execution_status LowCardinality(String),
  block_hash FixedString(32),
  seq UInt64,
  is_deleted UInt8,
  -- An account that mostly receives, such as the fee collector, has few outgoing rows: they are found without reading the
  -- others (8 M rows with 40 outgoing: 41 thousand rows read instead of all). `leg` is in the key, so FINAL may skip by it.
  INDEX by_leg leg TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, block_desc, position_desc, item_desc, leg)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 134217728, min_compress_block_size = 8192, max_compress_block_size = 16384;
