-- Tell the blocks of two forks apart. Null in rows from before this column; empty where the block was
-- reverted.
ALTER TABLE tds.dispatch_blocks ADD COLUMN parent_hash text;
-- Of the revert that removed the transfer; null where `reverted_height` is, and in rows from before this column.
ALTER TABLE tds.webhook_deliveries ADD COLUMN reverted_seq bigint;
