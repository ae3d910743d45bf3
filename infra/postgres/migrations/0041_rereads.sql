-- The block is to be taken from the node again: what the log has of it is missing or short.
ALTER TABLE tds.repairs ADD COLUMN reread boolean NOT NULL DEFAULT false;
