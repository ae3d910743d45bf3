-- A price beyond PRICE_JUMP_FACTOR waits for PRICE_CONFIRMATIONS agreeing readings, no longer for a time.
ALTER TABLE tds.price_watch RENAME COLUMN held_price TO candidate_price;
ALTER TABLE tds.price_watch RENAME COLUMN held_observed_at TO candidate_observed_at;
ALTER TABLE tds.price_watch DROP COLUMN held_since;
ALTER TABLE tds.price_watch ADD COLUMN candidate_confirmations integer NOT NULL DEFAULT 0;
