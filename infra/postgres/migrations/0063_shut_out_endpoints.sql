-- A delivery became due while the owner of the webhook was disabled: due_at is null until the owner is enabled.
ALTER TABLE tds.webhook_endpoints ADD COLUMN shut_out boolean NOT NULL DEFAULT false;
CREATE INDEX webhook_endpoints_shut_out ON tds.webhook_endpoints (webhook_id) WHERE shut_out;
