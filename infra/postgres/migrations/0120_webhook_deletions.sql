-- Deleted webhooks whose deliveries are being deleted, in pages. Times are unix milliseconds.
CREATE TABLE tds.webhook_deletions (
  webhook_id bigint PRIMARY KEY,
  requested_at bigint NOT NULL,
  -- deliveries deleted so far
  deleted bigint NOT NULL DEFAULT 0
);
-- Every delivery has the endpoint of its webhook, unless the webhook is being deleted: so deliveries of webhooks that no
-- longer exist are found by their endpoints.
INSERT INTO tds.webhook_endpoints (webhook_id) SELECT DISTINCT webhook_id FROM tds.webhook_deliveries
  ON CONFLICT DO NOTHING;
-- Finds the oldest deliveries that have no attempt left; the block ranges of the index that it replaces were all scanned
-- once deliveries of different ages were in each.
CREATE INDEX webhook_deliveries_finished ON tds.webhook_deliveries (created_at) WHERE due_at IS NULL;
DROP INDEX tds.webhook_deliveries_by_age;
