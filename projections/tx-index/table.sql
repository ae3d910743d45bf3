-- The full keys of a transaction's rows in transfers.
CREATE TABLE IF NOT EXISTS {{tx_index}} (
  tx_hash FixedString(32),
  block_desc UInt32,  -- 0xffffffff - height
  timestamp UInt32,   -- unix seconds
  -- One entry a transfer: its token, its event's position in the block, its item in a batch event.
  tokens Array(FixedString(32)),
  positions Array(UInt32),
  items Array(UInt32),
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (tx_hash, block_desc)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;
