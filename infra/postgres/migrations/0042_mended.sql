-- Counts how often tables were mended without a checkpoint that moved: what was read from them before is not given again.
ALTER TABLE tds.served ADD COLUMN mended integer NOT NULL DEFAULT 0;
