-- Names of what the columns hold: the block that includes the transfer or change, and an owner whose access is disabled.
ALTER TABLE tds.webhook_deliveries RENAME COLUMN landed_hash TO block_hash;
ALTER TABLE tds.webhook_deliveries RENAME COLUMN landed_seq TO block_seq;
ALTER TABLE tds.webhook_endpoints RENAME COLUMN shut_out TO owner_disabled;
ALTER INDEX tds.webhook_endpoints_shut_out RENAME TO webhook_endpoints_owner_disabled;
