-- How many transfers a token or an account has in a block. Ordered by range first, so that recomputing the counts of
-- a range reads that range only.
CREATE TABLE IF NOT EXISTS {{transfer_counts_by_block}} (
  range UInt32,        -- floor(height / 1024)
  subject_kind UInt8,  -- 1: token, 2: account
  subject FixedString(32),
  block UInt32,
  transfers UInt32,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (range, subject_kind, subject, block)
SETTINGS min_bytes_for_wide_part = 1000000000000;

-- Derived: the same per range of 1024 heights, recomputed from transfer_counts_by_block.
-- seq is the highest log offset that touched the range; all of a range lies in one partition.
CREATE TABLE IF NOT EXISTS {{transfer_counts}} (
  subject_kind UInt8,
  subject FixedString(32),
  range UInt32,
  transfers UInt64,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (subject_kind, subject, range)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000;
