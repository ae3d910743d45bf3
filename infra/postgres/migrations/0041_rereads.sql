-- Fetch the block from the node again: the block in the log is missing or incomplete.
ALTER TABLE tds.repairs ADD COLUMN reread boolean NOT NULL DEFAULT false;
