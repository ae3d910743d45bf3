-- A token's transfers, newest first. One row is one item of one token event.
-- A page reads every column of few rows from each part: with one file a part (compact) and small granules it takes 8 ms of
-- CPU over 9 parts, with a file a column and granules of 1024 rows 12.5.
CREATE TABLE IF NOT EXISTS {{transfers}} (
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
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000;
