-- The block replaces an orphan that `tds revert` reverted: webhooks are notified of it.
ALTER TABLE tds.repairs ADD COLUMN replaces_orphan boolean NOT NULL DEFAULT false;
