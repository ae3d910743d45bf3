-- Written by `npm run schema:dump`. Do not edit.

CREATE TABLE account_feed_v5_b1
(
    `account` FixedString(32),
    `leg` UInt8,
    `token` FixedString(32),
    `block_desc` UInt32,
    `position_desc` UInt32,
    `item_desc` UInt32,
    `from_address` FixedString(32),
    `to_address` FixedString(32),
    `kind` LowCardinality(String),
    `amount` UInt256,
    `token_id` UInt256,
    `tx_hash` FixedString(32),
    `event_in_tx` UInt32,
    `timestamp` UInt32,
    `fee` UInt256,
    `fee_unit` FixedString(32),
    `is_fee` UInt8,
    `execution_status` LowCardinality(String),
    `block_hash` FixedString(32),
    `seq` UInt64,
    `is_deleted` UInt8,
    INDEX by_leg leg TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, block_desc, position_desc, item_desc, leg)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 134217728, min_compress_block_size = 8192, max_compress_block_size = 16384, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE account_ledger_by_block_v2_b1
(
    `range` UInt32,
    `account` FixedString(32),
    `token` FixedString(32),
    `block` UInt32,
    `delta` Int256,
    `legs` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (range, account, token, block)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE account_ledger_ranges_v2_b1
(
    `account` FixedString(32),
    `token` FixedString(32),
    `range` UInt32,
    `delta` Int256,
    `legs` UInt64,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, token, range)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE account_ledger_v2_b1
(
    `account` FixedString(32),
    `token` FixedString(32),
    `block_desc` UInt32,
    `position_desc` UInt32,
    `item_desc` UInt32,
    `leg` UInt8,
    `delta` Int256,
    `kind` LowCardinality(String),
    `token_id` UInt256,
    `timestamp` UInt32,
    `tx_hash` FixedString(32),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, token, block_desc, position_desc, item_desc, leg)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE block_events_v1_b1
(
    `block_desc` UInt32,
    `block_hash` FixedString(32),
    `timestamp` UInt32,
    `header` String,
    `tx_hashes` Array(FixedString(32)) CODEC(ZSTD(1)),
    `tx_events` Array(UInt32) CODEC(ZSTD(1)),
    `event_keys` Array(UInt32) CODEC(ZSTD(1)),
    `event_data` Array(UInt32) CODEC(ZSTD(1)),
    `felts` Array(FixedString(32)) CODEC(ZSTD(1)),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY block_desc
SETTINGS index_granularity = 16, index_granularity_bytes = 262144, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE chain_stats_v1_b1
(
    `step` UInt32,
    `start` UInt32,
    `blocks` UInt64,
    `transfers` UInt64,
    `accounts` UInt64,
    `tokens` Array(FixedString(32)),
    `token_transfers` Array(UInt64),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (step, start)
SETTINGS index_granularity = 64, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE indexed_block_ranges_v3_b1
(
    `chunk` LowCardinality(String),
    `range` UInt32,
    `blocks` UInt32,
    `transfers` UInt64,
    `verified` UInt32,
    `old_version` UInt32,
    `no_commitment` UInt32,
    `mismatched` UInt32,
    `first_block` UInt32,
    `last_block` UInt32,
    `latest_transfer_block` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (chunk, range)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE indexed_blocks_v3_b1
(
    `block_desc` UInt32,
    `block_hash` FixedString(32),
    `parent_hash` FixedString(32),
    `timestamp` UInt32,
    `chunk` LowCardinality(String),
    `transactions` UInt32,
    `events` UInt32,
    `transfers` UInt32,
    `malformed` UInt32,
    `event_check` LowCardinality(String),
    `tokens` Array(FixedString(32)),
    `log_partition` UInt16,
    `log_offset` UInt64,
    `seq` UInt64,
    `is_deleted` UInt8,
    INDEX timestamps timestamp TYPE minmax GRANULARITY 1,
    INDEX hashes block_hash TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY block_desc
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE nft_moves_v1_b1
(
    `account` FixedString(32),
    `token` FixedString(32),
    `token_id` UInt256,
    `block_desc` UInt32,
    `position_desc` UInt32,
    `item_desc` UInt32,
    `leg` UInt8,
    `kind` LowCardinality(String),
    `nft` UInt256,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (account, token, token_id, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 512, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE nft_places_v1_b1
(
    `nft` UInt256,
    `block_desc` UInt32,
    `position_desc` UInt32,
    `item_desc` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (nft, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 512, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE nft_transfers_v1_b1
(
    `token` FixedString(32),
    `token_id` UInt256,
    `block_desc` UInt32,
    `position_desc` UInt32,
    `item_desc` UInt32,
    `from_address` FixedString(32),
    `to_address` FixedString(32),
    `kind` LowCardinality(String),
    `amount` UInt256,
    `tx_hash` FixedString(32),
    `timestamp` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, token_id, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE ohlc_hourly_v1_b1
(
    `token` FixedString(32),
    `hour` UInt32,
    `open_usd` String,
    `open_at` UInt64,
    `close_usd` String,
    `close_at` UInt64,
    `low` UInt256,
    `low_usd` String,
    `high` UInt256,
    `high_usd` String,
    `total` UInt256,
    `points` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, hour)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE period_stats_due_v1_b1
(
    `block_desc` UInt32,
    `hour` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8,
    `marked_at` DateTime('UTC') DEFAULT now(),
    INDEX marks is_deleted TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (block_desc, hour)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE price_points_v1_b1
(
    `token` FixedString(32),
    `hour` UInt32,
    `observed_at` UInt64,
    `price` UInt256,
    `usd` String,
    `source` LowCardinality(String),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, hour, observed_at)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE reverted_blocks_v1_b1
(
    `block_desc` UInt32,
    `block_hash` FixedString(32),
    `parent_hash` FixedString(32),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (block_desc, block_hash)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE token_holder_ranks_v1_b1
(
    `token` FixedString(32),
    `balance_desc` UInt256,
    `account` FixedString(32),
    `seq` UInt64,
    `is_deleted` UInt8,
    INDEX live is_deleted TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, balance_desc, account)
SETTINGS index_granularity = 256, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE token_holder_totals_v1_b1
(
    `token` FixedString(32),
    `shard` UInt16,
    `holders` UInt64,
    `high` UInt256,
    `low` UInt256,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, shard)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE token_holders_due_v1_b1
(
    `block_desc` UInt32,
    `hour` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8,
    `marked_at` DateTime('UTC') DEFAULT now(),
    INDEX marks is_deleted TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (block_desc, hour)
SETTINGS index_granularity = 1024, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE token_holders_pass_v1_b1
(
    `pass` UInt64,
    `token` FixedString(32),
    `shard` UInt16,
    `account` FixedString(32),
    `balance` UInt256,
    `held` UInt256,
    `previous` UInt256,
    `made_at` DateTime('UTC') DEFAULT now()
)
ENGINE = MergeTree
ORDER BY (pass, token, shard, account)
TTL made_at + toIntervalHour(1)
SETTINGS ttl_only_drop_parts = 1, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10, index_granularity = 8192;

CREATE TABLE token_holders_v1_b1
(
    `token` FixedString(32),
    `shard` UInt16,
    `account` FixedString(32),
    `balance` UInt256,
    `previous` UInt256,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, shard, account)
SETTINGS index_granularity = 64, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE token_stats_v1_b1
(
    `token` FixedString(32),
    `step` UInt32,
    `start` UInt32,
    `transfers` UInt64,
    `high` UInt256,
    `low` UInt256,
    `senders` UInt64,
    `receivers` UInt64,
    `mints` UInt64,
    `burns` UInt64,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, step, start)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE transfer_counts_by_block_v2_b1
(
    `range` UInt32,
    `subject_kind` UInt8,
    `subject` FixedString(32),
    `block` UInt32,
    `transfers` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (range, subject_kind, subject, block)
SETTINGS min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10, index_granularity = 8192;

CREATE TABLE transfer_counts_v2_b1
(
    `subject_kind` UInt8,
    `subject` FixedString(32),
    `range` UInt32,
    `transfers` UInt64,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (subject_kind, subject, range)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE transfers_v4_b1
(
    `token` FixedString(32),
    `block_desc` UInt32,
    `position_desc` UInt32,
    `item_desc` UInt32,
    `from_address` FixedString(32),
    `to_address` FixedString(32),
    `kind` LowCardinality(String),
    `amount` UInt256,
    `token_id` UInt256,
    `tx_hash` FixedString(32),
    `event_in_tx` UInt32,
    `timestamp` UInt32,
    `fee` UInt256,
    `fee_unit` FixedString(32),
    `is_fee` UInt8,
    `execution_status` LowCardinality(String),
    `block_hash` FixedString(32),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (token, block_desc, position_desc, item_desc)
SETTINGS index_granularity = 512, min_bytes_for_wide_part = 134217728, min_compress_block_size = 8192, max_compress_block_size = 16384, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE tx_index_v2_b1
(
    `tx_hash` FixedString(32),
    `block_desc` UInt32,
    `timestamp` UInt32,
    `tokens` Array(FixedString(32)),
    `positions` Array(UInt32),
    `items` Array(UInt32),
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (tx_hash, block_desc)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE usage_counts_v1_b1
(
    `key_id` UInt64,
    `hour` UInt32,
    `log_offset` UInt64,
    `calls` UInt32,
    `successful` UInt32,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (key_id, hour, log_offset)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;

CREATE TABLE usage_hourly_v1_b1
(
    `key_id` UInt64,
    `hour` UInt32,
    `calls` UInt64,
    `successful` UInt64,
    `seq` UInt64,
    `is_deleted` UInt8
)
ENGINE = ReplacingMergeTree(seq, is_deleted)
ORDER BY (key_id, hour)
SETTINGS index_granularity = 1024, min_bytes_for_wide_part = 1000000000000, fsync_after_insert = 1, fsync_part_directory = 1, replicated_deduplication_window = 0, merge_selector_base = 10;
