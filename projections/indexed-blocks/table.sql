-- The indexed blocks, newest first: their counts and tokens, and the partition and offset that hold their bodies.
CREATE TABLE IF NOT EXISTS {{indexed_blocks}} (
  block_desc UInt32,      -- 0xffffffff - height
  block_hash FixedString(32),
  parent_hash FixedString(32),
  timestamp UInt32,       -- unix seconds
  chunk LowCardinality(String),
  transactions UInt32,
  events UInt32,
  transfers UInt32,
  malformed UInt32,
  event_check LowCardinality(String),  -- comparison with the event commitment in the header; empty: not compared
  tokens Array(FixedString(32)),  -- those with a transfer in the block, each once
  log_partition UInt16,
  log_offset UInt64,
  seq UInt64,
  is_deleted UInt8,
  -- Times ascend with heights, so a height is found by its time in few granules.
  INDEX timestamps timestamp TYPE minmax GRANULARITY 1,
  -- Hashes are in no order; this leaves one granule in a hundred to read, for 1.3 bytes a block.
  INDEX hashes block_hash TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY block_desc
SETTINGS index_granularity = 1024;

-- Derived: the blocks of a chunk in one range of 1024 heights, recomputed from indexed_blocks.
-- seq is the highest log offset that touched the range; all of a range lies in one partition.
CREATE TABLE IF NOT EXISTS {{indexed_block_ranges}} (
  chunk LowCardinality(String),
  range UInt32,                  -- floor(height / 1024)
  blocks UInt32,
  transfers UInt64,
  verified UInt32,               -- blocks whose events match their event commitment
  old_version UInt32,            -- of a Starknet version whose commitment is not recomputed
  no_commitment UInt32,          -- without a commitment in the header
  mismatched UInt32,             -- whose events do not match it
  first_block UInt32,
  last_block UInt32,
  latest_transfer_block UInt32,  -- 0xffffffff: no block has a transfer
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (chunk, range)
SETTINGS index_granularity = 1024;
