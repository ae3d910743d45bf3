-- What admins have asked for through the API, by the id of the command: carried out once by a process of `project`.
CREATE TABLE tds.operations (
  id text PRIMARY KEY,
  -- quarantine.retry, quarantine.skip, rebuild.start, rebuild.abort
  operation text NOT NULL,
  -- the id of an entry, or the name of a projection
  subject text NOT NULL,
  -- of rebuild.start: false: only compare
  swap boolean,
  -- `user:<id>`
  requested_by text NOT NULL,
  requested_at timestamptz NOT NULL,
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'failed')),
  -- What was done, or why it failed.
  detail text,
  attempts integer NOT NULL DEFAULT 1,
  started_at timestamptz NOT NULL DEFAULT now(),
  -- Moved while it runs: another process takes over an operation that is still running without it.
  updated_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz
);
CREATE INDEX operations_newest ON tds.operations (requested_at DESC);
