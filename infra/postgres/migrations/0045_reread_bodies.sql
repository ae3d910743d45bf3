-- Bodies that an unfinished repair has fetched again and may have published for this block: a reorg reverts each of
-- them.
ALTER TABLE tds.recorded_blocks ADD COLUMN rereads bytea[] NOT NULL DEFAULT '{}';
ALTER TABLE tds.recorded_blocks ALTER COLUMN rereads SET STORAGE EXTERNAL;
