-- The blocks whose pairs are to be derived (due-blocks.ts).
CREATE TABLE IF NOT EXISTS {{token_holders_due}} (
  block_desc UInt32,  -- 0xffffffff - height
  hour UInt32,        -- hours since 1970, of the block's time
  seq UInt64,
  is_deleted UInt8,
  marked_at DateTime('UTC') DEFAULT now(),
  -- Granules without a mark are not read.
  INDEX marks is_deleted TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (block_desc, hour)
SETTINGS index_granularity = 1024;

-- What one pass has computed, so that the tables below are written from the same numbers. Rows of ended passes are not read.
CREATE TABLE IF NOT EXISTS {{token_holders_pass}} (
  pass UInt64,
  token FixedString(32),
  shard UInt16,
  account FixedString(32),
  balance UInt256,   -- 0: no holder, also where the sum of the legs is negative
  held UInt256,      -- the balance of the row in token_holders
  previous UInt256,  -- the one before, of that row
  made_at DateTime('UTC') DEFAULT now()
) ENGINE = MergeTree
ORDER BY (pass, token, shard, account)
TTL made_at + INTERVAL 1 HOUR
SETTINGS ttl_only_drop_parts = 1;

-- Derived from account_ledger_ranges: the balance of each holder of a token, by the last 10 bits of the account.
-- seq is the number of the pass.
CREATE TABLE IF NOT EXISTS {{token_holders}} (
  token FixedString(32),
  shard UInt16,
  account FixedString(32),
  balance UInt256,
  previous UInt256,  -- the balance before, whose rank counts until that of the balance is written
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, shard, account)
SETTINGS index_granularity = 64, min_bytes_for_wide_part = 1000000000000;

-- Derived: an index of token_holders by balance, the highest first. seq is twice the number of the pass, or one more.
CREATE TABLE IF NOT EXISTS {{token_holder_ranks}} (
  token FixedString(32),
  balance_desc UInt256,  -- 2^256 - 1 - balance
  account FixedString(32),
  seq UInt64,
  is_deleted UInt8,
  -- Former ranks stay as deleted rows. Granules that have nothing else are not read.
  INDEX live is_deleted TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, balance_desc, account)
SETTINGS index_granularity = 256, min_bytes_for_wide_part = 1000000000000;

-- Derived: holders and the sum of their balances by shard, recomputed from token_holders. The sum may exceed 2^256, so the
-- halves of the balances are summed apart.
CREATE TABLE IF NOT EXISTS {{token_holder_totals}} (
  token FixedString(32),
  shard UInt16,
  holders UInt64,
  high UInt256,
  low UInt256,
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, shard)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000;
