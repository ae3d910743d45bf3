-- Of the newest request that has no answer yet; unix milliseconds. Some databases have it from 0050.
ALTER TABLE tds.price_watch ADD COLUMN IF NOT EXISTS asked_at bigint;
