-- Time of the newest request without an answer, in unix milliseconds. Some databases have the column from 0050.
ALTER TABLE tds.price_watch ADD COLUMN IF NOT EXISTS asked_at bigint;
