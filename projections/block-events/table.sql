-- What the proof of a transfer is made from: the header and the raw events of each block whose event commitment can be
-- recomputed. The lists of other blocks are empty.
CREATE TABLE IF NOT EXISTS {{block_events}} (
  block_desc UInt32,  -- 0xffffffff - height
  block_hash FixedString(32),
  timestamp UInt32,   -- unix seconds
  header String,      -- JSON of what the hash commits to; empty: the events are not kept
  -- One entry a transaction with events: its hash, and their number.
  tx_hashes Array(FixedString(32)) CODEC(ZSTD(1)),
  tx_events Array(UInt32) CODEC(ZSTD(1)),
  -- One entry an event: its numbers of keys and data. Address, keys and data of all events follow each other in felts.
  event_keys Array(UInt32) CODEC(ZSTD(1)),
  event_data Array(UInt32) CODEC(ZSTD(1)),
  felts Array(FixedString(32)) CODEC(ZSTD(1)),
  seq UInt64,
  is_deleted UInt8
) ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY block_desc
-- A read takes one block, of some hundred kB: no more of them are in a granule.
SETTINGS index_granularity = 16, index_granularity_bytes = 262144;
