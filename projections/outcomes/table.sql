-- The outcome of a command; kept for 48 h of the log's time.
CREATE TABLE {{schema}}.command_outcomes (
  id           text PRIMARY KEY,
  type         text NOT NULL,
  issued_at    bigint NOT NULL,
  -- Hash of the request that made the command; null where requests are not compared.
  request_hash text,
  accepted     boolean NOT NULL,
  -- {"id": 1, …} of what was created or changed; {"code", "detail"} of a refusal.
  result       jsonb NOT NULL
);
CREATE INDEX command_outcomes_by_time ON {{schema}}.command_outcomes (issued_at);
