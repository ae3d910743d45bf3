-- Two signed legs a transfer: the deltas of a token sum to zero when the zero address is counted.
-- Not partitioned, and small granules: the number of parts and the size of a granule decide what a point read costs.
CREATE TABLE IF NOT EXISTS {{account_ledger}} (
  account FixedString(32),
  token FixedString(32),
  block_desc UInt32,     -- 0xffffffff - height
  position_desc UInt32,  -- 0xffffffff - position of the event in the block
  item_desc UInt32,      -- 0xffffffff - item in a batch event
  leg UInt8,             -- 1: out, 2: in; a transfer to oneself has both
  delta Int256,          -- modulo 2^256, as is every sum of them: a balance is the sum as a UInt256
  kind LowCardinality(String),
  token_id UInt256,      -- 0 where the kind has none
  timestamp UInt32,      -- unix seconds
  tx_hash FixedString(32),
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, token, block_desc, position_desc, item_desc, leg)
SETTINGS index_granularity = 1024;
