-- Ranges of 1024 heights whose tables `tds verify --repair` is changing. Their blocks are due again for deferred tables before
-- the row is deleted; after an interruption the next verification does both.
CREATE TABLE tds.repairing_ranges (
  range integer PRIMARY KEY
);
