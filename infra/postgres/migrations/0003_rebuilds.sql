-- A build can be dropped by a program that no longer knows the shape it was made in, once nobody reads it any more.
ALTER TABLE tds.builds
  -- placeholder -> name of the ClickHouse table, or `schema` of a Postgres projection
  ADD COLUMN names jsonb NOT NULL DEFAULT '{}',
  ADD COLUMN retired_at timestamptz;
