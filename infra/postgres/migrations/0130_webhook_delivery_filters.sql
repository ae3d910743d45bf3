-- A filter of the delivery log is a few ranges of this index, each in the order of the log: one for each event or status
-- that the filter leaves open.
CREATE INDEX webhook_deliveries_filtered ON tds.webhook_deliveries (webhook_id, event, status, created_at DESC, id);
DROP INDEX tds.webhook_deliveries_by_status;
