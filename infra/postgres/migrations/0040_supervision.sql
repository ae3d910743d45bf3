-- What shows whether the roles work, on whatever machine they run.

-- Every process of a role writes a heartbeat every other second.
CREATE TABLE tds.role_processes (
  role text NOT NULL,
  -- host:pid:random
  process text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now(),
  -- It stopped gracefully.
  stopped_at timestamptz,
  PRIMARY KEY (role, process)
);

ALTER TABLE tds.observer_positions ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX observer_attempts_done ON tds.observer_attempts (observer, done_at) WHERE done_at IS NOT NULL;

-- The same for a database role that may read no more of these tables.
CREATE VIEW tds.chunk_writers AS
  SELECT name, range_end IS NULL AS is_live, coalesce(lease_until > now(), false) AS held, updated_at
  FROM tds.chunks WHERE status = 'open';

CREATE VIEW tds.observer_readings AS
  SELECT observer, topic, partition, next_offset, updated_at FROM tds.observer_positions;

-- Unix milliseconds of the observers' clock. A running observer has claimed tasks, or postponed them: they are due later.
CREATE VIEW tds.observer_progress AS
  SELECT observer, min(next_at) AS first_due, max(next_at) AS last_due,
    (SELECT max(done_at) FROM tds.observer_attempts d WHERE d.observer = a.observer AND done_at IS NOT NULL) AS done_at
  FROM tds.observer_attempts a WHERE next_at IS NOT NULL GROUP BY observer;
