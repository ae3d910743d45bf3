-- Blocks that a reorg took back, whether or not the chain has them again: a client that knows one of them finds the last block
-- it shares with the chain through the parents.
CREATE TABLE IF NOT EXISTS {{reverted_blocks}} (
  block_desc UInt32,      -- 0xffffffff - height
  block_hash FixedString(32),
  parent_hash FixedString(32),
  seq UInt64,
  is_deleted UInt8        -- always 0
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (block_desc, block_hash)
SETTINGS index_granularity = 1024;
