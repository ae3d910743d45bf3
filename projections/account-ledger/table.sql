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

-- Sum of an account's legs of a token in a block. Ordered by range first, so that recomputing a range reads that range
-- only, and that the heights of a pair in one range lie side by side.
CREATE TABLE IF NOT EXISTS {{account_ledger_by_block}} (
  range UInt32,  -- floor(height / 1024)
  account FixedString(32),
  token FixedString(32),
  block UInt32,
  delta Int256,  -- of all legs together, modulo 2^256
  legs UInt32,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (range, account, token, block)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000;

-- Derived: the same per range of 1024 heights, recomputed from account_ledger_by_block, so that a balance of an account
-- with tens of millions of legs sums some thousand rows. Every message about a range, also of a reorg or a repair,
-- recomputes its sums under the offset of the message, so a range need be neither whole nor accepted on L1. A reader uses
-- only ranges below the height up to which it reads, and sums the blocks of the range that this height cuts. A pair that
-- only orphaned blocks touched has a tombstone here: the account does not have it.
-- seq is the highest log offset that touched the range; all of a range lies in one partition.
CREATE TABLE IF NOT EXISTS {{account_ledger_ranges}} (
  account FixedString(32),
  token FixedString(32),
  range UInt32,
  delta Int256,  -- modulo 2^256
  legs UInt64,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, token, range)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000;
