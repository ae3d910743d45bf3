-- Something was due while the owner of the webhook was shut out: due_at is null until the owner is let in.
ALTER TABLE tds.webhook_endpoints ADD COLUMN shut_out boolean NOT NULL DEFAULT false;
CREATE INDEX webhook_endpoints_shut_out ON tds.webhook_endpoints (webhook_id) WHERE shut_out;
