-- A repair that fails is retried with backoff, so that others get their turn.
ALTER TABLE tds.repairs ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE tds.repairs ADD COLUMN next_try_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX repairs_due ON tds.repairs (next_try_at, id) WHERE done_at IS NULL;
