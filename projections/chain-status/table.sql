-- The state of the whole chain. Times are unix milliseconds.

CREATE TABLE {{schema}}.status (
  singleton         boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  chain_id          text,
  spec_version      text,
  has_header_counts boolean,
  has_l1_tag        boolean,
  -- may go down: after a reorg, or when the node is behind
  head_height       bigint,
  head_hash         text,
  head_seen_at      bigint,
  -- never goes down: a block accepted on L1 stays accepted
  l1_height         bigint,
  l1_seen_at        bigint
);
INSERT INTO {{schema}}.status DEFAULT VALUES;

-- A served table that has read the log to these ends has no reverted block at or below the height.
CREATE TABLE {{schema}}.final_heights (
  height   bigint PRIMARY KEY,
  -- by partition of chain.blocks: the next offset when the height became final
  log_ends bigint[] NOT NULL
);

CREATE TABLE {{schema}}.chunks (
  name         text PRIMARY KEY,
  first_height bigint NOT NULL,
  -- null: open-ended
  last_height  bigint,
  opened_at    bigint NOT NULL,
  finished_at  bigint
);
