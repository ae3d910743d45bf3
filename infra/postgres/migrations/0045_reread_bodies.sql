-- Bodies that a repair has read again from the node and may have published of this block, until it is done: a reorg takes
-- each of them back.
ALTER TABLE tds.recorded_blocks ADD COLUMN rereads bytea[] NOT NULL DEFAULT '{}';
ALTER TABLE tds.recorded_blocks ALTER COLUMN rereads SET STORAGE EXTERNAL;
