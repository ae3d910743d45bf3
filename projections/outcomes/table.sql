-- What became of a command; kept for 48 h of the log's time.
CREATE TABLE {{schema}}.command_outcomes (
  id           text PRIMARY KEY,
  type         text NOT NULL,
  issued_at    bigint NOT NULL,
  -- Of the request that the command came from; null where repeats are not told apart.
  request_hash text,
  accepted     boolean NOT NULL,
  -- {"id": 1, …} of what was made or changed; {"code", "detail"} of a refusal.
  result       jsonb NOT NULL
);
CREATE INDEX command_outcomes_by_time ON {{schema}}.command_outcomes (issued_at);
