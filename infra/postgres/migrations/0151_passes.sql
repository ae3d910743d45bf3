-- The number of the last pass that began to derive the deferred tables of a build: an earlier one that still runs leaves its
-- blocks due.
ALTER TABLE tds.builds ADD COLUMN pass bigint NOT NULL DEFAULT 0;
