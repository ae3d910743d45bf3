-- A token's transfers, newest first. One row is one item of one token event.
-- A page reads every column of few rows from each part, so what a part costs is opening its files: the many small parts
-- have one file each (compact). A large one has a file a column: reading a compact part begins with a look at every granule
-- between its bounds, which for twenty million rows of one subject takes 80 ms. A page needs a granule of each column, so
-- compressed blocks are that small: with blocks of 64 KiB and more a page took 8.9 ms of CPU, so 6.0; it costs 9 % of disk.
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
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 134217728, min_compress_block_size = 8192, max_compress_block_size = 16384;
