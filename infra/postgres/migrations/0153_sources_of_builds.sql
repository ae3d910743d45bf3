-- Of a shadow build with deferred tables: the tables that these are derived from, placeholder -> table. It is swapped in only
-- while they are served, or together with them.
ALTER TABLE tds.builds ADD COLUMN sources jsonb;
