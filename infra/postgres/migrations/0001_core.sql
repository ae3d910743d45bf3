-- What the service works with and cannot rebuild from the log: to be backed up.
-- Read models are not here: each build of a projection has a schema, or tables, of its own.

-- Conditions an operator should look at; shown by /readyz and by the status command.
CREATE TABLE tds.alarms (
  name      text PRIMARY KEY,
  detail    text NOT NULL,
  raised_at timestamptz NOT NULL DEFAULT now()
);
