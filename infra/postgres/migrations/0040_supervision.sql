-- What tells whether the roles work, wherever their processes are.

-- Every process of a role says every other second that it lives.
CREATE TABLE tds.role_processes (
  role text NOT NULL,
  -- host:pid:chance
  process text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT now(),
  seen_at timestamptz NOT NULL DEFAULT now(),
  -- It ended in order.
  stopped_at timestamptz,
  PRIMARY KEY (role, process)
);

ALTER TABLE tds.observer_positions ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX observer_attempts_done ON tds.observer_attempts (observer, done_at) WHERE done_at IS NOT NULL;

-- The same for a role that may see no more of these tables.
CREATE VIEW tds.chunk_writers AS
  SELECT name, range_end IS NULL AS is_live, coalesce(lease_until > now(), false) AS held, updated_at
  FROM tds.chunks WHERE status = 'open';

CREATE VIEW tds.observer_readings AS
  SELECT observer, topic, partition, next_offset, updated_at FROM tds.observer_positions;

-- Unix milliseconds of the observers' clock. Whoever works has something claimed, or tried and put off: due later.
CREATE VIEW tds.observer_progress AS
  SELECT observer, min(next_at) AS first_due, max(next_at) AS last_due,
    (SELECT max(done_at) FROM tds.observer_attempts d WHERE d.observer = a.observer AND done_at IS NOT NULL) AS done_at
  FROM tds.observer_attempts a WHERE next_at IS NOT NULL GROUP BY observer;
