-- Names of a build's tables, so that a program that does not know the build's version can drop it once it is unused.
ALTER TABLE tds.builds
  -- placeholder -> name of the ClickHouse table, or `schema` of a Postgres projection
  ADD COLUMN names jsonb NOT NULL DEFAULT '{}',
  ADD COLUMN retired_at timestamptz;
