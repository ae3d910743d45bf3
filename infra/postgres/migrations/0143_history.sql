-- Heights, lag and totals, kept for an hour every 5 s and for a day every minute, so that they can be plotted without Prometheus.
CREATE TABLE tds.history (
  -- Seconds that the row stands for: 5 or 60.
  step smallint NOT NULL,
  -- Its first moment, a multiple of the step. The process that inserts the row measures it.
  at timestamptz NOT NULL,
  head_height bigint,
  log_height bigint,
  indexed_height bigint,
  -- Of a minute: the highest.
  lag_blocks bigint,
  lag_seconds double precision,
  -- All that can be queried.
  blocks bigint,
  transfers bigint,
  PRIMARY KEY (step, at)
);
