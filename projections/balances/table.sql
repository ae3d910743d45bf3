-- Balances read from the chain, by account and token. Times are unix milliseconds.

-- An anchor: a balance at a block, good while that block is the indexed one at its height. Which one that is, the fold
-- cannot know, so it keeps as many as a reader may have to fall back on: the newest 32 of a pair, and the newest 4 that
-- were at or below the height accepted on L1 when a later one was read.
CREATE TABLE {{schema}}.anchors (
  account       text NOT NULL,
  token         text NOT NULL,
  block         bigint NOT NULL,
  block_hash    text NOT NULL,
  -- raw integer below 2^256
  balance       numeric(78) NOT NULL,
  observed_at   bigint NOT NULL,
  -- of the newest request that any read at this block has answered
  requested_at  bigint NOT NULL,
  PRIMARY KEY (account, token, block, block_hash)
);

-- The contract that told no balance when it was asked last; gone once it tells one.
CREATE TABLE {{schema}}.refusals (
  account       text NOT NULL,
  token         text NOT NULL,
  reason        text NOT NULL,
  block         bigint NOT NULL,
  block_hash    text NOT NULL,
  refused_at    bigint NOT NULL,
  requested_at  bigint NOT NULL,
  PRIMARY KEY (account, token)
);
