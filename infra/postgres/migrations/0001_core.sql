-- Working state of the service, which cannot be rebuilt from the log: back it up.
-- Read models are not here: each build of a projection has its own schema, or its own ClickHouse tables.

-- Conditions that need an operator, shown by /readyz and `tds status`.
CREATE TABLE tds.alarms (
  name      text PRIMARY KEY,
  detail    text NOT NULL,
  raised_at timestamptz NOT NULL DEFAULT now()
);
