-- Attempts that are made although the webhook is not active, beside which a million others may stay due.
CREATE INDEX webhook_deliveries_due_even_if_inactive ON tds.webhook_deliveries (webhook_id, due_at)
  WHERE due_at IS NOT NULL AND (manual_at IS NOT NULL OR (is_test AND attempts = 0));
