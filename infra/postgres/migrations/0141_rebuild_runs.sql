-- Runs of `tds rebuild`, wherever they were started: their progress, and requests to abort them. The newest are kept.
CREATE TABLE tds.rebuild_runs (
  id uuid PRIMARY KEY,
  projections text[] NOT NULL,
  -- `operator` (tds), or `user:<id>` (the API)
  requested_by text NOT NULL,
  state text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'finished', 'failed', 'aborted')),
  phase text NOT NULL DEFAULT 'reading',
  messages_read bigint NOT NULL DEFAULT 0,
  messages_total bigint NOT NULL DEFAULT 0,
  rows_compared bigint NOT NULL DEFAULT 0,
  -- The number of ranges that differ, and some of them: [{table, where, served_rows, rebuilt_rows}].
  differences integer NOT NULL DEFAULT 0,
  differing jsonb NOT NULL DEFAULT '[]',
  is_swapped boolean NOT NULL DEFAULT false,
  error text,
  abort_requested_at timestamptz,
  started_at timestamptz NOT NULL DEFAULT now(),
  -- Moved every second: a run that stays `running` without it was killed.
  updated_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz
);
CREATE INDEX rebuild_runs_newest ON tds.rebuild_runs (started_at DESC);
