-- The transfers of one NFT, newest first: its owners and holdings.
CREATE TABLE IF NOT EXISTS {{nft_transfers}} (
  token FixedString(32),
  token_id UInt256,
  block_desc UInt32,     -- 0xffffffff - height
  position_desc UInt32,  -- 0xffffffff - position of the event in the block
  item_desc UInt32,      -- 0xffffffff - item in a batch event
  from_address FixedString(32),
  to_address FixedString(32),
  kind LowCardinality(String),
  amount UInt256,
  tx_hash FixedString(32),
  timestamp UInt32,      -- unix seconds
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, token_id, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 1024;
