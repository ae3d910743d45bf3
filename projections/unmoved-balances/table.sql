-- The last answer of the chain about a pair of account and token that no indexed transfer moved: a balance of zero, or none.
-- Times are unix milliseconds.
CREATE TABLE {{schema}}.answers (
  account       text NOT NULL,
  token         text NOT NULL,
  block         bigint NOT NULL,
  block_hash    text NOT NULL,
  -- raw integer below 2^256; null: the contract gave none
  balance       numeric(78),
  -- why the contract gave none
  reason        text,
  observed_at   bigint NOT NULL,
  -- time of the newest request that this answers
  requested_at  bigint NOT NULL,
  -- when the log took the answer
  stored_at     bigint NOT NULL,
  -- of the log, with the answer; null: copied from version 1, which did not store it
  partition     smallint,
  PRIMARY KEY (account, token)
);
CREATE INDEX ON {{schema}}.answers (partition, stored_at);
