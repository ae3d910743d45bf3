-- So that blocks of two forks are not taken for one. Null of rows that were made without it, and where the block was
-- reverted: then its hash is empty.
ALTER TABLE tds.dispatch_blocks ADD COLUMN parent_hash text;
-- Of the revert that took the transfer off; null where `reverted_height` is, and of rows that were made without it.
ALTER TABLE tds.webhook_deliveries ADD COLUMN reverted_seq bigint;
